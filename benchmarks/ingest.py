"""Measure ingestion against a bare SentenceTransformer.encode of the same chunks, in turns.

In: XQuAD's English contexts, each a document. Out: `ratio_to_bare_encode` (1 is as fast as
encoding alone, more is faster), `bytes_ratio` (data folder over raw vectors and text) and
`reembedded_unchanged` (passages embedded again when nothing changed). Token keys are left out.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sentence_transformers import SentenceTransformer

import xquad
from backbone import Embedder, ModelCache
from index import Index
from index.records import FloatArray, Progress, no_progress
from ingestion import ParseLimits, Pipeline, SourceFile
from reporting import Measured, Paired, interleaved, models_folder, say

EMBEDDER = "minilm"
CHUNKING: dict[str, int | str] = {"size": 256, "overlap": 32, "splitter": "structure"}
SEED = 7
QUICK_DOCUMENTS = 24
BATCH = 32


class Bench:
    """Documents on disk, one loaded embedder that is listened to, and the bare model beside it."""

    def __init__(self, folder: Path, documents: dict[str, str], cache: ModelCache) -> None:
        paths = xquad.write(documents, folder / "documents")
        self.sources = [SourceFile(name=path.name, path=path) for path in paths]
        self.num_text_bytes = sum(len(text.encode()) for text in documents.values())
        model_folder = cache.pull(EMBEDDER)
        self.embedder = Embedder.load(EMBEDDER, cache, threads=1)
        self.bare = SentenceTransformer(str(model_folder), device="cpu")
        self.heard: list[str] = []
        self._folder = folder
        self._numbers = itertools.count()
        self._listen()

    def _listen(self) -> None:
        """Keep every text that the pipeline has embedded: the bare model gets the same ones."""
        encode = self.embedder.encode_passages

        def listening(texts: Sequence[str], *, progress: Progress = no_progress) -> FloatArray:
            self.heard.extend(texts)
            return encode(texts, progress=progress)

        self.embedder.encode_passages = listening  # type: ignore[method-assign]

    def ingest(self) -> Path:
        """Ingest every document into a new data folder; give the folder."""
        data_dir = self._folder / f"data-{next(self._numbers)}"
        self.ingest_into(data_dir)
        return data_dir

    def ingest_into(self, data_dir: Path) -> None:
        """Ingest every document into a data folder, new or not; a failure ends the benchmark."""
        index = Index.open(data_dir)
        try:
            stores = {store.name: store for store in index.list_stores(tenant="default")}
            store = stores.get("bench") or index.create_store(
                "bench",
                tenant="default",
                embedder=EMBEDDER,
                embedder_fingerprint=self.embedder.fingerprint,
                dimension=self.embedder.dimension,
                chunking=CHUNKING,
            )
            pipeline = Pipeline(index, self.embedder, ParseLimits())
            outcomes = pipeline.ingest(store.id, self.sources)
            pipeline.close()
            assert not [o for o in outcomes if o.status == "failed"], outcomes
        finally:
            index.close()

    def encode(self, texts: Sequence[str]) -> None:
        """Do what anybody would: encode the same chunks with sentence-transformers alone."""
        self.bare.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
        )


def measure(quick: bool) -> Measured:
    """Ingest and encode in turns on fresh data folders; medians."""
    corpus = xquad.read("en")
    num_documents = QUICK_DOCUMENTS if quick else len(corpus.documents)
    documents = xquad.sample(corpus, num_documents, 0, SEED).documents
    rounds = 2 if quick else 5
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), documents, ModelCache(models_folder()))
        data_dir = bench.ingest()
        texts = list(bench.heard)
        bench.encode(texts[:BATCH])
        say(f"{len(documents)} documents, {len(texts)} chunks; {rounds} rounds in turns")
        paired = interleaved(bench.ingest, lambda: bench.encode(texts), rounds)
        bench.heard.clear()
        bench.ingest_into(data_dir)
        raw_bytes = len(texts) * bench.embedder.dimension * 4 + bench.num_text_bytes
        figures = _figures(paired, data_dir, raw_bytes, len(bench.heard), len(texts))
    settings = {
        "embedder": EMBEDDER,
        "corpus": "XQuAD English, each context a document",
        "num_documents": len(documents),
        "rounds": rounds,
        "threads": 1,
        "chunking": CHUNKING,
    }
    return Measured(figures, settings, SEED)


def _figures(
    paired: Paired, data_dir: Path, raw_bytes: int, reembedded: int, num_chunks: int
) -> dict[str, object]:
    disk = sum(path.stat().st_size for path in data_dir.rglob("*") if path.is_file())
    return {
        "ratio_to_bare_encode": round(paired.speed, 3),
        "cpu_ratio_to_bare_encode": round(paired.cpu_speed, 3),
        "ingest_s": round(paired.ours_s, 2),
        "bare_encode_s": round(paired.theirs_s, 2),
        "num_chunks": num_chunks,
        "bytes_ratio": round(disk / raw_bytes, 3),
        "disk_bytes": disk,
        "raw_bytes": raw_bytes,
        "reembedded_unchanged": reembedded,
    }
