"""Markers resolve, quotes are real spans, what does not exist is dropped and counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.records import Passage
from retriever import resolve

TEXT = (
    "Prologue that no passage holds.\n\n"
    "Graft was founded in 1947 in Geneva. It employs 300 people.\n\n"
    "The limit for uploads is 20 megabytes. Larger files are refused.\n\n"
    "国际标准化组织成立于1947年。总部设在日内瓦。"
)
OTHER = "The museum opens at nine. Tickets cost five euros."


def passage(text: str, words: str, *, document: str, chunk: int) -> Passage:
    start = text.index(words)
    return Passage(
        chunk,
        "store",
        document,
        f"v-{document}",
        start,
        start + len(words),
        words,
        "",
        ("Top",),
        3,
        {},
    )


PASSAGES = [
    passage(
        TEXT,
        "Graft was founded in 1947 in Geneva. It employs 300 people.",
        document="a/readme.md",
        chunk=1,
    ),
    passage(
        TEXT,
        "The limit for uploads is 20 megabytes. Larger files are refused.",
        document="a/readme.md",
        chunk=2,
    ),
    passage(OTHER, OTHER, document="b/readme.md", chunk=3),
    passage(TEXT, "国际标准化组织成立于1947年。总部设在日内瓦。", document="a/readme.md", chunk=4),
    passage(OTHER, "Tickets cost five euros.", document="b/readme.md", chunk=5),
]


def read(found: Passage) -> str:
    return TEXT if found.document == "a/readme.md" else OTHER


def test_c3_a_marker_resolves_to_the_sentence_that_supports_it() -> None:
    cited = resolve("The upload limit is 20 megabytes [2].", PASSAGES, read)
    (citation,) = cited.citations
    assert citation.quote == "The limit for uploads is 20 megabytes."
    assert citation.verified
    assert TEXT[citation.start : citation.end] == citation.quote
    assert (citation.number, citation.document, citation.version) == (
        2,
        "a/readme.md",
        "v-a/readme.md",
    )
    assert (citation.origin, citation.page, citation.headings) == ("marker", 3, ("Top",))
    assert cited.answer == "The upload limit is 20 megabytes [2]."
    assert cited.dropped == 0


def test_c3_numbers_that_name_no_passage_are_removed_and_counted() -> None:
    cited = resolve(
        "The limit is 20 megabytes [9]. Tickets cost five euros [3] [77].", PASSAGES, read
    )
    assert cited.answer == "The limit is 20 megabytes. Tickets cost five euros [3]."
    assert cited.dropped == 2
    assert [c.number for c in cited.citations if c.origin == "marker"] == [3]


def test_c3_repeats_in_one_sentence_are_merged() -> None:
    cited = resolve("Graft was founded in 1947 [1][1] [1].", PASSAGES, read)
    assert cited.answer == "Graft was founded in 1947 [1]."
    assert len(cited.citations) == 1
    assert cited.dropped == 0


@pytest.mark.parametrize(
    ("written", "numbers", "dropped"),
    [
        ("[3, 5]", [3, 5], 0),
        ("[3,5,9]", [3, 5], 1),
        ("【3】", [3], 0),
        ("［3］［5］", [3, 5], 0),
        ("[3;5]", [3, 5], 0),
        ("[3-5]", [3, 5], 0),  # [4] holds nothing of the sentence, in another script: see below
        ("[Passage 3]", [3], 0),
        ("[0]", [], 1),
        ("[00]", [], 1),
    ],
)
def test_c3_every_way_to_write_a_marker_is_understood(
    written: str, numbers: list[int], dropped: int
) -> None:
    cited = resolve(f"Tickets cost five euros {written}.", PASSAGES, read)
    assert [c.number for c in cited.citations if c.origin == "marker" and c.number != 4] == numbers
    assert cited.dropped == dropped
    assert all(f"[{number}]" in cited.answer for number in numbers)


def test_a_marker_before_and_after_the_full_stop_means_the_same_sentence() -> None:
    for answer in (
        "Tickets cost five euros [5]. Nothing else.",
        "Tickets cost five euros. [5] Nothing else.",
    ):
        (citation,) = resolve(answer, PASSAGES, read).citations
        assert citation.quote == "Tickets cost five euros."


def test_a_marker_whose_passage_holds_nothing_of_the_sentence_is_removed_and_counted() -> None:
    cited = resolve("Whales migrate across southern oceans every winter [2].", PASSAGES, read)
    assert cited.answer == "Whales migrate across southern oceans every winter."
    assert (cited.citations, cited.unsupported, cited.dropped) == ((), 1, 0)


def test_a_short_answer_keeps_its_marker_because_terms_prove_nothing_there() -> None:
    cited = resolve("Yes [1].", PASSAGES, read)
    assert [c.number for c in cited.citations] == [1]


def test_chinese_answers_are_cited_in_chinese_passages() -> None:
    cited = resolve("国际标准化组织的总部在日内瓦【4】。", PASSAGES, read)
    assert cited.answer == "国际标准化组织的总部在日内瓦[4]。"
    (citation,) = cited.citations
    assert "日内瓦" in citation.quote
    assert citation.verified


def test_a_sentence_without_a_marker_is_aligned_beside_one_that_has_one() -> None:
    cited = resolve("The limit is 20 megabytes [2]. Tickets cost five euros.", PASSAGES, read)
    assert [(c.number, c.origin) for c in cited.citations] == [(2, "marker"), (3, "aligned")]
    for citation in cited.citations:
        stands = cited.answer[citation.answer_span.start : citation.answer_span.end]
        assert stands in ("The limit is 20 megabytes [2].", "Tickets cost five euros.")


def test_of_quotes_that_cover_alike_the_one_near_the_question_is_taken() -> None:
    text = "Ada was born in 1815. The engine was built in 1815. Bob died in 1815."
    found = [passage(text, text, document="d", chunk=1)]
    (citation,) = resolve(
        "1815", found, lambda _: text, question="When was the engine built?"
    ).citations
    assert citation.quote == "The engine was built in 1815."


def test_sentences_without_markers_are_aligned_and_the_unsupported_stay_bare() -> None:
    cited = resolve(
        "Graft was founded in 1947 in Geneva. Whales migrate every winter across oceans.",
        PASSAGES,
        read,
    )
    (citation,) = cited.citations
    assert citation.origin == "aligned"
    assert citation.quote == "Graft was founded in 1947 in Geneva."
    assert cited.answer[citation.answer_span.start : citation.answer_span.end] == citation.quote


def test_c4_an_abstaining_answer_has_no_citation_even_with_a_marker() -> None:
    for answer in (
        "The documents do not answer this question. [1]",
        "文档中没有回答这个问题的内容。[1]",
    ):
        assert resolve(answer, PASSAGES, read).citations == ()


def test_a_quote_that_the_version_does_not_hold_is_not_verified() -> None:
    cited = resolve("The upload limit is 20 megabytes [2].", PASSAGES, lambda _: "x" * 500)
    assert [c.verified for c in cited.citations] == [False]


def test_r4_citations_tell_documents_of_the_same_file_name_apart_by_path() -> None:
    cited = resolve("The limit is 20 megabytes [2]. Tickets cost five euros [3].", PASSAGES, read)
    assert [c.document for c in cited.citations] == ["a/readme.md", "b/readme.md"]


def test_without_passages_every_marker_is_dropped() -> None:
    cited = resolve("It is so [1], and so [2].", [], read)
    assert cited.answer == "It is so, and so."
    assert (cited.citations, cited.dropped) == ((), 2)


pieces = st.sampled_from(
    [
        "The limit is 20 megabytes",
        "Tickets cost five euros",
        "国际标准化组织成立于1947年",
        "Whales",
        " ",
        ". ",
        "。",
        "\n\n",
        "[1]",
        "[2] ",
        " [9]",
        "[1, 3]",
        "【4】",
        "[[5]]",
        "a[0]",
        "[",
        "]",
    ]
)


@given(st.lists(pieces, max_size=14).map("".join))
def test_every_citation_is_a_checked_span_and_every_marker_left_has_one(answer: str) -> None:
    cited = resolve(answer, PASSAGES, read)
    for citation in cited.citations:
        assert citation.verified
        assert read(PASSAGES[citation.number - 1])[citation.start : citation.end] == citation.quote
        assert 0 <= citation.answer_span.start <= citation.answer_span.end <= len(cited.answer)
    again = resolve(cited.answer, PASSAGES, read)
    assert again.dropped == 0 or "[[" in answer
