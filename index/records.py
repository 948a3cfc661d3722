"""Frozen records that cross package borders: what a text, a chunk, a hit, a memory is.

All offsets are code points into a version's extracted text, end exclusive.
Knows nothing of models, of the web, or of how any of this is stored.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
TextFormat = Literal["plain", "markdown", "rst", "code", "records"]
DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Span:
    """`[start, end)` in code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParsedText:
    """What a parser made of a file.

    `page_starts[i]` is the offset at which page i+1 begins (empty where there are no pages).
    `coverage` is the share of pages (or parts) that yielded text.
    """

    text: str
    format: TextFormat
    media_type: str
    page_starts: tuple[int, ...] = ()
    coverage: float = 1.0
    warnings: tuple[str, ...] = ()
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a text, with what it needs around it to be understood.

    The chunk's words are `text[start:end]`, always. `headings` is the path above it;
    `header` is the span of a table's header row when the chunk holds rows of that table
    (also its caption's span, if there is one); `page` is one-based.
    """

    start: int
    end: int
    num_tokens: int
    headings: tuple[str, ...] = ()
    page: int | None = None
    header: Span | None = None
    caption: Span | None = None

    def embedded_text(self, text: str) -> str:
        """Give what the embedder and the lexical index see: headings, caption, header, words."""
        head = [" > ".join(self.headings)] if self.headings else []
        for extra in (self.caption, self.header):
            if extra is not None and not (self.start <= extra.start and extra.end <= self.end):
                head.append(text[extra.start : extra.end].strip())
        return "\n".join([*head, text[self.start : self.end]])


def content_sha(words: str) -> str:
    """Name a piece of text by the SHA-256 of its UTF-8 bytes (hex)."""
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """A vector store: a named collection of one tenant."""

    id: str
    tenant: str
    name: str
    embedder: str
    """The embedder's source or alias, as given to the model registry."""
    embedder_fingerprint: str
    dimension: int
    chunking: Mapping[str, int | str]
    generation: int
    created: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document of a store, in its current version."""

    id: int
    store_id: str
    name: str
    version: str
    """SHA-256 of the uploaded bytes (hex)."""
    text_sha: str
    format: TextFormat
    media_type: str
    num_bytes: int
    num_chars: int
    num_chunks: int
    page_starts: tuple[int, ...]
    coverage: float
    warnings: tuple[str, ...]
    attributes: Mapping[str, str | int | float | bool]
    file_id: str | None
    memories: tuple[str, ...]
    """Fingerprints of the backbones whose token memory holds this version."""
    created: int

    def page_at(self, offset: int) -> int | None:
        """Give the one-based page that a code point of the text is on; None without pages."""
        return max(1, bisect_right(self.page_starts, offset)) if self.page_starts else None


@dataclass(frozen=True, slots=True)
class NewDocument:
    """Everything that one commit makes visible about one document."""

    name: str
    version: str
    num_bytes: int
    parsed: ParsedText
    chunks: Sequence[Chunk]
    vectors: FloatArray
    """[N, E] float32, unit length, one row a chunk, in order."""
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    file_id: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result: a chunk and its score (greater is better).

    Dense: inner product of unit vectors. Lexical: BM25, sign turned so that greater is better.
    """

    chunk_id: int
    score: float


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrieved chunk, with its words and its scores by name (dense, lexical, fused, rerank)."""

    chunk_id: int
    store_id: str
    document: str
    version: str
    start: int
    end: int
    text: str
    context: str
    """Headings, caption and table header that belong above `text` in a prompt; may be empty."""
    headings: tuple[str, ...]
    page: int | None
    scores: Mapping[str, float]
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryArrays:
    """The token memory of one document under one backbone.

    `tokens[i]` covers the text's code points `[starts[i], ends[i])`; `keys[i]` is the hidden state
    after reading `tokens[: i + 1]`, so its value (next token) is `tokens[i + 1]`: entry i exists
    for i < T - 1. Windows never cross the document's border.
    """

    tokens: npt.NDArray[np.int64]  # [T]
    starts: npt.NDArray[np.int64]  # [T]
    ends: npt.NDArray[np.int64]  # [T]
    keys: npt.NDArray[np.float16]  # [T - 1, D] (T == 0: [0, D])


@dataclass(frozen=True, slots=True)
class MemoryView:
    """All entries of a store's token memory under one backbone, of one generation, in one table.

    Entry n says: after a hidden state like `keys[n]`, token `values[n]` came, at the code points
    `[starts[n], ends[n])` of document `documents[document_of[n]]`.
    """

    keys: npt.NDArray[np.float16]  # [N, D]
    values: npt.NDArray[np.int64]  # [N]
    starts: npt.NDArray[np.int64]  # [N]
    ends: npt.NDArray[np.int64]  # [N]
    document_of: npt.NDArray[np.int64]  # [N], index into documents
    documents: tuple[DocumentRecord, ...]
    generation: int
    pending: int
    """Documents of the store that have no entries yet."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes in the content-addressed store; `is_new` is False where they were there before."""

    sha256: str
    num_bytes: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class FileRecord:
    """An uploaded file of one tenant: a name and a blob."""

    id: str
    tenant: str
    name: str
    sha256: str
    num_bytes: int
    purpose: str
    created: int


OF_DOCUMENT = "document"
"""The purpose of a file that came in only as a document's bytes: it goes with that version."""

JobState = Literal["queued", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A piece of work; it is run by whoever holds its lease (`worker` until `lease_until`)."""

    id: str
    tenant: str
    store_id: str | None
    kind: str
    payload: Mapping[str, Any]
    state: JobState
    attempts: int
    worker: str | None
    lease_until: float | None
    """Unix seconds; after it another worker may take the job."""
    run_after: float
    progress: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: str | None
    error_code: str | None
    created: float
    updated: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `Index.check` found wrong, and what to do about it."""

    kind: Literal["database", "vectors", "memory", "text", "lexical", "blob", "rows", "orphan"]
    subject: str
    message: str


AttributeFilter = Mapping[str, object]
"""OpenAI's filter shape: {"type": "eq|ne|gt|gte|lt|lte|in|nin", "key", "value"} or
{"type": "and|or", "filters": [...]}. The key "document" filters by name."""


class Progress(Protocol):
    """Told how far a long piece of work is; called often and must be cheap."""

    def __call__(self, stage: str, done: int, total: int, unit: str) -> None: ...


def no_progress(stage: str, done: int, total: int, unit: str) -> None:
    """Ignore progress."""
