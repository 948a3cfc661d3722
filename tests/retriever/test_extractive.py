"""Extractive answers are the documents' own sentences, checked, in order, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backbone import Embedder
from index.errors import InvalidInput
from index.records import Passage
from retriever import abstention, answer, answerability

TEXT = (
    "Graft was founded in 1947 in Geneva. It employs 300 people. Its mascot is a heron.\n\n"
    "The limit for uploads is 20 megabytes. Larger files are refused at the door. "
    "Whoever needs more writes to the desk.\n\n"
    "国际标准化组织成立于1947年。总部设在日内瓦。它有一百六十个成员。"
)
SPANS = [(0, 82), (84, 202), (204, len(TEXT))]


def passages(*order: int, overlap: int = 0) -> list[Passage]:
    found = []
    for number in order:
        start, end = SPANS[number]
        start = max(0, start - overlap)
        found.append(
            Passage(number, "s", "d.md", "v", start, end, TEXT[start:end], "", (), None, {})
        )
    return found


def read(_: Passage) -> str:
    return TEXT


@pytest.mark.parametrize(
    ("question", "gold"),
    [
        ("How large may an upload be at most?", "The limit for uploads is 20 megabytes."),
        ("What is the mascot of Graft?", "Its mascot is a heron."),
        ("国际标准化组织的总部在哪里？", "总部设在日内瓦。"),
    ],
)
def test_the_answer_holds_the_sentence_that_answers(question: str, gold: str) -> None:
    found = answer(question, passages(0, 1, 2), read)
    assert gold in found.answer
    assert gold in [citation.quote for citation in found.citations]


@given(
    st.permutations([0, 1, 2]),
    st.integers(0, 40),
    st.integers(1, 5),
    st.sampled_from(
        ["upload limit", "Where was Graft founded, and when?", "成立于哪一年？", "zebra"]
    ),
)
def test_every_sentence_is_a_checked_quote_in_document_order_and_none_comes_twice(
    order: list[int], overlap: int, max_sentences: int, question: str
) -> None:
    found = answer(question, passages(*order, overlap=overlap), read, max_sentences=max_sentences)
    assert len(found.citations) <= max_sentences
    starts = [citation.start for citation in found.citations]
    assert starts == sorted(set(starts))
    for before, after in zip(found.citations, found.citations[1:], strict=False):
        assert before.end <= after.start
    for citation in found.citations:
        assert citation.verified
        assert TEXT[citation.start : citation.end] == citation.quote
        assert citation.origin == "extracted"
        stands = found.answer[citation.answer_span.start : citation.answer_span.end]
        assert stands.split() == citation.quote.split()


@pytest.mark.parametrize("question", ["Who won the chess olympiad?", "谁赢得了国际象棋比赛？"])
def test_c4_an_unanswered_question_gets_an_abstention_and_no_citation(question: str) -> None:
    found = answer(question, passages(0, 1), read, abstain=True)
    assert (found.answer, found.citations) == (abstention(question), ())
    assert found.answerability < 0.1
    unasked = answer(question, passages(0, 1), read)
    assert unasked.citations == ()


def test_c4_an_answered_question_is_answered_even_when_abstaining_is_allowed() -> None:
    question = "What is the limit for uploads?"
    found = answer(question, passages(0, 1, 2), read, abstain=True)
    assert "20 megabytes" in found.answer
    assert found.answerability > 0.9


def test_no_passages_and_empty_passages_abstain() -> None:
    empty = Passage(1, "s", "d", "v", 0, 2, " \n", "", (), None, {})
    for found in (answer("Who?", [], read), answer("Who?", [empty], read)):
        assert (found.answer, found.citations, found.answerability) == (
            abstention("Who?"),
            (),
            0.0,
        )
    assert answerability("Who?", []) == 0.0


def test_one_sentence_is_asked_for_and_one_comes() -> None:
    found = answer("upload limit", passages(1), read, max_sentences=1)
    assert found.answer == "The limit for uploads is 20 megabytes."
    with pytest.raises(InvalidInput, match="max_sentences"):
        answer("upload limit", passages(1), read, max_sentences=0)


def test_an_embedder_takes_part_and_very_long_sentences_do_not_break_it(
    fast_embedder: Embedder,
) -> None:
    found = answer("How big can files be?", passages(0, 1, 2), read, embedder=fast_embedder)
    assert any("megabytes" in c.quote or "files" in c.quote for c in found.citations)
    assert 0.0 <= found.answerability <= 1.0
    text = "word " * 5000
    one = Passage(1, "s", "d", "v", 0, len(text), text, "", (), None, {})
    assert answer("word", [one], lambda _: text, embedder=fast_embedder).answer
