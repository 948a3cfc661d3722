"""The engine: `generate()` is its oracle; stops, limits, seeds, cancel, errors and streaming."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from backbone import LanguageModel, tiny_model
from decoding import Completion, Engine, Request, ShaperState, Source, Stage, StepView
from index.errors import Busy, Conflict, FingerprintMismatch, InvalidInput

KINDS = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3", "gpt2", "gpt_neox", "phi", "opt"]
MODEL = tiny_model()
PROMPT = tuple(MODEL.encode("the other and the in on"))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(MODEL) as engine:
        yield engine


def _run(engine: Engine, request: Request) -> Completion:
    return engine.submit(request).result(60)


def _generate(model: LanguageModel, prompt: Sequence[int], num: int, **more: object) -> list[int]:
    ids = torch.tensor([list(prompt)])
    out = model.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=num, do_sample=False, **more
    )
    return list(out[0, len(prompt) :].tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [512, 3])
def test_greedy_text_is_that_of_generate_token_for_token(kind: str, chunk: int) -> None:
    model = tiny_model(kind=kind, seed=3)  # type: ignore[arg-type]
    with Engine(model, chunk=chunk) as engine:
        for words in ("t", "the other and the in on", "x" * 20):
            prompt = tuple(model.encode(words))
            ours = _run(engine, Request(prompt, max_tokens=40))
            assert list(ours.ids) == _generate(model, prompt, 40)


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
def test_a_sliding_window_is_passed_as_generate_passes_it(kind: str) -> None:
    model = tiny_model(kind=kind, sliding_window=8)  # type: ignore[arg-type]
    prompt = tuple(model.encode("the other and the in on" * 2))
    with Engine(model, chunk=5) as engine:
        ours = _run(engine, Request(prompt, max_tokens=30, ignore_eos=True))
    assert list(ours.ids) == _generate(model, prompt, 30, eos_token_id=None)


def test_penalties_give_what_generate_gives(engine: Engine) -> None:
    ours = _run(engine, Request(PROMPT, max_tokens=40, repetition_penalty=1.4))
    assert list(ours.ids) == _generate(MODEL, PROMPT, 40, repetition_penalty=1.4)
    assert list(ours.ids) != _generate(MODEL, PROMPT, 40)


ASCII_ONLY = {i: -math.inf for i in range(MODEL.num_vocab) if not MODEL.decode([i]).isascii()}
SAMPLED = Request(PROMPT, max_tokens=30, temperature=0.9, seed=11, ignore_eos=True, logprobs=3)


def test_e4_a_seed_gives_its_text_whatever_else_is_running(engine: Engine) -> None:
    alone = _run(engine, SAMPLED)
    others = [replace(SAMPLED, seed=seed, temperature=0.7) for seed in range(3)]
    for order in ([SAMPLED, *others], [*others, SAMPLED], [others[0], SAMPLED, *others[1:]]):
        handles = {request.seed: engine.submit(request) for request in order}
        assert handles[11].result(60).ids == alone.ids
    assert len({_run(engine, replace(SAMPLED, seed=seed)).ids for seed in range(5)}) == 5


def test_a_text_cut_anywhere_and_continued_with_its_seed_goes_on_the_same(engine: Engine) -> None:
    whole = _run(engine, SAMPLED).ids
    for cut in (1, 7, 29):
        rest = replace(SAMPLED, prompt=PROMPT + whole[:cut], max_tokens=30 - cut)
        assert whole[:cut] + _run(engine, rest).ids == whole


def test_reported_log_probabilities_are_those_of_one_teacher_forced_pass(engine: Engine) -> None:
    done = _run(engine, SAMPLED)
    ids = torch.tensor([[*PROMPT, *done.ids]])
    logits = MODEL.forward(ids, cache=None).logits
    assert logits is not None
    logp = logits[0].log_softmax(dim=-1)[len(PROMPT) - 1 : -1]
    for event, row in zip(done.tokens, logp, strict=True):
        best = row.topk(3)
        assert event.logprob == pytest.approx(float(row[event.id]), abs=1e-4)
        assert [each for each, _ in event.top] == best.indices.tolist()
        assert [value for _, value in event.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_streamed_events_and_the_result_agree(engine: Engine) -> None:
    handle = engine.submit(SAMPLED)
    events = list(handle)
    done = handle.result(60)
    assert tuple(events) == done.tokens == tuple(handle)
    assert done.text == "".join(event.text for event in events) == MODEL.decode(done.ids)
    assert done.ids == tuple(event.id for event in events)
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(PROMPT), 30)
    assert done.finish_reason == "length"
    assert done.timings.decode_s > 0 < done.timings.prefill_s


def test_e5_a_completion_never_passes_its_limit(engine: Engine) -> None:
    for num in (1, 2, 17):
        assert len(_run(engine, replace(SAMPLED, max_tokens=num)).ids) == num


def test_e1_a_stop_string_across_tokens_is_removed_with_all_that_follows(engine: Engine) -> None:
    request = replace(SAMPLED, logit_bias=ASCII_ONLY)
    full = _run(engine, request)
    for start in range(0, len(full.text) - 4, 3):
        stop = full.text[start : start + 4]
        cut = _run(engine, replace(request, stop=(stop,)))
        assert cut.text == full.text[: full.text.find(stop)]
        assert cut.finish_reason == "stop"
        assert "".join(event.text for event in cut.tokens) == cut.text
        assert cut.ids == full.ids[: len(cut.ids)]
        assert stop in MODEL.decode(cut.ids)
        assert stop not in MODEL.decode(cut.ids[:-1])


def test_a_stop_string_that_never_comes_changes_nothing(engine: Engine) -> None:
    full = _run(engine, SAMPLED)
    held = _run(engine, replace(SAMPLED, stop=(full.text[-3:] + "never", "\0\0never")))
    assert (held.text, held.ids, held.finish_reason) == (full.text, full.ids, "length")


def test_e2_an_end_token_ends_the_text_and_nothing_follows_it(engine: Engine) -> None:
    full = _run(engine, SAMPLED)
    end = full.ids[9]
    at = full.ids.index(end)
    cut = _run(engine, replace(SAMPLED, stop_ids=frozenset({end})))
    assert cut.ids == full.ids[: at + 1]
    assert cut.text == MODEL.decode(full.ids[:at])
    assert (cut.finish_reason, cut.tokens[-1].text) == ("stop", "")
    assert cut.usage.completion_tokens == at + 1


def test_the_models_own_end_token_ends_the_text_unless_it_is_ignored(engine: Engine) -> None:
    (end,) = MODEL.eos_ids
    forced = replace(SAMPLED, logit_bias={end: 100.0})
    assert _run(engine, replace(forced, ignore_eos=False)).ids == (end,)
    assert _run(engine, forced).ids == (end,) * 30


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": ()}, "prompt"),
        ({"prompt": (1, 10**6)}, "prompt"),
        ({"prompt": (-1,)}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 512}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 2.0}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
        ({"logit_bias": {10**6: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias"),
        ({"stop": ("",)}, "stop"),
        ({"logprobs": -1}, "logprobs"),
    ],
)
def test_what_cannot_be_served_is_refused_at_submit(
    engine: Engine, change: dict[str, object], param: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        engine.submit(replace(SAMPLED, **change))  # type: ignore[arg-type]
    assert caught.value.param == param


def test_the_whole_context_can_be_used_and_one_token_more_is_refused(engine: Engine) -> None:
    room = MODEL.context_length - len(PROMPT)
    assert len(_run(engine, Request(PROMPT, max_tokens=room, ignore_eos=True)).ids) == room
    with pytest.raises(InvalidInput, match="context of 512"):
        engine.submit(Request(PROMPT, max_tokens=room + 1))


class Probe:
    """A shaper that changes nothing, counts its steps, and does something at one of them."""

    stage: Stage = "mix"

    def __init__(self, at: int = -1, fingerprint: str | None = None) -> None:
        self.at = at
        self.fingerprint = fingerprint
        self.num_steps = 0
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.error: Exception | None = None

    def open(self, request: Request) -> ShaperState:
        return self

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        self.num_steps += 1
        if self.num_steps == self.at:
            self.reached.set()
            if self.error is not None:
                raise self.error
            assert self.go_on.wait(30)
        return logp

    def commit(self, ids: Sequence[int], view: StepView, row: int) -> None:
        pass

    def provenance(self, position: int) -> tuple[Source, ...]:
        return ()


LONG = replace(SAMPLED, max_tokens=400)


def test_cancel_takes_effect_within_one_step(engine: Engine) -> None:
    probe = Probe(at=5)
    handle = engine.submit(replace(LONG, shapers=(probe,)))
    assert probe.reached.wait(30)
    handle.cancel()
    probe.go_on.set()
    done = handle.result(30)
    assert (done.finish_reason, len(done.ids), probe.num_steps) == ("cancelled", 5, 5)
    assert done.text == MODEL.decode(done.ids)
    assert list(handle) == list(done.tokens)


def test_a_waiting_request_is_cancelled_at_once_and_never_runs(engine: Engine) -> None:
    first, second = Probe(at=2), Probe()
    running = engine.submit(replace(LONG, shapers=(first,)))
    assert first.reached.wait(30)
    waiting = engine.submit(replace(LONG, shapers=(second,)))
    waiting.cancel()
    assert waiting.result(0).finish_reason == "cancelled"
    running.cancel()
    first.go_on.set()
    running.result(30)
    assert _run(engine, SAMPLED).finish_reason == "length"
    assert second.num_steps == 0


def test_an_error_in_the_worker_reaches_the_handle_and_the_next_request_runs(
    engine: Engine,
) -> None:
    probe = Probe(at=3)
    probe.error = RuntimeError("planted")
    handle = engine.submit(replace(SAMPLED, shapers=(probe,)))
    seen = []
    with pytest.raises(RuntimeError, match="planted"):
        seen.extend(handle)
    assert len(seen) < 3
    with pytest.raises(RuntimeError, match="planted"):
        handle.result(30)
    assert len(_run(engine, SAMPLED).ids) == 30


def test_waiting_for_a_result_has_a_limit(engine: Engine) -> None:
    probe = Probe(at=1)
    handle = engine.submit(replace(SAMPLED, shapers=(probe,)))
    assert probe.reached.wait(30)
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    probe.go_on.set()
    assert len(handle.result(30).ids) == 30


def test_closing_cancels_what_runs_and_what_waits_and_refuses_what_comes() -> None:
    engine = Engine(MODEL)
    probe = Probe(at=2)
    running = engine.submit(replace(LONG, shapers=(probe,)))
    waiting = engine.submit(LONG)
    assert probe.reached.wait(30)
    closer = threading.Thread(target=engine.close)
    closer.start()
    assert waiting.result(30).finish_reason == "cancelled"
    probe.go_on.set()
    closer.join(30)
    assert not closer.is_alive()
    assert running.result(0).finish_reason == "cancelled"
    engine.close()
    with pytest.raises(Conflict, match="closed"):
        engine.submit(SAMPLED)


def test_more_than_may_wait_are_told_to_come_again() -> None:
    with Engine(MODEL, max_queue=1) as engine:
        probe = Probe(at=1)
        engine.submit(replace(SAMPLED, shapers=(probe,)))
        assert probe.reached.wait(30)
        waiting = engine.submit(SAMPLED)
        with pytest.raises(Busy):
            engine.submit(SAMPLED)
        probe.go_on.set()
        assert len(waiting.result(30).ids) == 30


def test_t8_a_shaper_built_for_another_backbone_is_refused_at_submit(engine: Engine) -> None:
    with pytest.raises(FingerprintMismatch, match="graft ingest"):
        engine.submit(replace(SAMPLED, shapers=(Probe(fingerprint="another"),)))
    own = replace(SAMPLED, shapers=(Probe(fingerprint=MODEL.fingerprint),))
    assert _run(engine, own).ids == _run(engine, SAMPLED).ids


def test_many_callers_at_once_each_get_their_own_text(engine: Engine) -> None:
    expected = {seed: _run(engine, replace(SAMPLED, seed=seed)).ids for seed in range(8)}
    found: dict[int, tuple[int, ...]] = {}

    def call(seed: int) -> None:
        found[seed] = _run(engine, replace(SAMPLED, seed=seed)).ids

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert found == expected
