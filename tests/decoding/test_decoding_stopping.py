"""Stop strings and incremental text: what is shown is final, whatever the cut into tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from backbone import tiny_model
from decoding.detokenizing import Detokenizer
from decoding.stopping import StopStrings

MODEL = tiny_model(vocab_size=400)
tokens = st.lists(st.text("ab\n", max_size=4), max_size=12)
stops = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3)


def _naive(text: str, ends: list[str]) -> tuple[str, bool]:
    """Read character by character until some stop string is complete."""
    for end in range(1, len(text) + 1):
        met = [stop for stop in ends if text[:end].endswith(stop)]
        if met:
            return text[: end - max(map(len, met))], True
    return text, False


def _run(pieces: list[str], ends: list[str]) -> tuple[list[str], bool]:
    matcher = StopStrings(ends)
    shown: list[str] = []
    for piece in pieces:
        released = matcher.push(piece)
        shown += released.texts
        if released.is_stopped:
            return shown, True
    return shown + list(matcher.finish().texts), False


@given(tokens, stops)
def test_e1_the_text_ends_where_a_reader_of_single_characters_would_end_it(
    pieces: list[str], ends: list[str]
) -> None:
    shown, is_stopped = _run(pieces, ends)
    assert ("".join(shown), is_stopped) == _naive("".join(pieces), ends)
    if not is_stopped:
        assert shown == pieces


@given(tokens, stops)
def test_what_was_shown_is_never_taken_back(pieces: list[str], ends: list[str]) -> None:
    final, _ = _naive("".join(pieces), ends)
    matcher, shown = StopStrings(ends), ""
    for piece in pieces:
        released = matcher.push(piece)
        shown += "".join(released.texts)
        assert final.startswith(shown)
        if released.is_stopped:
            break


def test_without_stop_strings_every_token_is_shown_at_once() -> None:
    matcher = StopStrings(())
    assert [matcher.push(piece).texts for piece in ("a", "", "bc")] == [("a",), ("",), ("bc",)]


def test_only_the_tokens_that_may_begin_a_stop_string_wait() -> None:
    matcher = StopStrings(("\n\nQ:",))
    assert matcher.push("one").texts == ("one",)
    assert matcher.push("two\n").texts == ()
    assert matcher.push("\n").texts == ()
    assert matcher.push("R").texts == ("two\n", "\n", "R")


@given(st.lists(st.integers(0, 399), max_size=40))
def test_the_texts_of_any_byte_level_ids_join_to_their_decoding(ids: list[int]) -> None:
    detokenizer = Detokenizer(MODEL.decode)
    texts: list[str] = []
    for token in ids:
        texts += detokenizer.push(token)
        assert len(ids[: len(texts)]) == len(texts)
    texts += detokenizer.finish()
    assert len(texts) == len(ids)
    assert "".join(texts) == MODEL.decode(ids)


@given(st.text(max_size=20))
def test_no_half_character_is_ever_shown(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    detokenizer = Detokenizer(MODEL.decode)
    shown = ""
    for token in MODEL.encode(text):
        shown += "".join(detokenizer.push(token))
        assert text.startswith(shown)
    assert shown + "".join(detokenizer.finish()) == text


@pytest.mark.parametrize("garbage", [[0x80] * 40, [0xFF] * 40, [0xF0, 0x9F] * 20])
def test_bytes_that_are_no_text_do_not_pile_up(garbage: list[int]) -> None:
    ids = [MODEL.tokenizer.convert_tokens_to_ids(_letter(byte)) for byte in garbage]
    detokenizer = Detokenizer(MODEL.decode)
    num = 0
    for count, token in enumerate(ids, 1):
        num += len(detokenizer.push(token))
        assert count - num <= 4


def _letter(byte: int) -> str:
    """Give the letter that byte-level BPE writes for a byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [each for each in range(256) if each not in kept]
    return chr(byte) if byte in kept else chr(256 + others.index(byte))


WORDS = ["<unk>", "▁the", "▁cat", "s", "▁", "é", *[f"<0x{byte:02X}>" for byte in range(256)]]
PIECES = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
PIECES.decoder = decoders.Sequence(
    [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
)


@given(st.lists(st.sampled_from(WORDS[1:6]), max_size=12), st.sampled_from("猫é🙂"))
def test_tokenizers_that_eat_the_first_blank_keep_the_others(words: list[str], end: str) -> None:
    ids = [WORDS.index(word) for word in words] + [6 + byte for byte in end.encode()]
    detokenizer = Detokenizer(PIECES.decode)
    texts = [text for token in ids for text in detokenizer.push(token)] + detokenizer.finish()
    assert "".join(texts) == PIECES.decode(ids)
    assert len(texts) == len(ids)
