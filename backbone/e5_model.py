"""A packed multilingual-e5-small in, a sentence-transformers folder out (BERT, mean pooling).

Knows nothing of how the file is laid out (`e5_format`) or where it came from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from backbone import e5_format
from backbone.e5_format import PackedModel
from backbone.quiet import quietly
from backbone.recipes import E5_SMALL
from index.errors import ModelError
from index.records import Progress

MAX_TOKENS = 512
_LINEAR = (
    ("q", "attention.self.query"),
    ("k", "attention.self.key"),
    ("v", "attention.self.value"),
    ("ao", "attention.output.dense"),
    ("fi", "intermediate.dense"),
    ("fo", "output.dense"),
)
_NORMS = (("aln", "attention.output.LayerNorm"), ("oln", "output.LayerNorm"))
# What the model must say of texts that mean the same, against one that does not.
_SAME = (("query: How tall is a giraffe?", "passage: Giraffes are up to 5.5 metres tall."),
         ("query: 长颈鹿有多高？", "passage: 长颈鹿身高可达5.5米。"))  # fmt: skip
_OTHER = "passage: The central bank raised interest rates by a quarter point."


def convert(raw: Path, model: Path, *, progress: Progress) -> Mapping[str, object]:
    """Write a sentence-transformers folder and check it on six sentences.

    Raises ModelError for a file that is no packed e5, or a conversion that embeds wrongly.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    packed = e5_format.read(next(raw.glob("*.bin")).read_bytes())
    progress("convert e5", 1, 4, "steps")
    tokenizer = make_tokenizer(packed)
    progress("convert e5", 2, 4, "steps")
    bert = make_bert(packed)
    plain = raw / "bert"
    with quietly():
        bert.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        progress("convert e5", 3, 4, "steps")
        modules = [Transformer(str(plain)), Pooling(packed.sizes.hidden, "mean"), Normalize()]
        embedder = SentenceTransformer(
            modules=modules, device="cpu", prompts=dict(E5_SMALL.prompts)
        )
        embedder.max_seq_length = MAX_TOKENS
        report = _check(embedder)
        embedder.save_pretrained(str(model), create_model_card=False)
    progress("convert e5", 4, 4, "steps")
    return report


def make_bert(packed: PackedModel) -> BertModel:
    """Build the encoder with the packed weights, fp32."""
    sizes = packed.sizes
    config = BertConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.feed_forward,
        max_position_embeddings=sizes.positions,
        type_vocab_size=sizes.token_types,
        layer_norm_eps=sizes.epsilon,
        pad_token_id=sizes.pad,
    )
    bert = BertModel(config)
    # The pooler is never run (mean pooling); zeros keep the weights' hash the same everywhere.
    torch.nn.init.zeros_(bert.pooler.dense.weight)
    torch.nn.init.zeros_(bert.pooler.dense.bias)
    result = bert.load_state_dict(_weights(packed), strict=False)
    missing = [name for name in result.missing_keys if not name.startswith("pooler.")]
    if missing or result.unexpected_keys:
        raise ModelError(f"weights missing: {missing}, unexpected: {result.unexpected_keys}")
    return bert.eval()


def _weights(packed: PackedModel) -> dict[str, Tensor]:
    sizes = packed.sizes
    width, wide = sizes.hidden, sizes.feed_forward
    arrays = {
        "embeddings.word_embeddings.weight": packed.four_bits("emb.word", sizes.vocabulary, width),
        "embeddings.position_embeddings.weight": packed.floats("emb.pos", sizes.positions, width),
        "embeddings.token_type_embeddings.weight": packed.floats(
            "emb.type", sizes.token_types, width
        ),
        "embeddings.LayerNorm.weight": packed.floats("emb.ln.w", width),
        "embeddings.LayerNorm.bias": packed.floats("emb.ln.b", width),
    }
    for layer in range(sizes.layers):
        theirs, ours = f"l{layer}.", f"encoder.layer.{layer}."
        for short, name in _LINEAR:
            rows, columns = {"fi": (wide, width), "fo": (width, wide)}.get(short, (width, width))
            matrix = packed.four_bits(f"{theirs}{short}.w", rows, columns)
            arrays[f"{ours}{name}.weight"] = matrix
            arrays[f"{ours}{name}.bias"] = packed.floats(f"{theirs}{short}.b", rows)
        for short, name in _NORMS:
            arrays[f"{ours}{name}.weight"] = packed.floats(f"{theirs}{short}.w", width)
            arrays[f"{ours}{name}.bias"] = packed.floats(f"{theirs}{short}.b", width)
    return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}


def make_tokenizer(packed: PackedModel) -> PreTrainedTokenizerFast:
    """Build the XLM-R style Unigram tokenizer: NFKC where the file's map agrees with it, and the
    few code points that it drops or turns into blanks before that."""
    sizes, pieces = packed.sizes, packed.pieces
    tokenizer = Tokenizer(models.Unigram(list(pieces), unk_id=sizes.unk, byte_fallback=False))
    odd = {a: b for a, b in packed.normalised.items() if unicodedata.normalize("NFKC", a) != b}
    steps: list[normalizers.Normalizer] = []
    for becomes in ("", " "):
        if characters := "".join(a for a, b in odd.items() if b == becomes):
            steps.append(normalizers.Replace(Regex(f"[{re.escape(characters)}]"), becomes))
    steps += [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="always", split=False
    )
    tokenizer.decoder = decoders.Metaspace()
    bos, eos, pad, unk = (pieces[i][0] for i in (sizes.bos, sizes.eos, sizes.pad, sizes.unk))
    tokenizer.add_special_tokens([AddedToken(w, special=True) for w in (bos, pad, eos, unk)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, sizes.bos), (eos, sizes.eos)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        eos_token=eos,
        cls_token=bos,
        sep_token=eos,
        pad_token=pad,
        unk_token=unk,
        model_max_length=MAX_TOKENS,
    )


def _check(embedder: object) -> dict[str, object]:
    """Embed pairs that mean the same, in English and Chinese, and one passage that differs."""
    texts = [text for pair in _SAME for text in pair] + [_OTHER]
    vectors = embedder.encode(texts)  # type: ignore[attr-defined]
    margins = [
        float(vectors[2 * i] @ vectors[2 * i + 1] - vectors[2 * i] @ vectors[-1])
        for i in range(len(_SAME))
    ]
    if min(margins) < 0.05:
        raise ModelError(f"the converted e5 fails its check: margins {margins}, expected over 0.05")
    return {"margins": margins, "dimension": int(vectors.shape[1])}
