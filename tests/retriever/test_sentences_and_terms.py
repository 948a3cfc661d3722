"""Sentences are spans that lose nothing; terms meet where words do."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.records import Passage
from retriever import abstention, is_abstention, ranking, sentences, terms
from retriever import abstention as _abstention_function
from retriever.support import SentencePool, term_set


def words_of(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences.split(text)]


@given(
    st.text(alphabet=st.sampled_from('aB1 .!?。！？;；\n\t"”)]-#|*国家第条的e.g Dr'), max_size=300)
)
def test_sentences_cover_everything_but_white_space_in_order(text: str) -> None:
    end = 0
    for span in sentences.split(text):
        assert end <= span.start < span.end
        assert not text[end : span.start].strip()
        assert text[span.start : span.end] == text[span.start : span.end].strip()
        end = span.end
    assert not text[end:].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mr. Smith of the U.S. Army met Dr. No. He left.", 2),
        ("It costs 3.5 dollars, e.g. for tea. Good!", 2),
        ("J. R. R. Tolkien wrote it. It sold.", 2),
        ("It began in 1990. The end came later.", 2),
        ('He said "Stop." Then he left.', 2),
        ("Version 3.14.1 is out? Yes! Really...", 3),
        ("他说：“你好。”然后走了。再见！", 3),
        ("第一条 为了规范。\n第二条 本法适用于中国", 2),
        ("国际标准化组织成立于1947年。总部设在日内瓦。", 2),
        ("A wrapped line of\nprose goes on. Next.", 2),
        ("1. First item\n2. Second item", 2),
        ("- one\n- two", 2),
        ("Title\n=====\n\nText here.", 3),
        ("| a | b |\n| 1 | 2 |", 2),
        ("", 0),
        (" \n\t ", 0),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: int) -> None:
    assert len(words_of(text)) == expected, words_of(text)


def test_a_very_long_sentence_is_cut_at_soft_borders() -> None:
    text = "；".join(["条款内容很长" * 20] * 12) + "。"
    assert max(len(words) for words in words_of(text)) < 700


def test_a_text_without_any_border_is_split_in_bounded_depth() -> None:
    text = "x;" * 20_000
    assert "".join(words_of(text)) == text


def test_terms_meet_across_inflection_width_and_case() -> None:
    assert term_set("Limits") == term_set("the limit") == term_set("ＬＩＭＩＴＳ")
    assert term_set("the of and") == frozenset()
    assert term_set("半导体") <= term_set("中国的半导体产业")
    assert not term_set("天気") & term_set("semiconductor")


def test_language_is_that_of_most_letters() -> None:
    assert terms.language_of("什么是GIL？") == "zh"
    assert terms.language_of("What does 国 mean in this sentence?") == "en"
    assert terms.language_of("") == "en"


def test_coverage_weighs_rare_terms_more() -> None:
    passage = Passage(
        1, "s", "d", "v", 0, 0, "Cats eat fish. Cats sleep. Cats purr loudly.", "", (), None, {}
    )
    pool = SentencePool([passage])
    wanted = term_set("Do cats purr?")
    covers = [pool.coverage(wanted, sentence.terms) for sentence in pool.sentences]
    assert covers[2] == 1.0
    assert 0 < covers[0] == covers[1] < 0.5
    assert pool.coverage(frozenset(), wanted) == 0.0


@pytest.mark.parametrize("question", ["Who won?", "谁赢了？"])
def test_the_abstaining_answer_is_in_the_questions_language_and_known_as_one(question: str) -> None:
    words = abstention(question)
    assert terms.language_of(words) == terms.language_of(question)
    assert is_abstention(words)
    assert not is_abstention("It was decided in 1947.")
    assert not is_abstention("成立于1947年。")


def test_the_examples_in_the_docstrings_hold() -> None:
    import sys

    for module in (terms, sentences, ranking, sys.modules[_abstention_function.__module__]):
        assert doctest.testmod(module).failed == 0
