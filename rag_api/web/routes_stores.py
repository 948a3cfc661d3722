"""`/v1/vector_stores`: create, list, update, delete, search."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from index.errors import InvalidInput
from index.records import Passage, StoreRecord
from rag_api.services.jobs import Wanted
from rag_api.services.questions import SearchWish
from rag_api.settings import ChunkingPart
from rag_api.web import pages, views
from rag_api.web.dependencies import After, GraftPart, Limit, Order, Tenant
from rag_api.web.schemas import ChunkingStrategy, StoreCreate, StoreSearch, StoreUpdate
from rag_api.wiring import Graft

router = APIRouter(prefix="/v1/vector_stores", tags=["vector stores"])


@router.post("")
def create_store(body: StoreCreate, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Create a vector store; `file_ids` are attached at once, and an unknown one refuses all."""
    if body.description is not None:
        raise InvalidInput("'description' is not supported; use metadata", param="description")
    refuse_unknown_files(graft, body.file_ids, tenant)
    store = graft.stores.create(
        body.name or unnamed(),
        tenant=tenant,
        chunking=chunk_sizes(graft, body.chunking_strategy),
        metadata=body.metadata,
    )
    if body.file_ids:
        wanted = [Wanted(file_id, {}) for file_id in body.file_ids]
        for _, error in graft.jobs.attach_many(store, wanted, tenant=tenant).refused:
            graft.stores.delete(store.id, tenant=tenant)  # a file was deleted just now
            raise error
    return shown(graft, store, tenant)


@router.get("")
def list_stores(
    graft: GraftPart, tenant: Tenant, after: After = None, limit: Limit = 20, order: Order = "desc"
) -> dict[str, Any]:
    """List the vector stores, newest first."""
    items = [shown(graft, store, tenant) for store in graft.stores.list(tenant=tenant)]
    return pages.cut(items, after=after, limit=limit, order=order)


@router.get("/{store_id}")
def get_store(store_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Show one vector store."""
    return shown(graft, graft.stores.get(store_id, tenant=tenant), tenant)


@router.post("/{store_id}")
def update_store(
    store_id: str, body: StoreUpdate, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Rename a vector store or replace its metadata."""
    store = graft.stores.update(store_id, tenant=tenant, name=body.name, metadata=body.metadata)
    return shown(graft, store, tenant)


@router.delete("/{store_id}")
def delete_store(store_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Delete a vector store with its documents; the files stay."""
    return views.deleted(graft.stores.delete(store_id, tenant=tenant).id, "vector_store")


@router.post("/{store_id}/search")
def search_store(
    store_id: str, body: StoreSearch, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Search one vector store. Each result carries its checked span under `graft`."""
    if body.rewrite_query:
        raise InvalidInput("'rewrite_query' is not supported; send false", param="rewrite_query")
    store = graft.stores.get(store_id, tenant=tenant)
    queries = [body.query] if isinstance(body.query, str) else body.query
    found = search_all(graft, store, queries, tenant, wish_of(body))
    return views.search_page(queries, [(p, file_id_of(graft, p)) for p in found])


def search_all(
    graft: Graft, store: StoreRecord, queries: list[str], tenant: str, wish: SearchWish
) -> list[Passage]:
    """Search for every query and take turns among their results, each passage once."""
    if not queries:
        raise InvalidInput("the query is empty", param="query")
    lists = [graft.searches.search(q, [store.id], tenant=tenant, wish=wish) for q in queries]
    taken: dict[int, Passage] = {}
    for rank in range(max(len(found) for found in lists)):
        for found in lists:
            if rank < len(found):
                taken.setdefault(found[rank].chunk_id, found[rank])
    return list(taken.values())[: wish.k]


def wish_of(body: StoreSearch) -> SearchWish:
    """Read what a search body asks for."""
    ranking = body.ranking_options
    if ranking is None:
        return SearchWish(k=body.max_num_results, where=body.filters)
    if ranking.ranker not in (None, "auto", "none"):
        raise InvalidInput(
            f"ranker is 'auto' or 'none' and not {ranking.ranker!r}", param="ranking_options.ranker"
        )
    threshold = ranking.score_threshold
    return SearchWish(
        k=body.max_num_results,
        where=body.filters,
        mode=ranking.mode,
        min_dense=threshold if ranking.min_dense is None else ranking.min_dense,
        min_lexical=ranking.min_lexical,
        min_rerank=ranking.min_rerank,
        mmr_lambda=ranking.mmr_lambda,
        rerank=False if ranking.ranker == "none" else None,
    )


def chunk_sizes(graft: Graft, strategy: ChunkingStrategy | None) -> ChunkingPart | None:
    """Read a chunking strategy; None follows the settings."""
    if strategy is None or (strategy.static is None and strategy.splitter is None):
        return None
    defaults = graft.settings.chunking
    size, overlap = defaults.size, defaults.overlap
    if strategy.static is not None:
        size = strategy.static.max_chunk_size_tokens
        overlap = strategy.static.chunk_overlap_tokens
    if overlap >= size:
        raise InvalidInput(
            f"chunk_overlap_tokens ({overlap}) must be below max_chunk_size_tokens ({size})",
            param="chunking_strategy",
        )
    return ChunkingPart(size=size, overlap=overlap, splitter=strategy.splitter or defaults.splitter)


def refuse_unknown_files(graft: Graft, file_ids: list[str], tenant: str) -> None:
    """Refuse files that cannot be attached together: an unknown one, or too many."""
    limit = graft.settings.limits.batch_items
    if len(file_ids) > limit:
        raise InvalidInput(f"at most {limit} files at once; {len(file_ids)} came", param="file_ids")
    for file_id in dict.fromkeys(file_ids):
        graft.files.get(file_id, tenant=tenant)


def file_id_of(graft: Graft, passage: Passage) -> str | None:
    """Find the file behind a passage."""
    document = graft.index.find_document(passage.store_id, passage.document)
    return document.file_id if document is not None else None


def shown(graft: Graft, store: StoreRecord, tenant: str) -> dict[str, Any]:
    """Show a store with its files counted."""
    return views.store(store, graft.jobs.stored_files(store, tenant=tenant))


def unnamed() -> str:
    """Name a store that came without a name."""
    return f"store-{views.new_id()}"
