"""What a small backbone is shown: the best sentences, within a budget, in their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import InvalidInput
from index.records import Passage
from retriever import build_prompt, condense


def _passage(number: int, text: str) -> Passage:
    return Passage(number, "vs_1", f"d{number}.md", "v", 0, len(text), text, "", (), None, {})


def _count(text: str) -> int:
    return len(text.split())


FLOOD = _passage(1, "Rain fell for days. The dam at Orrin broke in 1931. People left their homes.")
COOKING = _passage(2, "Bread needs flour. Salt it well. Bake it for an hour.")


def test_the_sentence_that_answers_is_shown_and_the_rest_is_not() -> None:
    [excerpt] = condense(
        "When did the dam at Orrin break?", [COOKING, FLOOD], count_tokens=_count, budget_tokens=8
    )
    assert excerpt.passage is FLOOD
    assert excerpt.shown == "The dam at Orrin broke in 1931."
    assert not excerpt.is_whole


def test_a_large_budget_shows_passages_whole_and_word_for_word() -> None:
    excerpts = condense("dam", [FLOOD, COOKING], count_tokens=_count, budget_tokens=1000)
    assert [e.passage for e in excerpts] == [FLOOD, COOKING]
    assert [e.shown for e in excerpts] == [FLOOD.text, COOKING.text]
    assert all(e.is_whole for e in excerpts)


def test_a_gap_between_sentences_is_marked() -> None:
    passage = _passage(3, "The dam broke in May. Birds sang all day long. The dam was rebuilt.")
    [excerpt] = condense("the dam", [passage], count_tokens=_count, budget_tokens=9)
    assert excerpt.shown == "The dam broke in May. … The dam was rebuilt."


def test_a_sentence_in_two_overlapping_chunks_is_shown_once() -> None:
    twin = _passage(4, "The dam at Orrin broke in 1931. Help came late.")
    excerpts = condense(
        "When did the dam at Orrin break?", [FLOOD, twin], count_tokens=_count, budget_tokens=1000
    )
    assert " ".join(e.shown for e in excerpts).count("broke in 1931") == 1


def test_no_passages_and_no_budget() -> None:
    assert condense("dam", [], count_tokens=_count, budget_tokens=10) == ()
    with pytest.raises(InvalidInput, match="at least 1 token"):
        condense("dam", [FLOOD], count_tokens=_count, budget_tokens=0)


@given(st.integers(1, 30), st.text(alphabet="ab .?。", max_size=30))
def test_at_least_one_sentence_and_never_beyond_the_budget_after_it(
    budget: int, question: str
) -> None:
    excerpts = condense(question, [FLOOD, COOKING], count_tokens=_count, budget_tokens=budget)
    shown = " ".join(e.shown.replace(" … ", " ") for e in excerpts)
    longest = 7
    assert excerpts
    assert _count(shown) <= max(budget, longest)


class _Model:
    def chat(self, messages, *, add_generation_prompt: bool = True) -> list[int]:
        return [ord(c) for m in messages for c in m["content"]]


def test_the_prompt_prints_what_is_shown_and_keeps_the_whole_passage_for_quotes() -> None:
    prompt = build_prompt(
        "When?", [FLOOD], model=_Model(), budget_tokens=4000, shown={1: "It broke in 1931."}
    )
    content = prompt.messages[-1]["content"]
    assert "It broke in 1931." in content
    assert "Rain fell" not in content
    assert prompt.numbered == (FLOOD,)


def test_an_excerpt_that_does_not_fit_is_dropped_and_counted_never_cut() -> None:
    bare = build_prompt("When?", [], model=_Model(), budget_tokens=4000).num_tokens
    prompt = build_prompt(
        "When?", [FLOOD], model=_Model(), budget_tokens=bare + 20, shown={1: FLOOD.text}
    )
    assert (prompt.numbered, prompt.num_dropped, prompt.num_cut) == ((), 1, 0)
