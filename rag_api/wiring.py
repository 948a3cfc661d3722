"""Builds every part of Graft from the settings, each once and only when it is first needed.

Settings go in; the parts (index, models, engine, retriever, pipeline, services) come out.
The heavy packages are imported here and late, so that `graft search` never loads the language
model and `graft text` loads no model at all.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from index import Index
from index.errors import ConfigError, FingerprintMismatch, ModelError
from index.records import Progress, StoreRecord, no_progress
from rag_api import processes
from rag_api.settings import Settings

if TYPE_CHECKING:
    from backbone import Embedder, LanguageModel, ModelCache
    from decoding import Engine
    from ingestion import Pipeline
    from rag_api.services.answers import Answers
    from rag_api.services.documents import Documents
    from rag_api.services.files import Files
    from rag_api.services.jobs import Jobs
    from rag_api.services.memory import Memory
    from rag_api.services.searches import Searches
    from rag_api.services.stores import Stores
    from retriever import Reranker, Retriever

Part = TypeVar("Part")


class Graft:
    """The parts of one process. Thread-safe; close it when done.

    `can_pull` says whether a missing model may be fetched (ingestion) or is an error (questions).
    """

    def __init__(
        self, settings: Settings, *, can_pull: bool = False, progress: Progress = no_progress
    ) -> None:
        self.settings = settings
        self.can_pull = can_pull
        self.progress = progress
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._parts: dict[str, Any] = {}

    def _once(self, name: str, build: Callable[[], Part]) -> Part:
        with self._locks[name]:  # one a part: a search need not wait for the language model
            if name not in self._parts:
                self._parts[name] = build()
            return cast(Part, self._parts[name])

    def has(self, name: str) -> bool:
        """Say whether a part has been built (readiness asks, and must build nothing)."""
        return name in self._parts

    def close(self) -> None:
        """Stop the engine's thread, end the parser's child, close the catalogue."""
        if self.has("engine"):
            self.engine.close()
        if self.has("pipeline"):
            self.pipeline.close()
        if self.has("index"):
            self.index.close()
        self._parts.clear()

    # ---- storage and models

    @property
    def index(self) -> Index:
        """The data folder."""
        return self._once("index", lambda: Index.open(self.settings.data_dir))

    @property
    def models(self) -> ModelCache:
        """The folder of models."""
        from backbone import ModelCache

        return self._once("models", lambda: ModelCache(self.settings.models_dir))

    def require_model(self, source: str) -> None:
        """Fetch a model that is missing where that is allowed; else say how to get it."""
        if self.models.info(source).is_pulled:
            return
        if not self.can_pull:
            raise ModelError(f"the model {source!r} is not here; run `graft models pull {source}`")
        self.models.pull(source, progress=self.progress)

    @property
    def embedder(self) -> Embedder:
        """The embedder of the settings."""
        return self._embedder(self.settings.embedder_source)

    def _embedder(self, source: str) -> Embedder:
        from backbone import Embedder

        def build() -> Embedder:
            self.require_model(source)
            threads = processes.num_threads(self.settings)
            return Embedder.load(source, self.models, threads=threads)

        return self._once(f"embedder {source}", build)

    def embedder_of(self, store: StoreRecord) -> Embedder:
        """Load the embedder that made a store's vectors, whatever the settings say today."""
        embedder = self._embedder(store.embedder)
        if embedder.fingerprint != store.embedder_fingerprint:
            raise FingerprintMismatch(
                f"store {store.name!r} was made by another version of {store.embedder!r} than the "
                f"one that is here; run `graft reindex --store {store.name}`"
            )
        return embedder

    def check_embedder(self, store: StoreRecord) -> Embedder:
        """Give the embedder of the settings if a store's vectors are its work; else refuse."""
        embedder = self.embedder
        if embedder.fingerprint != store.embedder_fingerprint:
            raise FingerprintMismatch(
                f"store {store.name!r} was made by the embedder {store.embedder!r} "
                f"({store.dimension} dimensions), and the settings name "
                f"{self.settings.embedder_source!r} ({embedder.dimension}); run "
                f"`graft reindex --store {store.name}`, or set GRAFT_EMBEDDER={store.embedder}. "
                "Until then the store answers as before, and takes no new documents"
            )
        return embedder

    @property
    def model(self) -> LanguageModel:
        """The frozen language model."""
        from backbone import LanguageModel

        def build() -> LanguageModel:
            self.require_model(self.settings.backbone)
            threads = processes.num_threads(self.settings)
            return LanguageModel.load(self.settings.backbone, self.models, threads=threads)

        return self._once("model", build)

    @property
    def engine(self) -> Engine:
        """The engine over the language model."""
        from decoding import Engine

        return self._once("engine", lambda: Engine(self.model))

    @property
    def reranker(self) -> Reranker | None:
        """The configured reranker; one that cannot be loaded is an error, never left out."""
        return self._once("reranker", self._build_reranker)

    def _build_reranker(self) -> Reranker | None:
        name = self.settings.reranker
        if name is None:
            return None
        from reward import CrossEncoderScorer, QueryLikelihoodScorer

        if name == "query-likelihood":
            return QueryLikelihoodScorer(self.model)
        kind, _, source = name.partition(":")
        if kind != "cross-encoder" or not source:
            raise ConfigError(
                f"reranker: {name!r} is neither 'query-likelihood' nor 'cross-encoder:SOURCE'"
            )
        from backbone import load_cross_encoder

        try:
            self.require_model(source)
            return CrossEncoderScorer(load_cross_encoder(source, self.models))
        except ModelError as error:
            raise ConfigError(f"reranker {name!r} cannot be loaded: {error.message}") from error

    # ---- flows

    def retriever_of(self, store: StoreRecord) -> Retriever:
        """The retriever for stores made by this store's embedder."""
        from retriever import Retriever

        embedder = self.embedder_of(store)
        return self._once(
            f"retriever {embedder.fingerprint}",
            lambda: Retriever(self.index, embedder, reranker=self.reranker),
        )

    @property
    def pipeline(self) -> Pipeline:
        """The way in, with the embedder of the settings."""
        from ingestion import ParseLimits, Pipeline

        limits = self.settings.limits
        return self._once(
            "pipeline",
            lambda: Pipeline(
                self.index,
                self.embedder,
                ParseLimits(
                    memory_bytes=limits.parse_memory_bytes,
                    cpu_s=limits.parse_cpu_s,
                    wall_s=limits.parse_wall_s,
                    output_chars=limits.parse_output_chars,
                ),
            ),
        )

    # ---- services

    @property
    def stores(self) -> Stores:
        """Vector stores."""
        from rag_api.services.stores import Stores

        return self._once("stores", lambda: Stores(self))

    @property
    def files(self) -> Files:
        """Uploaded files."""
        from rag_api.services.files import Files

        return self._once("files", lambda: Files(self))

    @property
    def documents(self) -> Documents:
        """Documents of stores: in, listed, read, out."""
        from rag_api.services.documents import Documents

        return self._once("documents", lambda: Documents(self))

    @property
    def jobs(self) -> Jobs:
        """Work that a worker does."""
        from rag_api.services.jobs import Jobs

        return self._once("jobs", lambda: Jobs(self))

    @property
    def memory(self) -> Memory:
        """Token memory."""
        from rag_api.services.memory import Memory

        return self._once("memory", lambda: Memory(self))

    @property
    def searches(self) -> Searches:
        """Search."""
        from rag_api.services.searches import Searches

        return self._once("searches", lambda: Searches(self))

    @property
    def answers(self) -> Answers:
        """Questions and conversations."""
        from rag_api.services.answers import Answers

        return self._once("answers", lambda: Answers(self))
