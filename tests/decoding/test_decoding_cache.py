"""The cache: chunks, steps and rollbacks give what one pass gives; recurrent models say no."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from backbone import Forward, LanguageModel, tiny_model
from decoding import KV
from index.errors import Cancelled, Conflict

KINDS = ["llama", "qwen3", "gemma3", "gpt2", "gpt_neox", "phi", "opt"]
IDS = [int(i) for i in torch.randint(3, 300, (24,), generator=torch.Generator().manual_seed(0))]


def _logits(forward: Forward) -> Tensor:
    assert forward.logits is not None
    return forward.logits[0]


def _hybrid() -> LanguageModel:
    """Make a tiny model with short convolutions, whose state cannot be rolled back."""
    config = AutoConfig.for_model(
        "lfm2",
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        layer_types=["conv", "full_attention"],
        pad_token_id=2,
        bos_token_id=0,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    return LanguageModel.wrap(model, tiny_model().tokenizer, name="tiny-hybrid")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 5, 24, 100])
def test_a_prompt_read_in_chunks_gives_what_one_pass_gives(kind: str, chunk: int) -> None:
    model = tiny_model(kind=kind)  # type: ignore[arg-type]
    whole = model.forward(torch.tensor([IDS]), cache=None)
    last = KV(model, chunk=chunk).prefill(IDS)
    assert torch.allclose(_logits(last)[0], _logits(whole)[-1], atol=1e-4)
    assert torch.allclose(last.keys[0, 0], whole.keys[0, -1], atol=1e-4)
    assert last.keys.shape == (1, 1, model.key_dim)


@pytest.mark.parametrize(
    ("kind", "window"), [*((kind, None) for kind in KINDS), ("gemma3", 6), ("mistral", 6)]
)
def test_tokens_rolled_back_leave_no_trace(kind: str, window: int | None) -> None:
    model = tiny_model(kind=kind, sliding_window=window)  # type: ignore[arg-type]
    whole = _logits(model.forward(torch.tensor([IDS]), cache=None))
    kv = KV(model)
    assert kv.can_rollback
    kv.record()
    kv.prefill(IDS[:10])
    kv.rollback(0)
    at = 10
    for wrong in (0, 1, 3):
        drafted = [*IDS[at : at + 2], *[5] * wrong]
        verified = _logits(kv.step(drafted))
        assert torch.allclose(verified[:2], whole[at : at + 2], atol=1e-4)
        kv.rollback(wrong)
        at += 2
        assert kv.length == at
    assert torch.allclose(_logits(kv.step(IDS[at:])), whole[at:], atol=1e-4)


def test_e8_a_model_that_cannot_roll_back_decodes_and_says_so() -> None:
    model = _hybrid()
    kv = KV(model)
    assert not kv.can_rollback
    whole = _logits(model.forward(torch.tensor([IDS]), cache=None))
    assert torch.allclose(_logits(kv.prefill(IDS[:-1]))[0], whole[-2], atol=1e-4)
    assert torch.allclose(_logits(kv.step(IDS[-1:]))[0], whole[-1], atol=1e-4)
    with pytest.raises(Conflict, match="without drafts"):
        kv.rollback(1)


def test_more_than_was_fed_cannot_be_rolled_back_and_a_dropped_cache_cannot_be_used() -> None:
    kv = KV(tiny_model())
    kv.prefill(IDS[:4])
    with pytest.raises(Conflict, match="0 to 4"):
        kv.rollback(5)
    kv.drop()
    with pytest.raises(Conflict, match="dropped"):
        kv.step([1])


def test_reading_a_long_prompt_stops_between_chunks() -> None:
    asked: list[bool] = []

    def cancelled() -> bool:
        asked.append(True)
        return len(asked) == 3

    kv = KV(tiny_model(), chunk=4)
    with pytest.raises(Cancelled):
        kv.prefill(IDS, cancelled=cancelled)
    assert kv.length == 8


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma", "gpt2", "gpt_neox", "phi", "opt"])
def test_a_trimmed_cache_sees_the_first_and_the_last_tokens_and_no_others(kind: str) -> None:
    model = tiny_model(kind=kind)  # type: ignore[arg-type]
    kv = KV(model)
    kv.feed(IDS[:8])
    kv.trim(first=2, last=3)
    kv.feed(IDS[8:16])
    kv.trim(first=2, last=3)
    assert kv.length == 16
    sees = torch.ones(24, 24, dtype=torch.bool).tril()
    sees[8:16, 2:5] = False
    sees[16:, 2:13] = False
    mask = torch.zeros(24, 24).masked_fill(~sees, torch.finfo(torch.float32).min)
    whole = model.forward(
        torch.tensor([IDS]),
        cache=None,
        attention_mask=mask[None, None],
        position_ids=torch.arange(24)[None],
    )
    last = kv.step(IDS[16:])
    assert torch.allclose(_logits(last), _logits(whole)[16:], atol=1e-4)
    assert not torch.allclose(
        _logits(last), _logits(model.forward(torch.tensor([IDS]), cache=None))[16:], atol=1e-2
    )
    with pytest.raises(Conflict, match="0 to 13"):
        kv.rollback(14)


def test_a_cache_that_forgets_by_itself_cannot_be_trimmed() -> None:
    kv = KV(tiny_model(kind="gemma3", sliding_window=6))
    assert not kv.can_trim
    with pytest.raises(Conflict, match="open a new one"):
        kv.trim(first=1, last=1)
    kv = KV(tiny_model())
    kv.feed(IDS[:6])
    kv.trim(first=3, last=3)
    assert torch.equal(kv.feed(IDS[6:7]), _plain(IDS[:6], IDS[6:7]))


def _plain(before: list[int], after: list[int]) -> Tensor:
    kv = KV(tiny_model())
    kv.feed(before)
    return kv.feed(after)
