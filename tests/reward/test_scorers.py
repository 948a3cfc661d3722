"""Scorers on real tiny models: likelihoods and selections equal their definitions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from backbone import LanguageModel, ModelCache, tiny_model
from decoding.engine import Engine
from decoding.handles import Handle
from decoding.protocols import Scorer
from decoding.records import Completion, Request, TokenEvent, Usage
from index.errors import Busy, ConfigError, GraftError, InvalidInput, ModelError
from retriever import Reranker
from reward import (
    BestOfN,
    CrossEncoderScorer,
    MeanLogProb,
    QueryLikelihoodScorer,
    WeightedBestOfN,
    best_of_n,
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model(seed=3)


def completion(text: str, logprobs: tuple[float, ...] = (-1.0,)) -> Completion:
    tokens = tuple(TokenEvent(i, "", value) for i, value in enumerate(logprobs))
    return Completion(text, tuple(range(len(tokens))), "stop", tokens, Usage(1, len(tokens)))


def plain_likelihood(model: LanguageModel, query: str, passage: str) -> float:
    ids = model.encode("Passage: ") + model.encode(passage)
    ids += model.encode("\nPlease write a question based on this passage.\nQuestion:")
    wanted = model.encode(" " + query)
    whole = torch.tensor([ids + wanted])
    with torch.inference_mode():
        logp = model.model(input_ids=whole).logits[0].float().log_softmax(-1)
    picked = [logp[len(ids) + i - 1, token].item() for i, token in enumerate(wanted)]
    return sum(picked) / len(picked)


def test_query_likelihood_equals_a_plain_forward_for_one_and_for_several(
    model: LanguageModel,
) -> None:
    scorer = QueryLikelihoodScorer(model)
    passages = ["The cat sat on the mat.", "国际标准化组织", ""]
    values = scorer.score("Where did the cat sit?", passages)
    for value, passage in zip(values, passages, strict=True):
        expected = plain_likelihood(model, "Where did the cat sit?", passage)
        assert value == pytest.approx(expected, abs=1e-4)
    assert scorer.score("Where did the cat sit?", passages[1:2]) == pytest.approx(values[1:2])
    assert scorer.score("anything", []) == []
    assert all(value < 0 for value in values)


def test_query_likelihood_reads_completions_as_it_reads_texts(model: LanguageModel) -> None:
    scorer = QueryLikelihoodScorer(model)
    assert scorer.score("who", [completion("the man")]) == scorer.score("who", ["the man"])


def test_query_likelihood_fits_long_texts_and_refuses_empty_or_endless_queries(
    model: LanguageModel,
) -> None:
    scorer = QueryLikelihoodScorer(model)
    (value,) = scorer.score("who", ["word " * 2000])
    assert math.isfinite(value)
    with pytest.raises(InvalidInput):
        scorer.score("   ", ["text"])
    with pytest.raises(InvalidInput):
        scorer.score("word " * 2000, ["text"])


def test_mean_logprob_is_the_mean_and_minus_infinity_without_tokens() -> None:
    scorer = MeanLogProb()
    candidates = [completion("a", (-1.0, -3.0)), completion("b", ())]
    assert scorer.score("q", candidates) == [-2.0, -math.inf]


def test_s5_a_reranker_that_is_missing_is_an_error_at_construction(tmp_path: Path) -> None:
    for source in ("no-such-reranker", str(tmp_path / "nowhere")):
        with pytest.raises(GraftError) as caught:
            CrossEncoderScorer.load(source, ModelCache(tmp_path / "models"))
        assert isinstance(caught.value, ConfigError | ModelError)
        assert source in caught.value.message


@pytest.fixture(scope="module")
def cross_encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT cross-encoder with one output, as sentence-transformers saves it."""
    folder = tmp_path_factory.mktemp("models") / "tiny-cross"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "dog"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=1,
        initializer_range=0.5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        BertForSequenceClassification(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    ).save_pretrained(folder)
    return folder


def test_a_cross_encoder_scores_texts_and_completions_and_reranks_a_search(
    cross_encoder_folder: Path, tmp_path: Path
) -> None:
    scorer = CrossEncoderScorer.load(str(cross_encoder_folder), ModelCache(tmp_path))
    texts = ["the cat sat", "a dog", "on the mat"]
    values = scorer.score("who sat", texts)
    assert len(set(values)) == 3
    assert scorer.score("who sat", [completion(text) for text in texts]) == pytest.approx(values)
    for text, value in zip(texts, values, strict=True):
        assert scorer.score("who sat", [text]) == pytest.approx([value], abs=1e-5)
    assert scorer.score("who sat", []) == []
    as_scorer: Scorer = scorer
    as_reranker: Reranker = scorer
    assert as_scorer.kind == "final"
    assert as_reranker.name == str(cross_encoder_folder)


def test_best_of_n_takes_the_greatest_and_the_first_of_equals() -> None:
    candidates = [completion(text) for text in "abc"]
    assert BestOfN().select(candidates, [0.1, 0.9, 0.9]) == 1
    assert BestOfN().select(candidates[:1], [-5.0]) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1)), min_size=1, max_size=9))
def test_weighted_selection_takes_the_answer_with_the_greatest_sum(
    drawn: list[tuple[str, float]],
) -> None:
    candidates = [completion(text) for text, _ in drawn]
    scores = [score for _, score in drawn]
    totals = {text: sum(s for t, s in drawn if t == text) for text, _ in drawn}
    chosen = WeightedBestOfN().select(candidates, scores)
    assert totals[drawn[chosen][0]] == pytest.approx(max(totals.values()))
    same = [score for text, score in drawn if text == drawn[chosen][0]]
    assert scores[chosen] == max(same)


def test_selections_refuse_what_they_cannot_weigh() -> None:
    two = [completion("a"), completion("b")]
    with pytest.raises(InvalidInput, match=r"\[0, 1\]"):
        WeightedBestOfN().select(two, [0.5, -0.1])
    with pytest.raises(InvalidInput):
        BestOfN().select(two, [0.5])
    with pytest.raises(InvalidInput):
        BestOfN().select([], [])
    with pytest.raises(InvalidInput, match="nan"):
        BestOfN().select(two, [0.5, math.nan])


def test_best_of_n_draws_by_seed_scores_and_chooses(model: LanguageModel) -> None:
    request = Request(tuple(model.encode("the cat")), max_tokens=6, temperature=1.0, seed=10)
    scorer: Scorer = MeanLogProb()
    with Engine(model) as engine:
        found = best_of_n(engine, request, question="the cat", scorer=scorer, n=4)
        again = best_of_n(engine, request, question="the cat", scorer=scorer, n=4)
        alone = engine.submit(request).result()
    assert [c.ids for c in found.candidates] == [c.ids for c in again.candidates]
    assert found.candidates[0].ids == alone.ids
    assert len({c.ids for c in found.candidates}) > 1
    assert list(found.scores) == scorer.score("the cat", found.candidates)
    assert found.scores[found.chosen] == max(found.scores)
    assert found.best is found.candidates[found.chosen]


def test_best_of_n_refuses_n_equal_greedy_texts(model: LanguageModel) -> None:
    request = Request(tuple(model.encode("the cat")), max_tokens=2)
    with Engine(model) as engine:
        with pytest.raises(InvalidInput, match="temperature"):
            best_of_n(engine, request, question="q", scorer=MeanLogProb(), n=2)
        assert best_of_n(engine, request, question="q", scorer=MeanLogProb(), n=1).chosen == 0


class Recording:
    """A real engine that remembers the handles it gave."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.handles: list[Handle] = []

    def submit(self, request: Request) -> Handle:
        self.handles.append(self._engine.submit(request))
        return self.handles[-1]


def test_best_of_n_leaves_nothing_running_where_the_queue_is_full(model: LanguageModel) -> None:
    prompt = tuple(model.encode("the cat"))
    request = Request(prompt, max_tokens=400, temperature=1.0, ignore_eos=True)
    with Engine(model, max_queue=2) as engine:
        recording = Recording(engine)
        with pytest.raises(Busy):
            best_of_n(recording, request, question="q", scorer=MeanLogProb(), n=8)
        assert recording.handles
        assert all(handle.is_cancelled for handle in recording.handles)
