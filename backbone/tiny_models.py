"""A kind and a seed in, a tiny random language model with a byte-level tokenizer out.

For tests and for measuring everything but a model's wisdom: real transformers classes, real caches,
a chat template and special tokens. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)

from backbone.language_models import LanguageModel
from index.errors import InvalidInput

TinyKind = Literal[
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3", "gpt2", "gpt_neox", "phi", "opt"
]
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MERGES = (
    "t h|th e|Ġ the|i n|e r|a n|Ġ t|Ġ a|o n|r e|an d|e n|o r|Ġ and|in g|i s|a t|e s|Ġ o|o u|"
    "l l|Ġ w|Ġ s|i t|Ä ł|ä ¸|ð Ł"
)
_GPT2_NAMES = {"n_embd": "width", "n_layer": "layers", "n_head": "heads", "n_positions": "context"}


def tiny_model(
    vocab_size: int = 320,
    layers: int = 2,
    seed: int = 0,
    kind: TinyKind = "llama",
    *,
    context_length: int = 512,
    sliding_window: int | None = None,
) -> LanguageModel:
    """Make a random model: width 32, 4 heads, fp32; the same arguments give the same weights.

    Every id of the vocabulary decodes to a text. `sliding_window` is for kinds that have one
    (mistral, gemma3). Raises InvalidInput for an unknown kind or a vocabulary under 300.
    """
    if kind not in get_args(TinyKind):
        raise InvalidInput(f"expected a kind of {get_args(TinyKind)}, came {kind!r}", param="kind")
    tokenizer = tiny_tokenizer(vocab_size)
    config = _config(kind, vocab_size, layers, context_length, sliding_window)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            # The usual 0.02 makes tiny models nearly constant: give them something to say.
            if parameter.ndim >= 2:
                torch.nn.init.normal_(parameter, std=0.3)
    return LanguageModel.wrap(model, tokenizer, name=f"tiny-{kind}-{seed}")


def tiny_tokenizer(vocab_size: int = 320) -> PreTrainedTokenizerFast:
    """Make a byte-level BPE tokenizer with a few merges, ChatML markers and pad equal to end."""
    if vocab_size < 300:
        raise InvalidInput(f"expected a vocabulary of at least 300, came {vocab_size}")
    merges = [(a, b) for a, b in (merge.split(" ") for merge in _MERGES.split("|"))]
    words = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [a + b for a, b in merges]
    words += [f"w{i}" for i in range(vocab_size - len(words))]
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIALS[0],
        eos_token=SPECIALS[2],
        pad_token=SPECIALS[2],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _config(
    kind: TinyKind, vocab_size: int, layers: int, context: int, window: int | None
) -> PretrainedConfig:
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "bos_token_id": 0, "eos_token_id": 2}
    sizes["pad_token_id"] = 2
    if kind == "gpt2":
        values = {"width": 32, "layers": layers, "heads": 4, "context": context}
        sizes |= {name: values[ours] for name, ours in _GPT2_NAMES.items()}
    else:
        sizes |= {
            "hidden_size": 32,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "max_position_embeddings": context,
            "tie_word_embeddings": False,
        }
    sizes |= _extras(kind)
    if window is not None:
        if kind not in ("mistral", "gemma3"):
            raise InvalidInput(f"kind {kind!r} has no sliding window; use mistral or gemma3")
        sizes["sliding_window"] = window
    return AutoConfig.for_model("gemma3_text" if kind == "gemma3" else kind, **sizes)


def _extras(kind: TinyKind) -> Mapping[str, Any]:
    if kind in ("gpt2", "gpt_neox"):
        return {} if kind == "gpt2" else {"intermediate_size": 64}
    if kind == "opt":
        return {"ffn_dim": 64, "word_embed_proj_dim": 32, "do_layer_norm_before": True}
    extras: dict[str, Any] = {"intermediate_size": 64, "num_key_value_heads": 2}
    if kind in ("qwen3", "gemma", "gemma3", "mistral"):
        extras["head_dim"] = 8
    return extras
