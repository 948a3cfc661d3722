"""The backbone's forward: keys found by structure, masks from lengths, no state left behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, MambaConfig, MambaForCausalLM

from backbone import STARTER_MODELS, LanguageModel, ModelCache, pad, tiny_model
from backbone.hooks import find_mlp
from backbone.tiny_models import TinyKind
from index.errors import InvalidInput, ModelError

KINDS = get_args(TinyKind)
ROWS = [[5, 7, 11, 13, 17], [19, 23], [29, 31, 37]]


def keys_of(model: LanguageModel, row: list[int]) -> torch.Tensor:
    return model.forward(torch.tensor([row]), cache=None).keys[0]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_the_input_of_the_last_mlp_after_its_norm(kind: TinyKind) -> None:
    """Recomputed by hand: the tensor that the last block's MLP multiplies first."""
    model = tiny_model(kind=kind)
    seen: list[torch.Tensor] = []
    mlp = find_mlp(model.model).module
    first = next(m for m in mlp.modules() if getattr(m, "weight", None) is not None)
    handle = first.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    keys = keys_of(model, ROWS[0])
    handle.remove()
    assert torch.equal(seen[0].reshape(keys.shape), keys)
    assert keys.shape == (5, model.key_dim) == (5, 32)


def test_keys_of_a_llama_are_its_post_attention_norm() -> None:
    model = tiny_model()
    seen: list[torch.Tensor] = []
    norm = model.model.model.layers[-1].post_attention_layernorm
    norm.register_forward_hook(lambda _module, _args, output: seen.append(output))
    assert torch.equal(keys_of(model, ROWS[0]), seen[-1][0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_t2_keys_and_logits_are_the_same_alone_and_padded_in_a_batch(
    kind: TinyKind, side: str
) -> None:
    model = tiny_model(kind=kind)
    batch = pad(ROWS, side="left" if side == "left" else "right", pad_id=2)
    together = model.forward(
        batch.ids,
        cache=None,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
    )
    assert together.logits is not None
    for i, row in enumerate(ROWS):
        alone = model.forward(torch.tensor([row]), cache=None)
        assert alone.logits is not None
        mask = batch.attention_mask[i].bool()
        torch.testing.assert_close(together.keys[i][mask], alone.keys[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(together.logits[i][mask], alone.logits[0], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_e12_the_end_token_as_padding_and_as_a_word_are_told_apart(side: str) -> None:
    model = tiny_model()
    end = model.tokenizer.pad_token_id
    assert end in model.eos_ids, "the case: padding is the end token"
    rows = [[5, end, 7, end], [9]]
    batch = pad(rows, side="left" if side == "left" else "right", pad_id=end)
    assert batch.attention_mask.sum(1).tolist() == [4, 1]
    together = model.forward(
        batch.ids, cache=None, attention_mask=batch.attention_mask, position_ids=batch.position_ids
    )
    torch.testing.assert_close(together.keys[0], keys_of(model, rows[0]), atol=1e-4, rtol=1e-4)


@given(st.lists(st.lists(st.integers(0, 319), min_size=1, max_size=9), min_size=1, max_size=5))
def test_padding_loses_and_invents_no_token(rows: list[list[int]]) -> None:
    for side in ("left", "right"):
        batch = pad(rows, side="left" if side == "left" else "right", pad_id=2)
        for i, row in enumerate(rows):
            mask = batch.attention_mask[i].bool()
            assert batch.ids[i][mask].tolist() == row
            assert batch.position_ids[i][mask].tolist() == list(range(len(row)))


def test_rows_without_tokens_cannot_be_padded() -> None:
    for rows in ([], [[1], []]):
        with pytest.raises(InvalidInput, match="rows with tokens"):
            pad(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_out_the_logits_changes_no_key_and_runs_no_output_layer(kind: TinyKind) -> None:
    model = tiny_model(kind=kind)
    ids = torch.tensor([ROWS[0]])
    runs: list[int] = []
    head = model.model.get_output_embeddings()
    head.register_forward_hook(lambda *_: runs.append(1))
    without = model.forward(ids, cache=None, want_logits=False)
    assert (without.logits, runs) == (None, [])
    full = model.forward(ids, cache=None)
    assert runs == [1]
    assert torch.equal(without.keys, full.keys)
    last = model.forward(ids, cache=None, num_logits=1)
    assert full.logits is not None
    assert last.logits is not None
    torch.testing.assert_close(last.logits[0, -1], full.logits[0, -1])
    assert last.logits.shape[1] == 1


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 4))
def test_reading_in_pieces_with_a_cache_equals_reading_at_once(cut: int) -> None:
    model = tiny_model()
    ids = torch.tensor([ROWS[0]])
    whole = model.forward(ids, cache=None)
    cache = DynamicCache(config=model.model.config)
    first = model.forward(ids[:, :cut], cache=cache)
    second = model.forward(ids[:, cut:], cache=cache)
    keys = torch.cat([first.keys, second.keys], dim=1)
    torch.testing.assert_close(keys, whole.keys, atol=1e-4, rtol=1e-4)
    assert cache.get_seq_length() == 5


def test_the_hook_changes_nothing_and_the_model_keeps_no_request() -> None:
    """Bit for bit the bare model, also from two threads at once."""
    model = tiny_model()
    ids = torch.tensor([ROWS[0]])
    with torch.inference_mode():
        bare = model.model(ids).logits
    forward = model.forward(ids, cache=None)
    assert forward.logits is not None
    assert torch.equal(bare, forward.logits)
    expected = [keys_of(model, row) for row in ROWS]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not torch.equal(keys_of(model, ROWS[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_model_without_attention_is_refused_with_the_reason() -> None:
    config = MambaConfig(vocab_size=320, hidden_size=16, num_hidden_layers=1, state_size=4)
    tokenizer = tiny_model().tokenizer
    with pytest.raises(ModelError, match="recurrent models have no MLP"):
        LanguageModel.wrap(MambaForCausalLM(config), tokenizer, name="mamba")


def test_ids_of_another_rank_are_refused(tiny: LanguageModel) -> None:
    with pytest.raises(InvalidInput, match="R, W"):
        tiny.forward(torch.tensor([1, 2]), cache=None)


def test_fingerprints_tell_weights_tokenizers_dtypes_and_hooks_apart(
    tiny_folder: Path, cache: ModelCache
) -> None:
    same = [tiny_model(seed=3).fingerprint for _ in range(2)]
    assert same[0] == same[1]
    others = [tiny_model(seed=4), tiny_model(seed=3, layers=3), tiny_model(seed=3, kind="qwen2")]
    others.append(tiny_model(seed=3, context_length=256))
    source = str(tiny_folder)
    full = LanguageModel.load(source, cache)
    half = LanguageModel.load(source, cache, dtype="bfloat16")
    names = {same[0], full.fingerprint, half.fingerprint, *(m.fingerprint for m in others)}
    assert len(names) == 7
    assert LanguageModel.load(source, cache).fingerprint == full.fingerprint
    assert half.forward(torch.tensor([[1]]), cache=None).keys.dtype == torch.float32


@pytest.mark.parametrize("vocab_size", [320, 49_152, 65_537])
def test_every_id_of_a_tiny_vocabulary_decodes_to_text(vocab_size: int) -> None:
    model = tiny_model(vocab_size=vocab_size)
    assert model.num_vocab == vocab_size
    assert all(model.decode([i]) for i in (0, 2, 300, 319, vocab_size - 1))


@pytest.mark.slow
def test_the_default_backbone_reads_a_known_text(smollm2: LanguageModel) -> None:
    from backbone.conversion_check import KNOWN_TEXTS, perplexity

    prose = KNOWN_TEXTS["prose"]
    found = perplexity(smollm2, prose)
    assert found == pytest.approx(STARTER_MODELS["smollm2-135m"].perplexities["prose"], rel=1e-3)
    scrambled = " ".join(sorted(prose.split()))
    assert perplexity(smollm2, scrambled) > 10 * found, "else the figure says nothing"
    assert smollm2.context_length == 8192
    assert smollm2.prefix_ids == ()


@pytest.mark.slow
def test_the_default_backbone_splits_digits_one_by_one(smollm2: LanguageModel) -> None:
    pieces = smollm2.tokenizer.convert_ids_to_tokens(smollm2.encode("x =  5, 1234"))
    assert pieces == ["x", "Ġ=", "ĠĠ", "5", ",", "Ġ", "1", "2", "3", "4"]
