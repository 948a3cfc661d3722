"""WordLlama's vectors and tokenizer in, a sentence-transformers folder out (StaticEmbedding).

Knows nothing of where the files came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from index.errors import ModelError

_NAME = "embedding.weight"


def convert(raw: Path, model: Path) -> Mapping[str, object]:
    """Write a sentence-transformers folder; report its vocabulary and width."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    weights = load_file(raw / "weights.safetensors")
    tokenizer = Tokenizer.from_file(str(raw / "tokenizer.json"))
    vectors = weights.get(_NAME)
    if vectors is None or vectors.shape[0] != tokenizer.get_vocab_size():
        raise ModelError(
            f"expected {_NAME} with one row for each of {tokenizer.get_vocab_size()} tokens, "
            f"came { ({name: tuple(w.shape) for name, w in weights.items()}) }"
        )
    static = StaticEmbedding(tokenizer, embedding_weights=vectors.to(torch.float32))
    SentenceTransformer(modules=[static, Normalize()], device="cpu").save_pretrained(
        str(model), create_model_card=False
    )
    return {"vocabulary": int(vectors.shape[0]), "dimension": int(vectors.shape[1])}
