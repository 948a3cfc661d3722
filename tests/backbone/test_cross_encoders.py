"""Cross-encoders: the same logits as sentence-transformers, long passages read to their end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import BertConfig, BertForSequenceClassification

from backbone import ModelCache, load_cross_encoder
from backbone.tiny_models import tiny_tokenizer
from index.errors import InvalidInput, ModelError


def save(folder: Path, *, num_labels: int = 1) -> str:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=320,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        pad_token_id=2,
        num_labels=num_labels,
    )
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_logits_equal_those_of_sentence_transformers(cache: ModelCache, tmp_path: Path) -> None:
    source = save(tmp_path / "cross")
    ours = load_cross_encoder(source, cache)
    theirs = CrossEncoder(source, device="cpu", activation_fn=torch.nn.Identity())
    passages = ["the end", "", "中文", "in the beginning was the word"] * 10
    expected = theirs.predict([("the question", passage) for passage in passages])
    np.testing.assert_allclose(ours.score("the question", passages), expected, atol=1e-5)
    alone = [ours.score("the question", [passage])[0] for passage in passages[:4]]
    np.testing.assert_allclose(alone, expected[:4], atol=1e-5)
    assert ours.score("the question", []) == []
    assert len(ours.fingerprint) == 64


def test_a_long_passage_scores_as_its_best_window(cache: ModelCache, tmp_path: Path) -> None:
    ours = load_cross_encoder(save(tmp_path / "cross"), cache)
    passage = "".join(f"{i} " for i in range(400))
    windows = ours._windows(passage, 100)
    assert len(windows) > 2
    assert "".join(passage.split())[-12:] in "".join(windows[-1].split()), "read to the end"
    room = ours.max_tokens - ours._plain.count("what")  # this tokenizer adds no specials
    best = max(ours.score("what", ours._windows(passage, room)))
    assert ours.score("what", [passage])[0] == pytest.approx(best, abs=1e-4)


def test_a_query_that_leaves_no_room_is_refused(cache: ModelCache, tmp_path: Path) -> None:
    ours = load_cross_encoder(save(tmp_path / "cross"), cache)
    with pytest.raises(InvalidInput, match="shorten the query"):
        ours.score("1" * 120, ["x"])


def test_a_classifier_of_several_classes_is_no_cross_encoder(
    cache: ModelCache, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="one output"):
        load_cross_encoder(save(tmp_path / "cross", num_labels=3), cache)
