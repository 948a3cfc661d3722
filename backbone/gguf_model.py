"""A GGUF file in, a folder with fp32 safetensors and a repaired tokenizer out, checked.

transformers does the conversion (dequantised, so that it can be saved); what it drops of the
tokenizer is put back here. Knows nothing of where the file came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedTokenizerFast,
    modeling_gguf_pytorch_utils,
)

from backbone import conversion_check, gguf_header
from backbone.quiet import quietly
from index.errors import ModelError
from index.records import Progress

SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})
"""Values of `tokenizer.ggml.pre` whose models saw every digit apart; the converter forgets it."""
_STEPS = 4
_Item = TypeVar("_Item")


def convert(
    path: Path, model_folder: Path, *, expected: Mapping[str, float], progress: Progress
) -> Mapping[str, object]:
    """Convert once; return the check's report. `expected` is the recipe's: text → perplexity.

    Raises ModelError for a file that transformers cannot convert or a conversion that is wrong.
    """
    settings = gguf_header.read_settings(path)
    progress("convert gguf", 0, _STEPS, "steps")
    try:
        with quietly(), _tensors_reported(progress):
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            progress("convert gguf", 1, _STEPS, "steps")
            repair(tokenizer, str(settings.get("tokenizer.ggml.pre", "")))
            tokenizer.save_pretrained(model_folder)
            model = AutoModelForCausalLM.from_pretrained(
                path.parent,
                gguf_file=path.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
            )
            progress("convert gguf", 2, _STEPS, "steps")
            model.save_pretrained(model_folder)
    except (ImportError, ValueError, KeyError, OSError) as error:
        raise ModelError(f"{path.name!r} cannot be converted: {error}") from error
    progress("convert gguf", 3, _STEPS, "steps")
    del model
    report = conversion_check.check(model_folder, expected=expected)
    progress("convert gguf", _STEPS, _STEPS, "steps")
    return {**report, "pre_tokenizer": str(settings.get("tokenizer.ggml.pre", "unknown"))}


def repair(tokenizer: PreTrainedTokenizerFast, pre_type: str) -> None:
    """Split digits one by one where the model was trained so ("x =  5" differs otherwise)."""
    if pre_type in SINGLE_DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


@contextmanager
def _tensors_reported(progress: Progress) -> Iterator[None]:
    """Have transformers count its tensors to our progress instead of a bar of its own."""
    original = getattr(modeling_gguf_pytorch_utils, "tqdm", None)

    def count(tensors: Sequence[_Item], **_: object) -> Iterator[_Item]:
        for number, tensor in enumerate(tensors, start=1):
            progress("unpack weights", number, len(tensors), "tensors")
            yield tensor

    modeling_gguf_pytorch_utils.tqdm = count
    try:
        yield
    finally:
        modeling_gguf_pytorch_utils.tqdm = original
