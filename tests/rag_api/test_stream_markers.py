"""Markers in streams (C3): what names no passage is never shown, however the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.records import Passage
from rag_api.web.markers import MarkerFilter
from retriever import resolve

PIECES = st.sampled_from(
    ["The pump", " moves", " [1]", "[2]", " [9]", "[1, 9]", "[4-6]", "[source 7]", "【8】", "。",
     " x[i]", " [a", "]", " [", "12", ", ", "\n", "[passage 2]", "资料", "[资料 5]", " ten litres."]
)  # fmt: skip


def shown(pieces: list[str], num_passages: int | None) -> str:
    markers = MarkerFilter(num_passages)
    return "".join(map(markers.feed, pieces)) + markers.rest()


def passage(number: int) -> Passage:
    text = "The pump moves ten litres."
    return Passage(number, "s", f"{number}.md", "v", 0, len(text), text, "", (), None, {})


def cut(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(at % (len(text) + 1) for at in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


@given(st.lists(PIECES, max_size=8).map("".join), st.lists(st.integers(0, 99)), st.integers(0, 3))
def test_c3_what_a_stream_shows_does_not_depend_on_how_it_is_cut(
    text: str, cuts: list[int], num_passages: int
) -> None:
    assert shown(cut(text, cuts), num_passages) == shown([*text], num_passages)


@given(st.lists(PIECES.filter(lambda p: "[" not in p or "]" in p), max_size=8).map("".join),
       st.integers(1, 3))  # fmt: skip
def test_c3_no_marker_that_a_stream_shows_names_a_passage_that_is_not_there(
    text: str, num_passages: int
) -> None:
    numbered = [passage(number) for number in range(num_passages)]
    assert resolve(shown([*text], num_passages), numbered, lambda p: p.text).dropped == 0


@given(st.text(alphabet="ab [(]1。\n", max_size=30))
def test_a_stream_without_passages_is_shown_as_it_is(text: str) -> None:
    assert shown([*text], None) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ten litres [3] a [9] minute [1][1].", "Ten litres [3] a minute [1][1]."),
        ("Ten [1, 9] and [2-7].", "Ten [1] and [2][3]."),
        ("a list [1000] and x[i] and [a] stay [", "a list [1000] and x[i] and [a] stay ["),
    ],
)
def test_c3_markers_that_name_no_passage_are_left_out(text: str, expected: str) -> None:
    assert shown([*text], 3) == expected


def test_text_that_cannot_become_a_marker_is_shown_at_once() -> None:
    markers = MarkerFilter(2)
    assert markers.feed("words") == "words"
    assert markers.feed(" [") == ""
    assert markers.feed("see") == ""
    assert markers.feed(" also") == " [see also"
    assert markers.feed(" [2") == ""
    assert markers.feed("] ") == " [2]"
    assert markers.rest() == " "
