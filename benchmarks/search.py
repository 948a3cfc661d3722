"""Measure hybrid search against a bare query embedding plus raw FAISS, and what fusion is worth.

In: XQuAD's English contexts, each a document, and its questions. Out: `ratio_to_raw_faiss` (median
seconds of a hybrid search over the bare way's, in turns) and `hybrid_recall_at_5_minus_best_single`
(the worst over the embedders). Knows nothing of answers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
from sentence_transformers import SentenceTransformer

import xquad
from backbone import Embedder, ModelCache
from index import Index
from index.records import FloatArray, StoreRecord
from ingestion import ParseLimits, Pipeline, SourceFile
from reporting import Measured, models_folder, say
from retriever import RetrievalSettings, Retriever

EMBEDDERS = ("minilm", "e5-small")
QUERY_PROMPTS = {"minilm": "", "e5-small": "query: "}
K = 5
SEED = 7


class Store:
    """One corpus under one embedder: our retriever, and the bare way over the same chunks."""

    def __init__(self, folder: Path, name: str, corpus: xquad.Corpus, cache: ModelCache) -> None:
        self.name = name
        model_folder = cache.pull(name)
        self.embedder = Embedder.load(name, cache, threads=1)
        self.bare = SentenceTransformer(str(model_folder), device="cpu")
        self.index = Index.open(folder / f"data-{name}")
        self.record = self._ingest(xquad.write(corpus.documents, folder / f"documents-{name}"))
        self.retriever = Retriever(self.index, self.embedder)
        self.flat = self._flat()

    def _ingest(self, paths: Sequence[Path]) -> StoreRecord:
        store = self.index.create_store(
            "bench",
            tenant="default",
            embedder=self.name,
            embedder_fingerprint=self.embedder.fingerprint,
            dimension=self.embedder.dimension,
            chunking={"size": 256, "overlap": 32, "splitter": "structure"},
        )
        sources = [SourceFile(name=path.name, path=path) for path in paths]
        pipeline = Pipeline(self.index, self.embedder, ParseLimits())
        pipeline.ingest(store.id, sources)
        pipeline.close()
        return store

    def _flat(self) -> faiss.Index:
        """Put the store's own vectors into a plain FAISS index."""
        with self.index.view(self.record.id) as view:
            hits = view.dense(np.ones(self.embedder.dimension, dtype=np.float32), k=1_000_000)
            vectors: FloatArray = view.vectors([hit.chunk_id for hit in hits])
        flat = faiss.IndexFlatIP(self.embedder.dimension)
        flat.add(vectors)
        return flat

    def search(self, question: str, settings: RetrievalSettings) -> list[str]:
        """Search our way; the documents found, best first."""
        found = self.retriever.search(question, [self.record.id], settings)
        return [passage.document for passage in found]

    def search_bare(self, question: str) -> None:
        """Embed the query with sentence-transformers and ask FAISS, nothing else."""
        vector = self.bare.encode(
            [QUERY_PROMPTS[self.name] + question],
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        self.flat.search(vector, K)


def measure(quick: bool) -> Measured:
    """Time both ways in turns, query by query; then count recall for each way to search."""
    whole = xquad.read("en")
    num_documents, num_questions = (40, 120) if quick else (len(whole.documents), 10**6)
    corpus = xquad.sample(whole, num_documents, num_questions, SEED)
    names = EMBEDDERS[:1] if quick else EMBEDDERS
    figures: dict[str, object] = {}
    gains = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            store = Store(Path(folder), name, corpus, ModelCache(models_folder()))
            try:
                timed = corpus.questions[: 60 if quick else 300]
                figures[name] = {**ratio(store, [q.question for q in timed]),
                                 **(recalls := recall(store, corpus.questions))}  # fmt: skip
                gains.append(recalls["hybrid"] - max(recalls["dense"], recalls["lexical"]))
            finally:
                store.index.close()
    first = figures[names[0]]
    assert isinstance(first, dict)
    summary = {
        "ratio_to_raw_faiss": first["ratio_to_raw_faiss"],
        "hybrid_recall_at_5_minus_best_single": round(min(gains), 4),
    }
    settings = {
        "corpus": "XQuAD English, each context a document",
        "num_documents": len(corpus.documents),
        "num_questions": len(corpus.questions),
        "embedders": list(names),
        "k": K,
        "threads": 1,
    }
    return Measured({**summary, "by_embedder": figures}, settings, SEED)


def ratio(store: Store, questions: Sequence[str]) -> dict[str, float]:
    """Time each question both ways, which is first alternating; medians in seconds."""
    settings = RetrievalSettings(k=K)
    for question in questions[:5]:
        store.search(question, settings)
        store.search_bare(question)
    ours: list[float] = []
    theirs: list[float] = []
    for number, question in enumerate(questions):
        ways: list[tuple[list[float], Callable[[], object]]] = [
            (ours, lambda q=question: store.search(q, settings)),  # type: ignore[misc]
            (theirs, lambda q=question: store.search_bare(q)),  # type: ignore[misc]
        ]
        for times, work in ways if number % 2 == 0 else reversed(ways):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
    mine, other = statistics.median(ours), statistics.median(theirs)
    say(f"{store.name}: hybrid {mine * 1e3:.1f} ms, bare {other * 1e3:.1f} ms")
    return {
        "ratio_to_raw_faiss": round(mine / other, 3),
        "hybrid_ms": round(mine * 1e3, 2),
        "bare_ms": round(other * 1e3, 2),
    }


def recall(store: Store, questions: Sequence[xquad.Asked]) -> dict[str, float]:
    """Count the questions whose document is among the first five, for each way to search."""
    found = {}
    for mode in ("hybrid", "dense", "lexical"):
        settings = replace(RetrievalSettings(k=K), mode=mode)
        hits = sum(asked.document in store.search(asked.question, settings) for asked in questions)
        found[mode] = round(hits / len(questions), 4)
    say(f"{store.name}: recall@5 {found}")
    return found
