"""Plain tokenisation: spans that cover the text exactly, markers that stay text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models

from backbone import Embedder, LanguageModel
from backbone.spans import PlainTokenizer, covering

MARKERS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "start|>", "</s>", "<s>"]
HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(MARKERS),
        st.text(max_size=8),
        st.sampled_from(["the 中文。", "👩‍👩‍👧", " \n\t ", "e\u0301", "x =  5", "\ud800", "국제"]),
    ),
    max_size=8,
).map("".join)


def cover(spans: list[tuple[int, int]]) -> set[int]:
    return {i for start, end in spans for i in range(start, end)}


@given(HOSTILE)
def test_e11_a_text_gives_no_marker_and_its_spans_cover_exactly_it(text: str) -> None:
    model = tiny()
    ids, spans = model.encode_spans(text)
    assert ids == model.encode(text)
    assert len(ids) == len(spans)
    assert cover(spans) == set(range(len(text)))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert model.marker_ids.isdisjoint(ids)
    assert model.decode(ids) == text.replace("\ud800", "\ufffd")


_MODELS: list[LanguageModel] = []


def tiny() -> LanguageModel:
    if not _MODELS:
        from backbone import tiny_model

        _MODELS.append(tiny_model())
    return _MODELS[0]


def test_the_bytes_of_one_character_share_its_span(tiny: LanguageModel) -> None:
    ids, spans = tiny.encode_spans("a😀中")
    assert spans[0] == (0, 1)
    assert set(spans) == {(0, 1), (1, 2), (2, 3)}
    assert len(ids) > 3, "else nothing was split and this test shows nothing"


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(text=HOSTILE)
def test_e11_spans_of_the_real_backbone_cover_the_text(smollm2: LanguageModel, text: str) -> None:
    ids, spans = smollm2.encode_spans(text)
    assert cover(spans) == (set(range(len(text))) if ids else set())
    assert smollm2.marker_ids.isdisjoint(ids)
    # SmolLM2 has no token for some bytes: of control characters and of planes 4 and up.
    if all(c in "\n\t" or " " <= c < "\U00040000" for c in text) and "\x7f" not in text:
        assert smollm2.decode(ids) == text.replace("\ud800", "\ufffd")


@settings(max_examples=150, deadline=None)
@given(text=HOSTILE)
def test_embedder_spans_ascend_within_the_text_and_match_its_counts(
    fast_embedder: Embedder, text: str
) -> None:
    spans = fast_embedder.token_spans(text)
    assert len(spans) == fast_embedder.count_tokens(text)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_covering_covers_whatever_a_tokenizer_reports(
    spans: list[tuple[int, int]], length: int
) -> None:
    result = covering(spans, length)
    assert cover(result) == set(range(length))
    assert all(0 <= start <= end <= length for start, end in result)


def test_a_marker_that_is_also_a_word_of_the_vocabulary_stays_text() -> None:
    """Unigram models may choose the piece `</s>` by itself; then it is cut in two."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((c, -5.0) for c in "</s>ab ")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    plain = PlainTokenizer.copy(tokenizer)
    tokens = plain.encode_spans("a</s>b</s>")
    assert 1 not in tokens.ids
    assert cover(tokens.spans) == set(range(10))
