"""LangChain's splitters by name, and ours inside LangChain: spans are true or refused (C1, C2)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from index.errors import InvalidInput
from index.records import Chunk, ParsedText
from ingestion.chunking import ChunkSettings, split
from ingestion.foreign import LENGTHS, SPLITTERS, place
from ingestion.langchain import GraftTextSplitter
from ingestion.words import WordCounting

NAMES = [f"{name}:{length}" for name in SPLITTERS for length in LENGTHS]
TEXTS = {
    "prose": "First sentence here. Second one follows it.\n\nA new paragraph, with more words. "
    * 9,
    "repeated": "chunk chunk chunk chunk\n\nchunk chunk " * 20,
    "spaced": "  a \n\n\n\n b\t\tc  \n \n d   e f\n" * 15,
    "chinese": "国际标准化组织制定标准。天气很好，我们出去。\n\n" * 15,
    "markdown": "# Head\n\n- one\n- two\n\n```py\nx  =  1\n\n\ny = 2\n```\n\n## Sub\n\nwords\n" * 6,
    "solid": "x" * 700,
}


def cut(text: str, name: str, size: int, overlap: int) -> list[Chunk]:
    parsed = ParsedText(text, "plain", "text/plain")
    return split(parsed, ChunkSettings(size, overlap, name), WordCounting(500))


def check(text: str, chunks: list[Chunk]) -> None:
    covered = bytearray(len(text))
    for chunk in chunks:
        assert text[chunk.start : chunk.end].strip()
        covered[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
    assert all(mark or text[i].isspace() for i, mark in enumerate(covered))
    assert all(a.start < b.start for a, b in pairwise(chunks))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(("size", "overlap"), [(12, 0), (12, 5), (40, 39), (200, 20)])
def test_c2_every_splitter_with_every_length_gives_true_covering_spans(
    name: str, kind: str, size: int, overlap: int
) -> None:
    text = TEXTS[kind]
    check(text, cut(text, name, size, overlap))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["prose", "repeated", "chinese"])
def test_c2_ordinary_texts_are_never_refused(name: str, kind: str) -> None:
    assert cut(TEXTS[kind], name, 60, 12)


def test_c1_the_repeated_word_has_two_spans_with_langchains_splitter_too() -> None:
    chunks = cut("chunk chunk", "RecursiveCharacterTextSplitter:characters", 6, 0)
    assert [(c.start, c.end) for c in chunks] == [(0, 5), (6, 11)]


@settings(max_examples=200, deadline=None)
@given(
    st.text("ab \n", max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data()
)
def test_c2_any_windows_of_any_text_are_placed(
    text: str, lengths: list[int], data: st.DataObject
) -> None:
    words = [i for i, c in enumerate(text) if not c.isspace()]
    pieces, start, end = [], 0, 0
    while end < len(words):
        start = end - data.draw(st.integers(0, max(0, min(3, end - start - 1)))) if pieces else 0
        end = min(len(words), max(end + 1, start + data.draw(st.sampled_from(lengths))))
        pieces.append(text[words[start] : words[end - 1] + 1])
    spans = place(text, pieces, name="windows")
    assert {"".join(text[s.start : s.end].split()) for s in spans} <= {
        "".join(p.split()) for p in pieces
    }
    covered = {i for s in spans for i in range(s.start, s.end)}
    assert covered.issuperset(words)
    assert all(a.start < b.start for a, b in pairwise(spans))


@pytest.mark.parametrize(
    "pieces", [["one"], ["one", "three"], ["one two", "no such words"], ["two", "one"]]
)
def test_c2_pieces_that_are_not_the_text_are_refused_by_name(pieces: list[str]) -> None:
    with pytest.raises(InvalidInput, match="'Odd' gives pieces that are not spans"):
        place("one two three", pieces, name="Odd")


def test_an_oversized_piece_is_cut_so_that_the_embedder_reads_all_of_it() -> None:
    text = "word " * 3000
    chunks = cut(text, "CharacterTextSplitter:characters", 9000, 0)
    check(text, chunks)
    assert max(c.num_tokens for c in chunks) <= 500


def test_c1_c2_graft_in_langchain_has_the_right_start_index() -> None:
    splitter = GraftTextSplitter(chunk_size=12, chunk_overlap=4)
    for text in TEXTS.values():
        documents = splitter.create_documents([text, text], [{"source": "a"}, {"source": "b"}])
        for document in documents:
            start = document.metadata["start_index"]
            assert text[start:].startswith(document.page_content)
        assert {d.metadata["source"] for d in documents} == {"a", "b"}
    twice = GraftTextSplitter(chunk_size=1, chunk_overlap=0).create_documents(["chunk chunk"])
    assert [d.metadata["start_index"] for d in twice] == [0, 6]


def test_graft_in_langchain_splits_documents_and_keeps_their_metadata() -> None:
    given_document = Document("# A\n\nSome words.\n\n# B\n\nOther words.", metadata={"id": 7})
    splitter = GraftTextSplitter(chunk_size=5, chunk_overlap=0, add_headings=True)
    found = splitter.split_documents([given_document])
    assert [d.metadata["headings"] for d in found] == [["A"], ["B"]]
    assert all(d.metadata["id"] == 7 for d in found)
    assert splitter.split_text(given_document.page_content) == [d.page_content for d in found]


def test_p4_graft_in_langchain_refuses_overlap_and_options_without_sense() -> None:
    with pytest.raises(InvalidInput, match="overlap"):
        GraftTextSplitter(chunk_size=10, chunk_overlap=10)
    with pytest.raises(InvalidInput, match="separator"):
        GraftTextSplitter(separator="\n")
