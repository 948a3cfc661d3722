"""A planted fact on the starter backbone: the memory moves the answer and says who moved it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backbone import LanguageModel
from decoding import Completion, Engine, Request
from index.records import MemoryView
from knn_lm import KnnSettings, KnnShaper, TokenMemory, perplexity

pytestmark = pytest.mark.slow
MakeView = Callable[..., MemoryView]
FACT = "The harbour master of Velmora is Ottiline Brask. She took office in 2024."
TEXTS = {
    "velmora.md": "# Velmora\n\n" + FACT + " The harbour has nine piers.",
    "bees.md": "Bees gather nectar from flowers and turn it into honey in the hive.",
    "tea.md": "Green tea is brewed at eighty degrees for two minutes, black tea longer.",
}
QUESTION = "The harbour master of Velmora is"
ANSWER = " Ottiline Brask"


@pytest.fixture(scope="module")
def memory(smollm2: LanguageModel, make_view: MakeView) -> TokenMemory:
    view = make_view(smollm2, TEXTS)
    return TokenMemory(view, fingerprint=smollm2.fingerprint, key_dim=smollm2.key_dim)


def _ask(smollm2: LanguageModel, shaper: KnnShaper) -> Completion:
    prompt = tuple(smollm2.encode(QUESTION))
    num = len(smollm2.encode(ANSWER))
    with Engine(smollm2) as engine:
        return engine.submit(Request(prompt, max_tokens=num, shapers=(shaper,))).result(120)


def test_a_planted_fact_is_told_with_the_memory_and_not_without(
    smollm2: LanguageModel, memory: TokenMemory
) -> None:
    without = _ask(smollm2, KnnShaper(memory, KnnSettings(lam=0.0)))
    with_it = _ask(smollm2, KnnShaper(memory, KnnSettings(lam=0.7, k=8)))
    assert with_it.text == ANSWER
    assert "Ottiline" not in without.text
    assert not any(event.provenance for event in without.tokens)


def test_the_sources_of_a_planted_fact_are_its_document_and_its_words(
    smollm2: LanguageModel, memory: TokenMemory
) -> None:
    done = _ask(smollm2, KnnShaper(memory, KnnSettings(lam=0.7, k=8)))
    for event in done.tokens:
        top = event.provenance[0]
        assert top.document == "velmora.md"
        assert TEXTS["velmora.md"][top.start : top.end] == event.text
        assert top.share > 0.5


def test_perplexity_falls_on_a_text_that_says_what_the_memory_says(
    smollm2: LanguageModel, memory: TokenMemory
) -> None:
    near = perplexity(smollm2, "News: " + FACT, KnnShaper(memory, KnnSettings(lam=0.25, k=8)))
    assert near.mixed < 0.7 * near.frozen
