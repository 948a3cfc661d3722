"""Token memory: which documents lack it, building it document by document, mounting it.

Stores go in; keys in the index, or a shaper for the engine, come out. Each document is a commit
of its own, so that a build that was stopped goes on where it ended. Knows nothing of HTTP.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from index.errors import Cancelled, InvalidInput
from index.records import (
    AttributeFilter,
    DocumentRecord,
    MemoryView,
    Progress,
    StoreRecord,
    no_progress,
)
from rag_api.services.memory_views import merged, restricted
from rag_api.services.questions import KnnWish

if TYPE_CHECKING:
    from decoding import Shaper
    from knn_lm import KnnSettings, TokenMemory
    from rag_api.wiring import Graft

MOUNTED_BYTES = 4 << 30
"""Mounts that were not used last go above this; the newest one stays whatever its size."""
PROBE_CHARS = 2000
"""Enough text to fill one window when the speed of this machine is measured."""


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """How much of a store the token memory of the present backbone holds."""

    store: str
    backbone: str
    num_documents: int
    num_ready: int
    pending: tuple[str, ...]
    """Names of the documents without token keys."""


@dataclass(frozen=True, slots=True)
class Built:
    """What one build did."""

    num_documents: int
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a build would read, and at which rate (0.0 where it was not worth measuring)."""

    num_tokens: int
    tokens_per_s: float

    @property
    def seconds(self) -> float:
        """How long it would take."""
        return self.num_tokens / self.tokens_per_s if self.tokens_per_s else 0.0


@dataclass(frozen=True, slots=True)
class _Mount:
    """The searchable memory of a selection of stores at these generations."""

    generations: tuple[int, ...]
    memory: TokenMemory
    num_bytes: int


class Memory:
    """The token memories of a data folder under the backbone of the settings."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft
        self._lock = threading.Lock()
        self._mounted: OrderedDict[tuple[str, ...], _Mount] = OrderedDict()

    def status(self, store: StoreRecord) -> MemoryStatus:
        """Count the documents with and without token keys."""
        model = self._graft.model
        pending = self._graft.index.pending_memory(store.id, model.fingerprint)
        num_documents = len(self._graft.index.list_documents(store.id))
        return MemoryStatus(
            store=store.name,
            backbone=model.name,
            num_documents=num_documents,
            num_ready=num_documents - len(pending),
            pending=tuple(document.name for document in pending),
        )

    def pending_tokens(self, store: StoreRecord) -> int:
        """Count the tokens that a build would have to read."""
        return sum(len(self._graft.model.encode(text)) for text in self._pending_texts(store))

    def estimate(self, store: StoreRecord) -> Estimate:
        """Count the pending tokens, and measure this machine's rate where there are many."""
        num_tokens = self.pending_tokens(store)
        if num_tokens <= self._graft.settings.memory.auto_limit_tokens:
            return Estimate(num_tokens, 0.0)
        from knn_lm import build_arrays

        text = next(self._pending_texts(store))[:PROBE_CHARS]
        model = self._graft.model
        build_arrays(model, text[:200], window=self._window)  # the first call warms up
        started = time.perf_counter()
        arrays = build_arrays(model, text, window=self._window)
        return Estimate(num_tokens, len(arrays.tokens) / (time.perf_counter() - started))

    def _pending_texts(self, store: StoreRecord) -> Iterator[str]:
        pending = self._graft.index.pending_memory(store.id, self._graft.model.fingerprint)
        return (self._graft.index.text_of(document) for document in pending)

    def build(
        self,
        store: StoreRecord,
        *,
        progress: Progress = no_progress,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Built:
        """Make the keys of every pending document. Raises Cancelled between two windows."""
        fingerprint = self._graft.model.fingerprint  # loaded here: it is no part of the rate
        started = time.perf_counter()
        pending = self._graft.index.pending_memory(store.id, fingerprint)
        total = sum(document.num_chars for document in pending)
        done = num_tokens = num_documents = 0
        progress("token keys", 0, total, "characters")
        for document in pending:
            num_tokens += self._build_one(document, done, total, progress, cancelled)
            done += document.num_chars
            num_documents += 1
            progress("token keys", done, total, "characters")
        return Built(num_documents, num_tokens, time.perf_counter() - started)

    def _build_one(
        self,
        document: DocumentRecord,
        before: int,
        of_all: int,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> int:
        from knn_lm import build_arrays

        if cancelled():
            raise Cancelled("the build was cancelled; what is done is kept")

        def inner(stage: str, done: int, total: int, unit: str) -> None:
            share = done / total if total else 1.0
            progress("token keys", before + round(share * document.num_chars), of_all, "characters")

        model = self._graft.model
        text = self._graft.index.text_of(document)
        arrays = build_arrays(model, text, window=self._window, progress=inner, cancelled=cancelled)
        self._graft.index.commit_memory(document, model.fingerprint, arrays)
        return len(arrays.tokens)

    @property
    def _window(self) -> int:
        return self._graft.settings.memory.window

    # ---- at decode time

    def shaper(
        self, stores: Sequence[StoreRecord], wish: KnnWish, where: AttributeFilter | None
    ) -> tuple[Shaper, tuple[str, ...]]:
        """Mount the stores' memories for one request; the second value are warnings."""
        from knn_lm import KnnShaper

        settings = self._settings(wish)
        fingerprint = self._graft.model.fingerprint
        views = [self._graft.index.memory(store.id, fingerprint) for store in stores]
        warnings = tuple(
            _lacking(store, view) for store, view in zip(stores, views, strict=True) if view.pending
        )
        memory = self._mount(stores, views, where)
        return KnnShaper(memory, settings), warnings

    def _mount(
        self,
        stores: Sequence[StoreRecord],
        views: Sequence[MemoryView],
        where: AttributeFilter | None,
    ) -> TokenMemory:
        """Give the searchable memory of these views, kept until a generation of them changes.

        The mounts used last are kept, up to MOUNTED_BYTES of them.
        """
        if where is not None:
            wanted = {pair for store in stores for pair in self._matching(store, where)}
            return self._searchable(restricted(merged(views), wanted))
        selection = tuple(store.id for store in stores)
        generations = tuple(view.generation for view in views)
        with self._lock:
            held = self._mounted.get(selection)
            if held is None or held.generations != generations:
                self._drop_outdated(dict(zip(selection, generations, strict=True)))
                view = merged(views)
                held = _Mount(generations, self._searchable(view), _num_bytes(view))
                self._mounted[selection] = held
            self._mounted.move_to_end(selection)
            while len(self._mounted) > 1 and self._num_mounted_bytes() > MOUNTED_BYTES:
                self._mounted.popitem(last=False)
            return held.memory

    def _num_mounted_bytes(self) -> int:
        return sum(mount.num_bytes for mount in self._mounted.values())

    def _drop_outdated(self, newest: Mapping[str, int]) -> None:
        """Drop mounts of older generations than these, and of stores that are gone."""
        known = self._graft.index.known_stores({i for key in self._mounted for i in key})
        for selection, mount in list(self._mounted.items()):
            pairs = zip(selection, mount.generations, strict=True)
            if any(i not in known or held < newest.get(i, held) for i, held in pairs):
                del self._mounted[selection]

    def forget(self, store_id: str) -> None:
        """Drop every mount that a deleted store is part of."""
        with self._lock:
            for selection in [key for key in self._mounted if store_id in key]:
                del self._mounted[selection]

    def _searchable(self, view: MemoryView) -> TokenMemory:
        from knn_lm import TokenMemory

        model = self._graft.model
        return TokenMemory(view, fingerprint=model.fingerprint, key_dim=model.key_dim)

    def _matching(self, store: StoreRecord, where: AttributeFilter) -> set[tuple[str, str]]:
        """Name the documents that a filter matches."""
        with self._graft.index.view(store.id) as view:
            return {(store.id, document.name) for document in view.documents(where)}

    def _settings(self, wish: KnnWish) -> KnnSettings:
        from knn_lm import KnnSettings

        caps = self._graft.settings.knn
        lam = caps.lam if wish.lam is None else wish.lam
        k = caps.k if wish.k is None else wish.k
        temperature = caps.temperature if wish.temperature is None else wish.temperature
        for name, value, cap in (
            ("lambda", lam, caps.max_lambda),
            ("k", k, caps.max_k),
            ("temperature", temperature, caps.max_temperature),
        ):
            if value > cap:
                raise InvalidInput(
                    f"knn.{name} may be {cap} here and is {value}", param=f"knn.{name}"
                )
        return KnnSettings(lam=lam, k=k, temperature=temperature)


def _lacking(store: StoreRecord, view: MemoryView) -> str:
    return (
        f"{view.pending} document(s) of store {store.name!r} have no token keys for this backbone "
        f"yet and take no part in the token memory; run `graft memory build --store {store.name}`"
    )


def _num_bytes(view: MemoryView) -> int:
    """Give about what a mount of a view takes: the keys as float16 and as float32, the columns."""
    return 6 * view.keys.size + 4 * 8 * len(view.values)
