"""Embedders: the same vectors as sentence-transformers, counted right, nothing cut in silence."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from backbone import Embedder, ModelCache
from index.errors import InvalidInput, ModelError

TEXTS = ["hello", "the end of the story", "", "中文也可以。", "a" * 40, "the", "x y z"]


@pytest.fixture
def small(cache: ModelCache, tiny_encoder_folder: Callable[[int], Path]) -> Embedder:
    return Embedder.load(str(tiny_encoder_folder(0)), cache)


def test_vectors_equal_those_of_sentence_transformers_in_any_batch(
    cache: ModelCache, tiny_encoder_folder: Callable[[int], Path]
) -> None:
    folder = tiny_encoder_folder(1)
    ours = Embedder.load(str(folder), cache)
    theirs = SentenceTransformer(str(folder), device="cpu")
    many = TEXTS * 7  # 49: more than one batch
    expected = theirs.encode(many, prompt_name="passage", normalize_embeddings=True)
    np.testing.assert_allclose(ours.encode_passages(many), expected, atol=1e-5)
    for text in TEXTS:  # N = 1
        alone = theirs.encode([text], prompt_name="query", normalize_embeddings=True)
        np.testing.assert_allclose(ours.encode_queries([text]), alone, atol=1e-5)
    assert not np.allclose(ours.encode_queries(["x"]), ours.encode_passages(["x"]), atol=1e-3)


def test_no_texts_give_no_rows(small: Embedder) -> None:
    assert small.encode_passages([]).shape == (0, 32)
    assert small.encode_queries([]).shape == (0, 32)


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=40))
def test_vectors_have_length_one_in_the_order_of_the_texts(
    fast_embedder: Embedder, texts: list[str]
) -> None:
    vectors = fast_embedder.encode_passages(texts)
    assert vectors.dtype == np.float32
    for i, text in enumerate(texts):
        np.testing.assert_allclose(vectors[i], fast_embedder.encode_passages([text])[0], atol=1e-5)
        length = 1.0 if fast_embedder.count_tokens(text) else 0.0
        assert abs(float(np.linalg.norm(vectors[i])) - length) < 1e-5


def test_m3_a_passage_of_the_limit_is_read_whole_and_one_more_token_is_refused(
    small: Embedder,
) -> None:
    text = "1" * small.max_tokens
    assert small.count_tokens(text) == small.max_tokens
    changed = text[:-1] + "2"
    vectors = small.encode_passages([text, changed])
    assert not np.allclose(vectors[0], vectors[1], atol=1e-4), "the last token counts"
    with pytest.raises(InvalidInput, match="nothing is cut"):
        small.encode_passages(["fine", text + "3"])


def test_m3_a_long_query_is_read_to_its_end(small: Embedder) -> None:
    long = "1" * (small.max_tokens * 2)
    vectors = small.encode_queries([long + "4", long + "5", "short"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-4)
    np.testing.assert_allclose(vectors[2], small.encode_queries(["short"])[0], atol=1e-5)


def test_m2_two_embedders_of_the_same_size_have_different_fingerprints(
    cache: ModelCache, tiny_encoder_folder: Callable[[int], Path]
) -> None:
    first, second = tiny_encoder_folder(0), tiny_encoder_folder(1)
    embedders = [Embedder.load(str(folder), cache) for folder in (first, second)]
    assert embedders[0].dimension == embedders[1].dimension
    assert embedders[0].fingerprint != embedders[1].fingerprint
    again = ModelCache(cache.folder.with_name("elsewhere"))
    assert Embedder.load(str(first), again).fingerprint == embedders[0].fingerprint


def test_m2_another_prefix_or_pooling_is_another_fingerprint(
    cache: ModelCache, tiny_encoder_folder: Callable[[int], Path]
) -> None:
    folder = tiny_encoder_folder(2)
    seen = {Embedder.load(str(folder), cache).fingerprint}
    for file, old, new in (
        ("config_sentence_transformers.json", "say: ", "tell: "),
        ("1_Pooling/config.json", "mean", "cls"),
    ):
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        seen.add(Embedder.load(str(folder), cache).fingerprint)
    assert len(seen) == 3


def test_m3_count_and_limit_agree_for_the_static_model(fast_embedder: Embedder) -> None:
    assert fast_embedder.count_tokens("") == 0
    assert fast_embedder.dimension == 256
    assert fast_embedder.max_tokens > 100_000, "a static model has no limit of its own"


@pytest.mark.slow
def test_e5_finds_across_languages_and_uses_its_prefixes(e5: Embedder) -> None:
    passages = [
        "The giraffe is the tallest living animal; males reach 5.5 metres.",
        "长颈鹿是现存最高的动物，雄性高达5.5米。",
        "The central bank raised its interest rate by a quarter point.",
        "中央银行将利率提高了四分之一个百分点。",
    ]
    queries = ["How tall are giraffes?", "长颈鹿有多高？", "interest rate", "利率"]
    scores = e5.encode_queries(queries) @ e5.encode_passages(passages).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert (e5.dimension, e5.max_tokens) == (384, 507)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(text=st.text(max_size=60))
def test_m3_a_text_of_max_tokens_fits_the_model_with_prefix_and_specials(
    e5: Embedder, text: str
) -> None:
    """What the chunker counts is what the model reads: no text within the count is refused."""
    whole = (text + " measured words") * 60
    spans = e5.token_spans(whole)[: e5.max_tokens]
    passage = whole[spans[0][0] : spans[-1][1]]
    while e5.count_tokens(passage) > e5.max_tokens:
        passage = passage[:-1]
    assert e5.encode_passages([passage]).shape == (1, 384)


@pytest.mark.slow
def test_embedding_is_no_slower_than_bare_sentence_transformers(
    model_cache: ModelCache, shared_data: Path
) -> None:
    import json

    data = json.loads((shared_data / "xquad" / "xquad.en.json").read_text())["data"]
    texts = [p["context"][:400] for article in data for p in article["paragraphs"]][:40]
    ours = Embedder.load("minilm", model_cache)
    texts = [t for t in texts if ours.count_tokens(t) <= ours.max_tokens]
    theirs = SentenceTransformer(str(model_cache.pull("minilm")), device="cpu")
    assert len(texts) > 32
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    vectors = {}
    for _ in range(3):  # CPU time, interleaved, best of three: the machine is shared
        for name, run in (("ours", ours.encode_passages), ("theirs", theirs.encode)):
            start = time.process_time()
            vectors[name] = run(texts)
            times[name].append(time.process_time() - start)
    np.testing.assert_allclose(vectors["ours"], vectors["theirs"], atol=1e-5)
    assert min(times["ours"]) <= 1.1 * min(times["theirs"]), times


def test_an_embedder_that_wraps_texts_in_a_chat_is_refused_not_misread(
    tmp_path: Path,
) -> None:
    """sentence-transformers makes a chat of each text where the tokenizer has a template."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    from backbone.fingerprints import Identity
    from backbone.tiny_models import tiny_tokenizer

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    BertModel(BertConfig(vocab_size=320, **sizes)).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    modules = [Transformer(str(tmp_path)), Pooling(32, "mean")]
    model = SentenceTransformer(modules=modules, device="cpu")
    with pytest.raises(ModelError, match="does not know"):
        Embedder(model, name="chatty", identity=Identity("", "", ""))
