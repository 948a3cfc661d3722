"""Small real documents and memories for the tests of the store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from index import (
    Chunk,
    FloatArray,
    Index,
    MemoryArrays,
    NewDocument,
    ParsedText,
    StoreRecord,
    content_sha,
)

DIMENSION = 16
FINGERPRINT = "embedder-1"
BACKBONE = "backbone-1"


def vector_of(words: str, dimension: int = DIMENSION) -> FloatArray:
    """Give a unit vector that depends on the words only."""
    seed = int(content_sha(words)[:12], 16)
    vector = np.random.default_rng(seed).normal(size=dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def make_document(
    name: str,
    text: str,
    *,
    size: int = 40,
    dimension: int = DIMENSION,
    attributes: dict[str, str | int | float | bool] | None = None,
) -> NewDocument:
    """Cut a text into pieces of `size` characters, with vectors made from their words."""
    chunks = [
        Chunk(start, min(start + size, len(text)), size) for start in range(0, len(text), size)
    ]
    vectors = np.array(
        [vector_of(c.embedded_text(text), dimension) for c in chunks], np.float32
    ).reshape(len(chunks), dimension)
    data = text.encode("utf-8", "surrogatepass")
    return NewDocument(
        name=name,
        version=hashlib.sha256(data).hexdigest(),
        num_bytes=len(data),
        parsed=ParsedText(text, "plain", "text/plain"),
        chunks=chunks,
        vectors=vectors,
        attributes=attributes or {},
    )


def make_memory(text: str, *, dim: int = 8, vocabulary: int = 65_537) -> MemoryArrays:
    """Make one token a character, with keys that depend on the text."""
    count = len(text)
    rng = np.random.default_rng(int(content_sha(text)[:12], 16))
    tokens = np.array([ord(c) % vocabulary for c in text], np.int64)
    keys = rng.normal(size=(max(count - 1, 0), dim)).astype(np.float16)
    return MemoryArrays(tokens, np.arange(count), np.arange(1, count + 1), keys)


def make_store(index: Index, name: str = "s", *, tenant: str = "t") -> StoreRecord:
    """Create a store for `make_document`."""
    return index.create_store(
        name,
        tenant=tenant,
        embedder="small",
        embedder_fingerprint=FINGERPRINT,
        dimension=DIMENSION,
        chunking={"size": 40},
    )


def commit(index: Index, store: StoreRecord, *documents: NewDocument) -> None:
    """Commit under the store's own fingerprint."""
    index.commit_documents(store.id, documents, embedder_fingerprint=FINGERPRINT)


def remember(index: Index, store: StoreRecord, backbone: str = BACKBONE) -> None:
    """Commit the memory of every document that has none."""
    for document in index.pending_memory(store.id, backbone):
        assert index.commit_memory(document, backbone, make_memory(index.text_of(document)))


def found_texts(index: Index, store: StoreRecord, query: str, *, k: int = 5) -> list[str]:
    """Give the words that dense and lexical search find for a query, dense first."""
    with index.view(store.id) as view:
        hits = view.dense(vector_of(query), k=k) + view.lexical(query, k=k)
        return [p.text for p in view.passages([h.chunk_id for h in hits], {})]


def assert_serves(index: Index, store: StoreRecord, texts: dict[str, str]) -> None:
    """Check that the store holds exactly these documents, and finds each piece of each of them."""
    assert [d.name for d in index.list_documents(store.id)] == sorted(texts)
    with index.view(store.id) as view:
        for name, text in texts.items():
            assert index.text(store.id, name) == text
            for chunk in make_document(name, text).chunks:
                words = text[chunk.start : chunk.end]
                hits = view.dense(vector_of(words), k=1)
                assert hits[0].score > 0.999
                assert view.passages([hits[0].chunk_id], {})[0].text == words
        num_chunks = sum(d.num_chunks for d in index.list_documents(store.id))
        assert len(view.dense(vector_of("x"), k=10_000)) == num_chunks


def sentences(count: int, prefix: str = "item") -> Sequence[str]:
    """Give distinct sentences of one chunk each."""
    return [f"{prefix} number {i} is painted {i * 7919 % 1000:03d}" for i in range(count)]
