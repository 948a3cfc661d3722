"""Graft's splitter as LangChain's `TextSplitter`: drops into any LangChain pipeline.

`create_documents` and `split_documents` put the right `start_index` into each document's metadata,
also where a text repeats itself. Knows nothing of stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.documents import Document
from langchain_text_splitters import TextSplitter

from index.errors import InvalidInput
from index.records import ParsedText, TextFormat
from ingestion.chunking import OVERLAP, SIZE, ChunkSettings, split
from ingestion.tokenmap import Tokenizing
from ingestion.words import WordCounting


class GraftTextSplitter(TextSplitter):
    """Splits along the text's structure, sized in the tokens of `tokenizing` (an embedder).

    >>> splitter = GraftTextSplitter(chunk_size=1, chunk_overlap=0)
    >>> [d.metadata["start_index"] for d in splitter.create_documents(["chunk chunk"])]
    [0, 6]
    """

    def __init__(
        self,
        tokenizing: Tokenizing | None = None,
        *,
        chunk_size: int = SIZE,
        chunk_overlap: int = OVERLAP,
        text_format: TextFormat = "markdown",
        add_headings: bool = False,
        **kwargs: Any,
    ) -> None:
        """Set sizes; `add_headings` puts the path of headings into the metadata.

        Raises InvalidInput for an overlap that is not smaller than the size (P4), and for options
        of `TextSplitter` that have no meaning here.
        """
        if kwargs.keys() - {"add_start_index"}:
            raise InvalidInput(
                f"options {sorted(kwargs)!r} have no meaning for GraftTextSplitter: it counts in "
                "the tokens of `tokenizing`, and its chunks are spans of the text"
            )
        self._settings = ChunkSettings(chunk_size, chunk_overlap)
        self._tokenizing = tokenizing if tokenizing is not None else WordCounting()
        self._format: TextFormat = text_format
        self._add_headings = add_headings
        super().__init__(
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            length_function=self._tokenizing.count_tokens,
            add_start_index=True,
        )

    def split_text(self, text: str) -> list[str]:
        """Give the chunks' words."""
        return [document.page_content for document in self._documents(text, {})]

    def create_documents(
        self, texts: list[str], metadatas: list[dict[Any, Any]] | None = None
    ) -> list[Document]:
        """Split texts; each document's `start_index` satisfies `text[start:].startswith(words)`."""
        given: Iterable[dict[Any, Any]] = metadatas or [{} for _ in texts]
        return [
            document
            for text, metadata in zip(texts, given, strict=True)
            for document in self._documents(text, metadata)
        ]

    def _documents(self, text: str, metadata: dict[Any, Any]) -> list[Document]:
        parsed = ParsedText(text, self._format, "text/plain")
        return [
            Document(
                page_content=text[chunk.start : chunk.end],
                metadata={
                    **metadata,
                    "start_index": chunk.start,
                    **({"headings": list(chunk.headings)} if self._add_headings else {}),
                },
            )
            for chunk in split(parsed, self._settings, self._tokenizing)
        ]
