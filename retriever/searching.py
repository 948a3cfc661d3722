"""A question and stores in, ranked passages out: dense, lexical and fused search.

Collaborators: an `Index` (hits and words), an `Embedder` (the question's vector), optionally a
reranker. Knows nothing of prompts, of answers or of the web.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import numpy as np

from index import Index, StoreView
from index.errors import ConfigError, FingerprintMismatch, ModelError
from index.records import FloatArray, Passage
from retriever import ranking
from retriever.settings import RetrievalSettings

if TYPE_CHECKING:
    from backbone import Embedder  # torch stays out until a model is loaded

Key = tuple[int, int]
"""(position of the store in the request, chunk id)."""
Scores = dict[Key, dict[str, float]]


class Reranker(Protocol):
    """Values passages for a question; greater is better, any scale."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, passages: Sequence[str]) -> list[float]: ...


class Retriever:
    """Searches stores that one embedder made."""

    def __init__(
        self, index: Index, embedder: Embedder, *, reranker: Reranker | None = None
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._reranker = reranker

    def search(
        self, query: str, store_ids: Sequence[str], settings: RetrievalSettings | None = None
    ) -> list[Passage]:
        """Find at most `settings.k` passages of the stores, best first.

        Filters act before top-k. Each passage's `scores` names what valued it: `dense` (inner
        product), `lexical` (BM25), `fused` (hybrid mode), `rerank`. Results, words and vectors of
        one store come from one snapshot. Raises FingerprintMismatch where a store was made by
        another embedder, ConfigError where a reranker is asked for and none is configured.
        """
        asked = settings or RetrievalSettings()
        if asked.rerank and self._reranker is None:
            raise ConfigError(
                "rerank was asked for and no reranker is configured; name one in the settings "
                "(`reranker`) or ask without rerank"
            )
        if not query.strip():
            return []
        vector = None if asked.mode == "lexical" else self._embed(query)
        with ExitStack() as stack:
            views = [stack.enter_context(self._index.view(store)) for store in store_ids]
            return self._search_views(query, vector, views, asked)

    def _embed(self, query: str) -> FloatArray:
        vector: FloatArray = self._embedder.encode_queries([query])[0]
        return vector

    def _search_views(
        self,
        query: str,
        vector: FloatArray | None,
        views: Sequence[StoreView],
        asked: RetrievalSettings,
    ) -> list[Passage]:
        scores: Scores = {}
        lists: list[ranking.Scored[Key]] = []
        if vector is not None:
            lists.append(self._dense(vector, views, asked, scores))
        if asked.mode != "dense":
            lists.append(self._lexical(query, views, asked, scores))
        ranked = self._fuse(lists, asked, scores)
        if asked.rerank:
            ranked = self._rerank(query, ranked, views, asked, scores)
        if asked.mmr_lambda is not None:
            ranked = _diversify(ranked, views, asked.mmr_lambda, asked.k)
        return _read(ranked[: asked.k], views, scores)

    def _dense(
        self,
        vector: FloatArray,
        views: Sequence[StoreView],
        asked: RetrievalSettings,
        scores: Scores,
    ) -> ranking.Scored[Key]:
        found: ranking.Scored[Key] = []
        for position, view in enumerate(views):
            self._check_fingerprint(view)
            hits = view.dense(vector, k=_depth(asked), where=asked.where)
            found.extend(((position, hit.chunk_id), hit.score) for hit in hits)
        return _note(found, "dense", asked.min_dense, asked, scores)

    def _lexical(
        self, query: str, views: Sequence[StoreView], asked: RetrievalSettings, scores: Scores
    ) -> ranking.Scored[Key]:
        found: ranking.Scored[Key] = []
        for position, view in enumerate(views):
            hits = view.lexical(query, k=_depth(asked), where=asked.where)
            found.extend(((position, hit.chunk_id), hit.score) for hit in hits)
        return _note(found, "lexical", asked.min_lexical, asked, scores)

    def _fuse(
        self, lists: Sequence[ranking.Scored[Key]], asked: RetrievalSettings, scores: Scores
    ) -> ranking.Scored[Key]:
        if len(lists) == 1:
            return lists[0]
        weights = (asked.dense_weight, 1.0 - asked.dense_weight)
        fused = ranking.fuse(lists, weights=weights, rrf_k=asked.rrf_k)
        for key, score in fused:
            scores[key]["fused"] = score
        return fused

    def _rerank(
        self,
        query: str,
        ranked: ranking.Scored[Key],
        views: Sequence[StoreView],
        asked: RetrievalSettings,
        scores: Scores,
    ) -> ranking.Scored[Key]:
        reranker = self._reranker
        if reranker is None:
            raise ConfigError("no reranker is configured; name one in the settings (`reranker`)")
        head = ranked[: max(asked.rerank_depth, asked.k)]
        passages = _read(head, views, scores)
        words = ["\n".join(filter(None, (p.context, p.text))) for p in passages]
        values = reranker.score(query, words) if words else []
        if len(values) != len(words) or not np.isfinite(values).all():
            raise ModelError(
                f"reranker {reranker.name!r} was given {len(words)} passages and gave "
                f"{len(values)} scores, or some that are not finite"
            )
        for (key, _), value in zip(head, values, strict=True):
            scores[key]["rerank"] = float(value)
        reranked = [(key, scores[key]["rerank"]) for key, _ in head]
        return ranking.best(ranking.above(reranked, asked.min_rerank), limit=len(reranked))

    def _check_fingerprint(self, view: StoreView) -> None:
        store, embedder = view.store, self._embedder
        if store.embedder_fingerprint != embedder.fingerprint:
            raise FingerprintMismatch(
                f"store {store.name!r} holds vectors of {store.embedder!r} "
                f"({store.embedder_fingerprint[:12]}), and the embedder loaded is "
                f"{embedder.name!r} ({embedder.fingerprint[:12]}); load {store.embedder!r}, or run "
                f"`graft reindex --store {store.name}`"
            )


def _depth(asked: RetrievalSettings) -> int:
    return max(asked.candidates, asked.k)


def _note(
    found: ranking.Scored[Key],
    kind: str,
    minimum: float | None,
    asked: RetrievalSettings,
    scores: Scores,
) -> ranking.Scored[Key]:
    """Merge the stores' hits of one kind, apply its threshold, and write the scores down."""
    kept = ranking.best(ranking.above(found, minimum), limit=_depth(asked))
    for key, score in kept:
        scores.setdefault(key, {})[kind] = score
    return kept


def _by_store(keys: Sequence[Key], num_views: int) -> list[list[int]]:
    chunks: list[list[int]] = [[] for _ in range(num_views)]
    for position, chunk_id in keys:
        chunks[position].append(chunk_id)
    return chunks


def _diversify(
    ranked: ranking.Scored[Key], views: Sequence[StoreView], lam: float, k: int
) -> ranking.Scored[Key]:
    rows: dict[Key, FloatArray] = {}
    for position, chunk_ids in enumerate(_by_store([key for key, _ in ranked], len(views))):
        if chunk_ids:
            vectors = views[position].vectors(chunk_ids)
            rows.update(((position, c), v) for c, v in zip(chunk_ids, vectors, strict=True))
    if not rows:
        return []
    stacked = np.stack([rows[key] for key, _ in ranked])
    order = ranking.diversify([score for _, score in ranked], stacked, lam=lam, k=k)
    return [ranked[i] for i in order]


def _read(ranked: ranking.Scored[Key], views: Sequence[StoreView], scores: Scores) -> list[Passage]:
    """Fetch words, in the order of `ranked`."""
    read: dict[Key, Passage] = {}
    for position, chunk_ids in enumerate(_by_store([key for key, _ in ranked], len(views))):
        if chunk_ids:
            known = {chunk_id: scores[position, chunk_id] for chunk_id in chunk_ids}
            for passage in views[position].passages(chunk_ids, known):
                read[position, passage.chunk_id] = passage
    return [dataclasses.replace(read[key], scores=dict(scores[key])) for key, _ in ranked]
