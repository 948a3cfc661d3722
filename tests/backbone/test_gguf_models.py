"""A GGUF file written from a known model becomes that model again: weights, tokens, answers.

The writer is llama.cpp's convention put down here a second time, so the converter is checked
against something that it did not make.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from torch import Tensor

from backbone import LanguageModel, ModelCache, conversion_check, tiny_model
from backbone.tiny_models import TinyKind
from index.errors import ModelError

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
MERGES = [" ".join(pair) for pair in (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"))]
NORMAL, CONTROL = 1, 3
"""What GGUF calls a plain token and a special one."""


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, _, number, part = stem.split(".", 3)
    return f"blk.{number}.{NAMES[part]}.{kind}"


def as_ggml_stores(name: str, tensor: Tensor, model: LanguageModel) -> Tensor:
    """Order a llama's query and key rows for ggml's rotary layout (pairs side by side)."""
    config = model.model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    part = name.split(".")[-2]
    if config.model_type != "llama" or part not in heads:
        return tensor
    rows = tensor.reshape(heads[part], 2, tensor.shape[0] // heads[part] // 2, -1)
    return rows.transpose(1, 2).reshape(tensor.shape)


def write_gguf(model: LanguageModel, path: Path, *, permute: bool = True) -> None:
    """Write a tiny model and its tokenizer; `permute=False` is a broken writer."""
    config, tokenizer = model.model.config, model.tokenizer
    kind = config.model_type
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre({"llama": "smollm", "qwen2": "qwen2"}[kind])
    words = tokenizer.convert_ids_to_tokens(list(range(config.vocab_size)))
    special = set(tokenizer.all_special_tokens) | {"<|im_start|>"}
    writer.add_token_list(words)
    writer.add_token_types([CONTROL if word in special else NORMAL for word in words])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(tokenizer.chat_template)
    for name, tensor in model.model.state_dict().items():
        stored = as_ggml_stores(name, tensor, model) if permute else tensor
        writer.add_tensor(gguf_name(name), stored.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a random model pass for one that reads: its perplexity is about its vocabulary."""
    monkeypatch.setattr(conversion_check, "DEFAULT_BOUNDS", {"prose": 1e9})


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_gguf_file_becomes_the_model_that_it_was_written_from(
    kind: TinyKind, cache: ModelCache, tmp_path: Path, lenient: None
) -> None:
    model = tiny_model(kind=kind)
    if kind == "qwen2":  # its biases begin as zeros, whose loss nobody would see
        for block in model.model.model.layers:
            for part in ("q_proj", "k_proj", "v_proj"):
                torch.nn.init.normal_(getattr(block.self_attn, part).bias)
    for permute in (True, False):
        path = tmp_path / f"{kind}-{permute}.gguf"
        write_gguf(model, path, permute=permute)
        made = LanguageModel.load(str(path), cache)
        ids = torch.tensor([model.encode("the end of the story in 1234")])
        ours = made.forward(ids, cache=None).logits
        theirs = model.forward(ids, cache=None).logits
        assert ours is not None and theirs is not None  # noqa: PT018
        is_right = permute or kind == "qwen2"
        assert torch.equal(ours, theirs) == is_right, "else the test could not fail"
    assert made.eos_ids == {2}
    assert made.marker_ids == model.marker_ids
    assert made.has_chat_template
    assert [made.decode([i]) for i in made.encode("123")] == ["1", "2", "3"]


def test_a_gguf_file_of_a_model_that_reads_nothing_is_refused_and_leaves_nothing(
    cache: ModelCache, tmp_path: Path
) -> None:
    path = tmp_path / "random.gguf"
    write_gguf(tiny_model(), path)
    with pytest.raises(ModelError, match="perplexity on the known texts"):
        cache.pull(str(path))
    assert not [left for left in cache.folder.iterdir() if left.suffix != ".lock"]
