"""The engine on the starter backbone: `generate()` token for token, stops, seeds, chat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from backbone import LanguageModel
from decoding import Engine, Request

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(smollm2: LanguageModel) -> Iterator[Engine]:
    with Engine(smollm2, chunk=16) as engine:
        yield engine


@pytest.mark.parametrize(
    "question", ["What is the capital of France?", "Count from one to ten.", "用中文说你好。"]
)
def test_greedy_answers_are_those_of_generate_token_for_token(
    smollm2: LanguageModel, engine: Engine, question: str
) -> None:
    prompt = tuple(smollm2.chat([{"role": "user", "content": question}]))
    ours = engine.submit(Request(prompt, max_tokens=16)).result(120)
    ids = torch.tensor([prompt])
    theirs = smollm2.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False
    )
    assert list(ours.ids) == theirs[0, len(prompt) :].tolist()
    ends = ours.ids[-1] in smollm2.eos_ids
    assert ours.finish_reason == ("stop" if ends else "length")
    assert ours.text == smollm2.decode(ours.ids[:-1] if ends else ours.ids)


def test_sampled_answers_repeat_with_their_seed_and_differ_without(
    smollm2: LanguageModel, engine: Engine
) -> None:
    prompt = tuple(smollm2.encode("The weather in the mountains"))
    request = Request(prompt, max_tokens=12, temperature=1.0, top_p=0.95, seed=1)
    handles = [engine.submit(replace(request, seed=seed)) for seed in (1, 2, 1)]
    first, second, again = (handle.result(120) for handle in handles)
    assert first.ids == again.ids != second.ids


def test_e1_a_stop_string_is_removed_from_a_real_text(
    smollm2: LanguageModel, engine: Engine
) -> None:
    prompt = tuple(smollm2.encode("One, two, three, four, five, six,"))
    full = engine.submit(Request(prompt, max_tokens=12)).result(120)
    stop = full.text[5:11]
    cut = engine.submit(Request(prompt, max_tokens=12, stop=(stop,))).result(120)
    assert cut.text == full.text[: full.text.index(stop)]
    assert cut.finish_reason == "stop"
