"""Records of the way out: what is asked, and what is answered with which sources.

Knows nothing of models, stores or the web.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from index.records import DEFAULT_TENANT, AttributeFilter, Passage

Mode = Literal["none", "rag", "knn_lm", "both", "extractive"]
MODES: tuple[Mode, ...] = ("none", "rag", "knn_lm", "both", "extractive")


@dataclass(frozen=True, slots=True)
class KnnWish:
    """What a caller asks of the token memory; None takes the settings' default."""

    lam: float | None = None
    k: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class SearchWish:
    """What a caller asks of a search; None takes the settings' default."""

    k: int | None = None
    candidates: int | None = None
    mode: Literal["hybrid", "dense", "lexical"] | None = None
    where: AttributeFilter | None = None
    min_dense: float | None = None
    min_lexical: float | None = None
    min_rerank: float | None = None
    mmr_lambda: float | None = None
    rerank: bool | None = None
    """None: wherever a reranker is configured."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tokens are chosen; None takes the settings' default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """One conversation whose last message (by the user) wants an answer."""

    messages: tuple[Mapping[str, str], ...]
    stores: tuple[str, ...] = ()
    """Names or ids."""
    tenant: str = DEFAULT_TENANT
    mode: Mode | None = None
    """None: `none` without stores, `both` where a token memory exists, else `rag`."""
    search: SearchWish = SearchWish()
    knn: KnnWish = KnnWish()
    decoding: Decoding = Decoding()
    abstain: bool = False


@dataclass(frozen=True, slots=True)
class TokenSource:
    """A span of a document and the share of a token's final probability that came from it."""

    document: str
    start: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class Piece:
    """One emitted token; the texts joined are what the model wrote."""

    text: str
    logprob: float | None = None
    """Natural log of the target's probability; None where nothing was generated."""
    top: tuple[tuple[str, float], ...] = ()
    sources: tuple[TokenSource, ...] = ()


@dataclass(frozen=True, slots=True)
class Quote:
    """A citation that the server checked: `text[start:end] == quote` in that version."""

    number: int
    document: str
    version: str
    store_id: str
    file_id: str | None
    start: int
    end: int
    quote: str
    verified: bool
    origin: str
    page: int | None
    headings: tuple[str, ...]
    answer_start: int
    answer_end: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A finished answer. `answer` is what was written, after the citations were checked."""

    answer: str
    mode: Mode
    citations: tuple[Quote, ...] = ()
    dropped: int = 0
    """Markers that named no passage, or one that holds nothing of the sentence."""
    abstained: bool = False
    tokens: tuple[Piece, ...] = ()
    passages: tuple[Passage, ...] = ()
    warnings: tuple[str, ...] = ()
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    timings: Mapping[str, float] = field(default_factory=dict)


def passage_json(passage: Passage) -> dict[str, Any]:
    """Give a passage as JSON data: the contract of `graft search --json`."""
    return {
        "document": passage.document,
        "start": passage.start,
        "end": passage.end,
        "text": passage.text,
        "scores": dict(passage.scores),
        "page": passage.page,
        "headings": list(passage.headings),
        "version": passage.version,
        "attributes": dict(passage.attributes),
    }


def quote_json(quote: Quote) -> dict[str, Any]:
    """Give a citation as JSON data: the contract of `graft ask --json`."""
    return {
        "number": quote.number,
        "document": quote.document,
        "start": quote.start,
        "end": quote.end,
        "quote": quote.quote,
        "verified": quote.verified,
        "origin": quote.origin,
        "page": quote.page,
        "headings": list(quote.headings),
        "version": quote.version,
        "answer_span": [quote.answer_start, quote.answer_end],
    }


def piece_json(piece: Piece) -> dict[str, Any]:
    """Give a token as JSON data."""
    return {
        "text": piece.text,
        "logprob": piece.logprob if piece.logprob != float("-inf") else None,
        "sources": [
            {"document": s.document, "start": s.start, "end": s.end, "share": s.share}
            for s in piece.sources
        ],
    }


def answered_json(answered: Answered) -> dict[str, Any]:
    """Give an answer as JSON data: the contract of `graft ask --json`."""
    return {
        "answer": answered.answer,
        "mode": answered.mode,
        "citations": [quote_json(quote) for quote in answered.citations],
        "tokens": [piece_json(piece) for piece in answered.tokens],
        "abstained": answered.abstained,
        "dropped_markers": answered.dropped,
        "warnings": list(answered.warnings),
        "finish_reason": answered.finish_reason,
        "usage": {
            "prompt_tokens": answered.prompt_tokens,
            "completion_tokens": answered.completion_tokens,
        },
        "passages": [passage_json(passage) for passage in answered.passages],
        "timings": dict(answered.timings),
    }
