"""Search: a query and stores in, passages out, with the settings' defaults filled in.

Knows nothing of prompts, answers or HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from index.errors import InvalidInput
from index.records import Passage, StoreRecord
from rag_api.services.questions import SearchWish

if TYPE_CHECKING:
    from rag_api.wiring import Graft
    from retriever import RetrievalSettings


class Searches:
    """Searches over one tenant's stores."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft

    def search(
        self, query: str, stores: Sequence[str], *, tenant: str, wish: SearchWish
    ) -> list[Passage]:
        """Search stores given by name or id; all must be made by one embedder."""
        limit = self._graft.settings.limits.query_chars
        if not query.strip():
            raise InvalidInput("the query is empty", param="query")
        if len(query) > limit:
            raise InvalidInput(
                f"the query has {len(query)} characters and may have {limit}", param="query"
            )
        found = [self._graft.stores.get(store, tenant=tenant) for store in dict.fromkeys(stores)]
        if not found:
            raise InvalidInput("no store is named to search in", param="vector_store_ids")
        self._refuse_mixed(found)
        retriever = self._graft.retriever_of(found[0])
        return retriever.search(query, [store.id for store in found], self.resolve(wish))

    def resolve(self, wish: SearchWish) -> RetrievalSettings:
        """Fill what the caller left open from the settings."""
        from retriever import RetrievalSettings

        defaults = self._graft.settings.retrieval
        k = wish.k if wish.k is not None else defaults.k
        rerank = self._graft.reranker is not None if wish.rerank is None else wish.rerank
        return RetrievalSettings(
            k=k,
            candidates=max(k, _pick(wish.candidates, defaults.candidates)),
            mode=wish.mode or defaults.mode,
            rrf_k=defaults.rrf_k,
            dense_weight=defaults.dense_weight,
            min_dense=_first(wish.min_dense, defaults.min_dense),
            min_lexical=_first(wish.min_lexical, defaults.min_lexical),
            min_rerank=_first(wish.min_rerank, defaults.min_rerank),
            mmr_lambda=_first(wish.mmr_lambda, defaults.mmr_lambda),
            where=wish.where,
            rerank=rerank,
        )

    @staticmethod
    def _refuse_mixed(stores: Sequence[StoreRecord]) -> None:
        made_by = {store.embedder_fingerprint for store in stores}
        if len(made_by) > 1:
            names = ", ".join(f"{store.name!r} by {store.embedder!r}" for store in stores)
            raise InvalidInput(
                f"the stores were made by different embedders ({names}); search them one by one",
                param="vector_store_ids",
            )


def _pick(wanted: int | None, default: int) -> int:
    return default if wanted is None else wanted


def _first(wanted: float | None, default: float | None) -> float | None:
    return default if wanted is None else wanted
