"""Keys of a document: context, padding, borders, empty texts, progress, cancel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from backbone import LanguageModel, tiny_model
from index.errors import Cancelled, InvalidInput
from knn_lm import build_arrays
from knn_lm.building import hidden_states, windows

KINDS = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3", "gpt2", "gpt_neox", "phi", "opt"]
MODEL = tiny_model(vocab_size=400)
TEXT = "the other and the in on, 猫 and é 🙂 " * 12


@given(st.integers(0, 300), st.integers(1, 40), st.data())
def test_windows_give_each_token_one_key_with_the_context_that_was_promised(
    num: int, window: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, window))
    covered: list[int] = []
    for part in windows(num, window, stride):
        assert part.end - part.start <= window
        for at in range(part.first, part.end):
            assert at - part.start >= min(at, window - stride)
        covered += range(part.first, part.end)
    assert covered == list(range(num))


def _states(model: LanguageModel, rows: list[list[int]]) -> list[torch.Tensor]:
    return hidden_states(model, rows)


def _left_padded(model: LanguageModel, row: list[int], width: int) -> torch.Tensor:
    pad = width - len(row)
    mask = torch.tensor([[0] * pad + [1] * len(row)])
    return model.forward(
        torch.tensor([[2] * pad + row]),
        cache=None,
        attention_mask=mask,
        position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
        want_logits=False,
    ).keys[0, pad:]


@pytest.mark.parametrize("kind", KINDS)
def test_t2_keys_are_the_same_alone_in_a_batch_and_padded_left_or_right(kind: str) -> None:
    model = tiny_model(kind=kind)  # type: ignore[arg-type]
    rows = [list(range(3, 40)), [5, 6, 7], [9], list(range(60, 80))]
    for row, batched in zip(rows, _states(model, rows), strict=True):
        (alone,) = _states(model, [row])
        assert alone.shape == (len(row), model.key_dim)
        assert torch.allclose(alone, batched, atol=1e-4)
        assert torch.allclose(alone, _left_padded(model, row, 40), atol=1e-4)


def test_e12_padding_is_masked_by_length_even_where_it_looks_like_an_end_token() -> None:
    (end,) = MODEL.eos_ids
    rows = [[5, end, end, 6, end], [7]]
    for row, batched in zip(rows, _states(MODEL, rows), strict=True):
        assert torch.allclose(_states(MODEL, [row])[0], batched, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_the_state_before_its_token_as_decoding_sees_it(kind: str) -> None:
    model = tiny_model(kind=kind)  # type: ignore[arg-type]
    arrays = build_arrays(model, TEXT)
    ids = model.encode(TEXT)
    assert arrays.tokens.tolist() == ids
    whole = model.forward(torch.tensor([[*model.prefix_ids, *ids]]), cache=None).keys[0]
    expected = whole[len(model.prefix_ids) : -1].half().float().numpy()
    assert np.allclose(arrays.keys.astype(np.float32), expected, atol=5e-3, rtol=2e-3)
    assert TEXT[arrays.starts[0] : arrays.ends[0]] == "the"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_a_long_document_keeps_at_least_half_a_window_of_context(kind: str) -> None:
    """Change one token: keys up to half a window on notice, and keys before it never do."""
    model = tiny_model(kind=kind, sliding_window=24 if kind == "gemma3" else None)  # type: ignore[arg-type]
    text = "qzxvkjqQ" * 20  # no merges: a token is a letter
    before = build_arrays(model, text, window=32)
    assert len(before.tokens) == len(text)
    for at in (20, 63, 64, 100):
        changed = build_arrays(model, f"{text[:at]}Z{text[at + 1 :]}", window=32)
        differs = (before.keys != changed.keys).any(axis=1)
        assert not differs[:at].any()
        assert differs[at : at + 17].all()


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_a_document_longer_than_the_models_positions_is_read_on_afresh(kind: str) -> None:
    model = tiny_model(kind=kind, context_length=64)  # type: ignore[arg-type]
    arrays = build_arrays(model, TEXT, window=32)
    ids = model.encode(TEXT)
    assert len(ids) > 150
    assert np.isfinite(arrays.keys).all()
    fresh = _states(model, [ids[64 - 16 : 80]])[0][16:].half().float()
    assert np.allclose(arrays.keys[64:80].astype(np.float32), fresh, atol=5e-3, rtol=2e-3)


def test_a_forced_begin_token_stands_before_the_text_and_gives_no_entry() -> None:
    tokenizer = tiny_model(vocab_size=400).tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    model = LanguageModel.wrap(MODEL.model, tokenizer, name="with-bos")
    assert model.prefix_ids == (0,)
    arrays = build_arrays(model, "the other and")
    ids = model.encode("the other and")
    (expected,) = _states(model, [[0, *ids[:-1]]])
    assert arrays.tokens.tolist() == ids
    assert np.allclose(arrays.keys.astype(np.float32), expected[1:], atol=5e-3, rtol=2e-3)


def test_no_key_knows_another_document_or_what_comes_after_it() -> None:
    before = build_arrays(MODEL, TEXT)
    build_arrays(MODEL, "something else entirely")
    longer = build_arrays(MODEL, TEXT + "and more", window=512)
    assert np.array_equal(before.keys, build_arrays(MODEL, TEXT).keys)
    num = len(before.keys) - 2
    assert np.allclose(before.keys[:num], longer.keys[:num], atol=2e-3)


@pytest.mark.parametrize("text", ["", "t", "the", "猫", "\n", "<|im_start|>"])
def test_empty_and_tiny_documents_are_fine(text: str) -> None:
    arrays = build_arrays(MODEL, text)
    num = len(MODEL.encode(text))
    assert len(arrays.tokens) == len(arrays.starts) == len(arrays.ends) == num
    assert arrays.keys.shape == (max(0, num - 1), MODEL.key_dim)
    assert arrays.keys.dtype == np.float16


@given(st.text(max_size=40))
def test_the_spans_of_the_tokens_cover_the_text(text: str) -> None:
    arrays = build_arrays(MODEL, text)
    covered = {at for a, b in zip(arrays.starts, arrays.ends, strict=True) for at in range(a, b)}
    assert covered == set(range(len(text)))


def test_progress_rises_to_the_number_of_keys_and_cancel_stops_the_work() -> None:
    seen: list[tuple[int, int]] = []
    arrays = build_arrays(
        MODEL,
        TEXT * 12,
        window=64,
        progress=lambda stage, done, total, unit: seen.append((done, total)),
    )
    assert len(seen) > 1
    assert seen == sorted(seen)
    assert seen[-1] == (len(arrays.keys), len(arrays.keys))
    with pytest.raises(Cancelled):
        build_arrays(MODEL, TEXT, cancelled=lambda: True)


@pytest.mark.parametrize(
    ("window", "stride"), [(0, None), (-5, None), (600, 513), (8, 9), (8, 0), (8, -1)]
)
def test_sizes_that_make_no_sense_are_refused(window: int, stride: int | None) -> None:
    with pytest.raises(InvalidInput, match="stride"):
        build_arrays(MODEL, TEXT, window=window, stride=stride)
