"""The kNN shaper in the engine: no-ops, provenance, a numpy reference, perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from backbone import LanguageModel, tiny_model
from decoding import Completion, Engine, Request, StepView
from decoding.target import compute, open_shapers
from index.errors import FingerprintMismatch, InvalidInput
from index.records import MemoryView
from knn_lm import KnnSettings, KnnShaper, TokenMemory, perplexity

MakeView = Callable[..., MemoryView]
MODEL = tiny_model(vocab_size=400)
TEXTS = {"a.md": "the other and the in on " * 8, "b.md": "one 猫 is not the other é " * 8}
PROMPT = tuple(MODEL.encode("and the other in the"))
REQUEST = Request(PROMPT, max_tokens=25, ignore_eos=True)


@pytest.fixture(scope="module")
def memory(make_view: MakeView) -> TokenMemory:
    return _memory(MODEL, make_view(MODEL, TEXTS))


def _memory(model: LanguageModel, view: MemoryView) -> TokenMemory:
    return TokenMemory(view, fingerprint=model.fingerprint, key_dim=model.key_dim)


def _run(request: Request, *shapers: KnnShaper) -> Completion:
    with Engine(MODEL) as engine:
        return engine.submit(replace(request, shapers=shapers)).result(60)


def _view(ids: list[int], num: int) -> StepView:
    """Show the last `num` positions of a teacher-forced pass as one verification step."""
    forward = MODEL.forward(torch.tensor([ids]), cache=None, num_logits=num)
    assert forward.logits is not None
    cut = len(ids) - num + 1
    return StepView(
        (ids[:cut],),
        forward.logits,
        forward.keys[:, -num:],
        torch.ones(1, num, dtype=torch.bool),
        (ids[cut:],),
    )


def _reference(
    view: StepView, table: MemoryView, settings: KnnSettings, scale: float
) -> np.ndarray:
    """Compute kNN-LM's log-probabilities [W, V] by the paper's formulas in float64."""
    logits = view.logits[0].double().numpy()
    p_lm = np.exp(logits - logits.max(-1, keepdims=True))
    p_lm /= p_lm.sum(-1, keepdims=True)
    keys, queries = table.keys.astype(np.float64), view.hidden[0].double().numpy()
    out = []
    for query, base in zip(queries, p_lm, strict=True):
        distances = ((keys - query) ** 2).sum(-1)
        nearest = np.argsort(distances, kind="stable")[: settings.k]
        weights = np.exp(
            -(distances[nearest] - distances[nearest].min()) / (settings.temperature * scale)
        )
        p_knn = np.bincount(table.values[nearest], weights / weights.sum(), minlength=len(base))
        out.append((1 - settings.lam) * base + settings.lam * p_knn)
    return np.log(np.array(out))


@pytest.mark.parametrize("lam", [0.1, 0.5, 0.99])
@pytest.mark.parametrize(("k", "temperature"), [(1, 1.0), (8, 0.2), (32, 5.0), (4096, 1.0)])
def test_the_target_equals_a_plain_numpy_knn_lm(
    memory: TokenMemory, lam: float, k: int, temperature: float
) -> None:
    settings = KnnSettings(lam, k, temperature)
    view = _view([*PROMPT, *MODEL.encode("one is not the other and so on")], 9)
    opened = open_shapers([KnnShaper(memory, settings)], REQUEST)
    ours = compute(view, 0, opened).logq.double().numpy()
    expected = _reference(view, memory.view, settings, memory.scale)
    assert np.abs(ours - expected).max() < 1e-4
    assert np.abs(ours - view.logits[0].log_softmax(-1).numpy()).max() > 1e-2


def test_lambda_zero_and_an_empty_memory_are_the_frozen_model_bit_for_bit(
    memory: TokenMemory, make_view: MakeView
) -> None:
    empty = _memory(MODEL, make_view(MODEL, {"empty.md": "", "one.md": "t"}))
    assert len(empty) == 0
    view = _view([*PROMPT], 3)
    logp = view.logits[0].log_softmax(-1)
    sampled = replace(REQUEST, temperature=1.1, seed=5, logprobs=4)
    for shaper in (KnnShaper(memory, KnnSettings(lam=0.0)), KnnShaper(empty, KnnSettings())):
        assert shaper.open(REQUEST).shape(logp, view, 0) is logp
        for request in (REQUEST, sampled):
            with_it, without = _run(request, shaper), _run(request)
            assert with_it.tokens == without.tokens
    assert _run(sampled, KnnShaper(memory, KnnSettings(lam=0.5))).ids != _run(sampled).ids


def test_t1_a_stored_context_gives_its_own_next_token(memory: TokenMemory) -> None:
    ids = MODEL.encode(TEXTS["b.md"])
    view = _view(ids[:-1], 20)
    state = KnnShaper(memory, KnnSettings(lam=1.0, k=16, temperature=1e-3)).open(REQUEST)
    p = state.shape(view.logits[0].log_softmax(-1), view, 0).exp()
    own = p.gather(-1, torch.tensor(ids[-20:]).unsqueeze(-1))
    assert float(own.min()) > 0.999


def test_t3_more_neighbours_than_entries_change_nothing_beyond_all_of_them(
    make_view: MakeView,
) -> None:
    few = _memory(MODEL, make_view(MODEL, {"a.md": "the other and"}))
    num = len(few)
    view = _view([*PROMPT], 4)
    logp = view.logits[0].log_softmax(-1)
    exact = KnnShaper(few, KnnSettings(k=num)).open(REQUEST).shape(logp, view, 0)
    beyond = KnnShaper(few, KnnSettings(k=num + 50)).open(REQUEST).shape(logp, view, 0)
    assert torch.allclose(exact, beyond, atol=1e-6)


def test_verifying_many_positions_gives_what_decoding_one_by_one_gives(
    memory: TokenMemory,
) -> None:
    ids = [*PROMPT, *MODEL.encode("one is not the other")]
    opened = open_shapers([KnnShaper(memory, KnnSettings(lam=0.6))], REQUEST)
    together = compute(_view(ids, 5), 0, opened).logq
    for w in range(5):
        alone = compute(_view(ids[: len(ids) - 4 + w], 1), 0, opened).logq[0]
        assert torch.allclose(alone, together[w], atol=1e-4)


def test_shares_of_the_sources_and_of_the_model_sum_to_one(memory: TokenMemory) -> None:
    settings = KnnSettings(lam=0.6, k=16)
    done = _run(replace(REQUEST, temperature=1.0, seed=3), KnnShaper(memory, settings))
    ids = [*PROMPT, *done.ids]
    logits = MODEL.forward(torch.tensor([ids]), cache=None).logits
    assert logits is not None
    frozen = logits[0].log_softmax(-1)[len(PROMPT) - 1 : -1]
    assert any(event.provenance for event in done.tokens)
    for event, row in zip(done.tokens, frozen, strict=True):
        share_of_model = (1 - settings.lam) * math.exp(float(row[event.id]) - event.logprob)
        total = sum(source.share for source in event.provenance) + share_of_model
        assert total == pytest.approx(1.0, abs=1e-3)
        assert all(0 < source.share <= 1 for source in event.provenance)


def test_a_source_names_the_words_that_said_the_token(memory: TokenMemory) -> None:
    done = _run(REQUEST, KnnShaper(memory, KnnSettings(lam=1.0, k=4)))
    versions = {record.name: record.version for record in memory.view.documents}
    for event in done.tokens:
        assert event.provenance
        assert [s.share for s in event.provenance] == sorted(
            (s.share for s in event.provenance), reverse=True
        )
        for source in event.provenance:
            words = TEXTS[source.document][source.start : source.end]
            assert MODEL.decode([event.id]) in (words, "\ufffd")
            assert source.version == versions[source.document]


def test_two_memories_share_a_token_exactly(memory: TokenMemory, make_view: MakeView) -> None:
    other = _memory(MODEL, make_view(MODEL, {"c.md": "in on the other and er " * 5}))
    shapers = (KnnShaper(memory, KnnSettings(lam=0.5)), KnnShaper(other, KnnSettings(lam=0.4)))
    done = _run(REQUEST, *shapers)
    ids = [*PROMPT, *done.ids]
    logits = MODEL.forward(torch.tensor([ids]), cache=None).logits
    assert logits is not None
    frozen = logits[0].log_softmax(-1)[len(PROMPT) - 1 : -1]
    for event, row in zip(done.tokens, frozen, strict=True):
        model = 0.5 * 0.6 * math.exp(float(row[event.id]) - event.logprob)
        total = sum(source.share for source in event.provenance)
        assert total + model == pytest.approx(1.0, abs=1e-3)
    assert {s.document for e in done.tokens for s in e.provenance} > {"c.md"}


def test_t8_the_engine_refuses_a_memory_of_another_backbone(make_view: MakeView) -> None:
    other = tiny_model(vocab_size=400, seed=9)
    foreign = _memory(other, make_view(other, TEXTS))
    with pytest.raises(FingerprintMismatch):
        _run(REQUEST, KnnShaper(foreign, KnnSettings()))


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"lam": -0.1}, "lambda"),
        ({"lam": math.nan}, "lambda"),
        ({"lam": 1.1}, "lambda"),
        ({"k": 0}, "k"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
    ],
)
def test_settings_out_of_bounds_are_refused(change: dict[str, float], param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        KnnSettings(**change)  # type: ignore[arg-type]
    assert caught.value.param == param


def test_perplexity_is_that_of_one_pass_and_falls_on_text_like_the_memory(
    memory: TokenMemory,
) -> None:
    text = TEXTS["a.md"][:60]
    ids = MODEL.encode(text)
    logits = MODEL.forward(torch.tensor([ids]), cache=None).logits
    assert logits is not None
    gold = torch.tensor(ids[1:]).unsqueeze(-1)
    nats = -float(logits[0, :-1].log_softmax(-1).gather(-1, gold).sum())
    for window in (512, 8):
        found = perplexity(MODEL, text, KnnShaper(memory, KnnSettings(0.5)), window=window)
        assert found.num_tokens == len(ids) - 1
        assert found.mixed < found.frozen
        if window == 512:
            assert found.frozen_nats == pytest.approx(nats, rel=1e-4)
    same = perplexity(MODEL, text, KnnShaper(memory, KnnSettings(0.0)))
    assert same.mixed_nats == same.frozen_nats
    with pytest.raises(InvalidInput, match="two tokens"):
        perplexity(MODEL, "t", KnnShaper(memory, KnnSettings()))
