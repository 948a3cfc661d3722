"""Conversions: packed bytes to the right numbers, and wrong conversions noticed."""

from __future__ import annotations

import copy
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from backbone import STARTER_MODELS, Embedder, LanguageModel, ModelCache, tiny_model
from backbone import conversion_check as checking
from backbone.e5_format import Entry, PackedModel, Sizes, read
from backbone.fingerprints import Identity
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
    model = tiny_model()
    good = save(model, tmp_path / "good")
    right = {name: checking.perplexity(model, text) for name, text in checking.KNOWN_TEXTS.items()}
    report = checking.check(good, expected=right)
    assert report["round_trips"] == sorted(checking.ROUND_TRIPS)
    for name in right:
        for factor in (1 - 2 * checking.TOLERANCE, 1 + 2 * checking.TOLERANCE):
            with pytest.raises(ModelError, match="perplexity"):
                checking.check(good, expected={**right, name: right[name] * factor})
    broken = tiny_model()
    broken.tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    save(broken, tmp_path / "broken")
    with pytest.raises(ModelError, match="does not give these texts back"):
        checking.check(tmp_path / "broken", expected=right)


def test_a_model_of_no_recipe_must_read_one_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()  # random: as good as a wrong conversion
    with pytest.raises(ModelError, match="use the model's safetensors"):
        checking.read(model, {})
    monkeypatch.setattr(checking, "DEFAULT_BOUNDS", {"prose": 1.0, "code": 1e9})
    assert set(str(checking.read(model, {})["perplexity"])) > set("prose")


BACKBONES = {alias: r for alias, r in STARTER_MODELS.items() if r.role == "backbone"}


def test_every_backbone_of_the_starter_set_pins_what_it_reads() -> None:
    for recipe in BACKBONES.values():
        assert set(recipe.perplexities) == set(checking.KNOWN_TEXTS)
    assert all(recipe.kind != "gguf" for a, recipe in STARTER_MODELS.items() if a not in BACKBONES)


def own_copy(alias: str, cache: ModelCache) -> LanguageModel:
    """Load a pulled backbone afresh, to be broken; skips where it was never asked for."""
    if not cache.info(alias).is_pulled and alias != "smollm2-135m":
        pytest.skip(f"{alias} is optional; `graft models pull {alias}` to test it")
    return LanguageModel.load(alias, cache)


def in_the_order_of_gguf(model: LanguageModel) -> None:
    """The commonest mistake: rows of queries and keys as another rotary layout wants them."""
    config = model.model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    half = config.hidden_size // config.num_attention_heads // 2
    for block in model.model.model.layers:
        for name, num_heads in heads.items():
            layer = getattr(block.self_attn, name)
            for tensor in [layer.weight] + ([] if layer.bias is None else [layer.bias]):
                rows = tensor.reshape(num_heads, 2, half, -1).transpose(1, 2)
                tensor.copy_(rows.reshape(tensor.shape).clone())


def with_another_rotary_base(model: LanguageModel) -> None:
    rotary = model.model.model.rotary_emb
    rotary.inv_freq.copy_(rotary.inv_freq**1.2)


def with_numbers_kept_whole(model: LanguageModel) -> LanguageModel:
    """What transformers' converter makes of the tokenizer when nobody repairs it."""
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True
    )
    return LanguageModel(model.model, tokenizer, name="own", identity=Identity("", "", ""))


@pytest.mark.slow
@pytest.mark.parametrize("alias", BACKBONES)
def test_a_backbone_reads_as_its_recipe_says_and_a_wrongly_converted_one_does_not(
    alias: str, model_cache: ModelCache
) -> None:
    own = own_copy(alias, model_cache)
    expected = BACKBONES[alias].perplexities
    found = checking.read(own, expected)["perplexity"]
    assert found == pytest.approx(expected, rel=1e-3)
    assert all(value <= checking.DEFAULT_BOUNDS[name] for name, value in expected.items())
    with pytest.raises(ModelError, match="perplexity"):
        checking.read(with_numbers_kept_whole(own), {"code": expected["code"]})
    frequencies = own.model.model.rotary_emb.inv_freq.clone()
    with_another_rotary_base(own)
    with pytest.raises(ModelError, match="perplexity"):
        checking.read(own, {"prose": expected["prose"]})
    own.model.model.rotary_emb.inv_freq.copy_(frequencies)
    in_the_order_of_gguf(own)
    with pytest.raises(ModelError, match="perplexity"):
        checking.read(own, {})  # the gross mistake is seen without a recipe too


@pytest.mark.slow
def test_the_pulled_backbone_carries_its_conversion_check(
    model_cache: ModelCache, smollm2: LanguageModel
) -> None:
    check = model_cache.info(smollm2.name).check
    assert check["round_trips"] == sorted(checking.ROUND_TRIPS)
    assert check["pre_tokenizer"] == "smollm"
    assert "perplexity" in check


def test_the_fast_embedder_is_the_matrix_and_tokenizer_of_the_wheel(
    fast_embedder: Embedder,
) -> None:
    vectors = fast_embedder.encode_passages(["hello hello", "hello"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=0.2)
    assert float(vectors[0] @ vectors[1]) > 0.95, "a mean of the same words"
