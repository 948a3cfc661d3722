"""A LangChain retriever over Graft's stores: a query in, LangChain Documents out.

Knows nothing of how passages are found; it hands the query to a `Retriever`.
"""

from __future__ import annotations

import asyncio

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, SkipValidation

from index.records import Passage
from retriever.searching import Retriever
from retriever.settings import RetrievalSettings


class GraftRetriever(BaseRetriever):
    """Drop-in retriever: `GraftRetriever(retriever=…, stores=["docs-store-id"])`.

    Each Document's `page_content` is the passage's words; its metadata names document, version,
    start, end (code points), store, page, headings, context and scores.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    retriever: SkipValidation[Retriever]
    stores: list[str] = Field(min_length=1)
    settings: RetrievalSettings = RetrievalSettings()

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        found = self.retriever.search(query, self.stores, self.settings)
        return [to_document(passage) for passage in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        """Search in a thread, so that the event loop never computes."""
        found = await asyncio.to_thread(self.retriever.search, query, self.stores, self.settings)
        return [to_document(passage) for passage in found]


def to_document(passage: Passage) -> Document:
    """Turn a passage into a LangChain Document; `id` names store and chunk."""
    return Document(
        page_content=passage.text,
        id=f"{passage.store_id}:{passage.chunk_id}",
        metadata={
            "document": passage.document,
            "version": passage.version,
            "start": passage.start,
            "end": passage.end,
            "store": passage.store_id,
            "page": passage.page,
            "headings": list(passage.headings),
            "context": passage.context,
            "scores": dict(passage.scores),
            "attributes": dict(passage.attributes),
        },
    )
