"""GraftRetriever drops into LangChain: Documents with metadata, sync and async, in a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from pydantic import ValidationError

from backbone import Embedder
from index import Index
from index.records import Chunk, NewDocument, ParsedText
from retriever import RetrievalSettings, Retriever
from retriever.langchain import GraftRetriever

TEXT = "# Limits\n\nThe upload limit is 20 megabytes.\n\n# Hours\n\nThe museum opens at nine."

WORDS = {"Limits": "The upload limit is 20 megabytes.", "Hours": "The museum opens at nine."}


@pytest.fixture
def retriever(tmp_path: Path, fast_embedder: Embedder) -> Iterator[GraftRetriever]:
    index = Index.open(tmp_path / "data")
    store = index.create_store(
        "docs",
        tenant="default",
        embedder="wordllama",
        embedder_fingerprint=fast_embedder.fingerprint,
        dimension=fast_embedder.dimension,
        chunking={"size": 64},
    )
    chunks = [
        Chunk(TEXT.index(words), TEXT.index(words) + len(words), 9, headings=(head,), page=page)
        for page, (head, words) in enumerate(WORDS.items(), start=1)
    ]
    document = NewDocument(
        "guide.md",
        "a" * 64,
        len(TEXT),
        ParsedText(TEXT, "markdown", "text/markdown"),
        chunks,
        fast_embedder.encode_passages([chunk.embedded_text(TEXT) for chunk in chunks]),
        attributes={"team": "docs"},
    )
    index.commit_documents(store.id, [document], embedder_fingerprint=fast_embedder.fingerprint)
    yield GraftRetriever(
        retriever=Retriever(index, fast_embedder),
        stores=[store.id],
        settings=RetrievalSettings(k=2),
    )
    index.close()


def test_invoke_gives_documents_whose_metadata_proves_the_span(retriever: GraftRetriever) -> None:
    found = retriever.invoke("What is the upload limit?")
    assert isinstance(found[0], Document)
    first = found[0].metadata
    assert found[0].page_content == TEXT[first["start"] : first["end"]]
    assert found[0].page_content == "The upload limit is 20 megabytes."
    assert (first["document"], first["version"], first["page"]) == ("guide.md", "a" * 64, 1)
    assert first["headings"] == ["Limits"]
    assert {"dense", "lexical", "fused"} <= set(first["scores"])
    assert first["attributes"] == {"team": "docs"}


def test_ainvoke_gives_the_same(retriever: GraftRetriever) -> None:
    question = "When does the museum open?"
    assert asyncio.run(retriever.ainvoke(question)) == retriever.invoke(question)


def test_it_works_in_a_chain_with_a_language_model(retriever: GraftRetriever) -> None:
    seen: list[str] = []

    def join(documents: list[Document]) -> str:
        seen.extend(document.page_content for document in documents)
        return "\n".join(document.page_content for document in documents)

    chain = (
        {"context": retriever | RunnableLambda(join), "question": RunnablePassthrough()}
        | PromptTemplate.from_template("{context}\n\nQuestion: {question}\nAnswer:")
        | FakeListLLM(responses=["20 megabytes"])
        | StrOutputParser()
    )
    assert chain.invoke("What is the upload limit?") == "20 megabytes"
    assert "The upload limit is 20 megabytes." in seen


def test_wrong_fields_are_refused(retriever: GraftRetriever) -> None:
    with pytest.raises(ValidationError):
        GraftRetriever(retriever=retriever.retriever, stores=[])
    with pytest.raises(ValidationError):
        GraftRetriever(retriever=retriever.retriever, stores=["s"], top_k=3)  # type: ignore[call-arg]
