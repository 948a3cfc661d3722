"""Conversions: packed bytes to the right numbers, and wrong conversions noticed."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from backbone import Embedder, LanguageModel, ModelCache, tiny_model
from backbone import conversion_check as checking
from backbone.e5_format import Entry, PackedModel, Sizes, read
from backbone.gguf_header import read_settings
from backbone.gguf_model import repair
from index.errors import ModelError

SIZES = Sizes(4, 1, 1, 8, 4, 8, 1, 1e-12, 0, bos=0, eos=1, pad=2, unk=3)


@given(st.binary(min_size=16, max_size=16), st.floats(-8, 8, width=16))
def test_four_bit_blocks_unpack_as_their_definition_says(packed: bytes, scale: float) -> None:
    data = struct.pack("<e", scale) + packed
    model = PackedModel(SIZES, (), {}, {"w": Entry(0, 18)}, data)
    expected = [((b & 15) - 8) * scale for b in packed] + [((b >> 4) - 8) * scale for b in packed]
    np.testing.assert_array_equal(model.four_bits("w", 4, 8).ravel(), np.float32(expected))


def test_a_tensor_of_another_size_or_name_is_refused() -> None:
    model = PackedModel(SIZES, (), {}, {"w": Entry(0, 18), "v": Entry(0, 12)}, bytes(18))
    with pytest.raises(ModelError, match="expected 36 bytes"):
        model.four_bits("w", 8, 8)
    with pytest.raises(ModelError, match="expected a tensor"):
        model.floats("x", 4)
    assert model.floats("v", 5, 3).shape == (5, 3), "a shorter first axis is filled with zeros"
    with pytest.raises(ModelError, match="expected"):
        model.floats("v", 2)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_packed_model_are_a_named_error(data: bytes) -> None:
    for candidate in (data, b"E5S1" + data):
        with pytest.raises(ModelError):
            read(candidate)


def write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("tokenizer.ggml.pre", "smollm")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "中"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_uint32("llama.block_count", 30)
    writer.add_float32("eps", 0.5)
    writer.add_bool("yes", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_gguf_settings_are_read_past_arrays(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    settings = read_settings(path)
    assert settings["tokenizer.ggml.pre"] == "smollm"
    assert settings["llama.block_count"] == 30
    assert (settings["eps"], settings["yes"]) == (0.5, True)


def test_a_gguf_file_cut_at_any_byte_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        try:
            found = read_settings(path)
        except ModelError:
            continue
        assert len(found) == 5, "only padding after the settings may be missing"


def test_a_gguf_file_that_cannot_be_converted_is_a_named_error(
    cache: ModelCache, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    with pytest.raises(ModelError, match="cannot be converted"):
        cache.pull(str(path))


def test_the_repaired_tokenizer_splits_digits_and_another_stays() -> None:
    for pre_type, pieces in (("smollm", 3), ("gpt-2", 1)):
        tokenizer = tiny_model().tokenizer
        repair(tokenizer, pre_type)
        split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("123")
        assert len(split) == pieces


def save(model: LanguageModel, folder: Path) -> Path:
    model.model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def test_the_check_passes_a_good_model_and_fails_a_broken_one(tmp_path: Path) -> None:
    good = save(tiny_model(), tmp_path / "good")
    report = checking.check(good, max_perplexity=1e9)
    assert report["round_trips"] == sorted(checking.ROUND_TRIPS)
    with pytest.raises(ModelError, match="perplexity"):
        checking.check(good, max_perplexity=2.0)
    broken = tiny_model()
    broken.tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    save(broken, tmp_path / "broken")
    with pytest.raises(ModelError, match="does not give these texts back"):
        checking.check(tmp_path / "broken", max_perplexity=1e9)


@pytest.mark.slow
def test_the_pulled_backbone_carries_its_conversion_check(
    model_cache: ModelCache, smollm2: LanguageModel
) -> None:
    check = model_cache.info("smollm2-135m").check
    assert check["round_trips"] == sorted(checking.ROUND_TRIPS)
    assert float(str(check["perplexity"])) <= float(str(check["max_perplexity"])) == 40.0
    assert check["pre_tokenizer"] == "smollm"


@pytest.mark.slow
def test_a_wrongly_converted_backbone_is_over_the_bound(model_cache: ModelCache) -> None:
    """The commonest mistake: query rows in GGUF's order instead of transformers'."""
    own = LanguageModel.load("smollm2-135m", model_cache)  # not the shared one: it is broken here
    with torch.no_grad():
        for block in own.model.model.layers:
            weight = block.self_attn.q_proj.weight
            swapped = weight.reshape(9, 2, 32, -1).transpose(1, 2).reshape(weight.shape)
            weight.copy_(swapped.clone())
    assert checking.perplexity(own, checking.KNOWN_TEXT) > 40.0


def test_the_fast_embedder_is_the_matrix_and_tokenizer_of_the_wheel(
    fast_embedder: Embedder,
) -> None:
    vectors = fast_embedder.encode_passages(["hello hello", "hello"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=0.2)
    assert float(vectors[0] @ vectors[1]) > 0.95, "a mean of the same words"
