"""Bytes of a text file go in; its text comes out, with a warning where the encoding is a guess.

In order: byte-order marks; UTF-8, strictly; UTF-16 and UTF-32 by where their zero or control bytes
stand; double-byte and single-byte legacy encodings by how frequent the letters are that they
would make, and whether words stay words. Knows nothing of formats.
"""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass

from ingestion.parsers.extracted import Refusal, tidy, unsupported
from ingestion.parsers.letters import DOUBLE_BYTE, SINGLE_BYTE

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(set(range(32)) - {7, 8, 9, 10, 12, 13, 27}) + b"\x7f"
_SAMPLE = 200_000


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text with the encoding that made it, and a warning where that is uncertain."""

    text: str
    encoding: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class _Guess:
    encoding: str
    text: str
    score: float
    num_letters: int


def decode(data: bytes, *, declared: str | None = None) -> Decoded:
    """Decode a text file, or raise Refusal: unsupported for binary noise, else "encoding".

    `declared` is what the file says about itself (an HTML meta, an XML declaration): taken where
    the bytes are not UTF-8 and it decodes them without errors.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return _decode_marked(data[len(mark) :], name)
    for attempt in (_wide, _utf8) if _controls(data[:_SAMPLE]) else (_utf8, _wide):
        found = attempt(data)
        if found is not None and _controls(found.text[:_SAMPLE].encode()) <= 0.02:
            return found
    if _controls(data[:_SAMPLE]) > 0.02:
        raise unsupported("binary data")
    if declared is not None and (found := _declared(data, declared)):
        return found
    return _legacy(data)


def _decode_marked(data: bytes, name: str) -> Decoded:
    try:
        return Decoded(tidy(data.decode(name)), name)
    except UnicodeDecodeError as error:
        text = tidy(data.decode(name, "replace"))
        if text.count("\ufffd") * 20 > len(text):
            raise Refusal(
                f"expected {name} as the byte-order mark says, came bytes that are not: {error}",
                reason="encoding",
            ) from error
        return Decoded(text, name, f"some bytes are not {name} and were replaced by U+FFFD")


def _utf8(data: bytes) -> Decoded | None:
    if b"\x1b$" in data or b"\x1b(" in data:
        try:
            return Decoded(tidy(data.decode("iso2022_jp")), "iso2022_jp")
        except UnicodeDecodeError:
            pass
    try:
        return Decoded(tidy(data.decode("utf-8")), "utf-8")
    except UnicodeDecodeError as error:
        if (
            error.start >= len(data) - 3
            and error.reason == "unexpected end of data"
            and error.start
        ):
            text = data[: error.start].decode("utf-8")
            if not text.isascii():
                return Decoded(tidy(text) + "\ufffd", "utf-8", "the last character is cut off")
    return None


def _controls(data: bytes) -> float:
    return 1 - len(data.translate(None, _CONTROLS)) / len(data) if data else 0.0


def _declared(data: bytes, name: str) -> Decoded | None:
    try:
        codec = codecs.lookup({"gb2312": "gb18030", "gbk": "gb18030"}.get(name.lower(), name)).name
        codec = {"iso8859-1": "cp1252", "ascii": "cp1252", "shift_jis": "cp932"}.get(codec, codec)
        return Decoded(tidy(data.decode(codec)), codec)
    except (LookupError, UnicodeDecodeError, ValueError):
        return None


# --- UTF-16 and UTF-32 without a mark


def _wide(data: bytes) -> Decoded | None:
    """Try UTF-32 and UTF-16, in both orders; take the one that reads like a text."""
    best: tuple[float, Decoded] | None = None
    for name, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        if len(data) % width or len(data) < 2 * width:
            continue
        try:
            text = data.decode(name)
        except UnicodeDecodeError:
            continue
        score = _reads_like_text(text[:_SAMPLE])
        if best is None or score > best[0]:
            best = score, Decoded(tidy(text), name)
    if best is None:
        return None
    has_controls = _controls(data[:_SAMPLE]) > 0
    has_zeros = b"\x00" in data
    if best[0] >= (0.8 if has_controls else 0.95) and (has_zeros or _is_cjk(data, best[1].text)):
        unsure = not has_controls or len(best[1].text) < 8
        note = f"no byte-order mark: read as {best[1].encoding}, which is a guess"
        return Decoded(best[1].text, best[1].encoding, note if unsure else None)
    return None


_COMMON = frozenset("".join(letters for _, letters in DOUBLE_BYTE))
_PLAIN = re.compile(
    r"[\t\n\r\x20-\x7e\xa0-\u024f\u0370-\u03ff\u0400-\u04ff\u0590-\u05ff\u0600-\u06ff\u0e00-\u0e7f"
    r"\u2010-\u203a\u3000-\u30ff\uff01-\uff5e\uac00-\ud7a3]"
)
_WIDE_LETTER = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")


def _reads_like_text(text: str) -> float:
    """Rate a decoding: 1 for letters in common use and full stops, 0 for rare characters."""
    if not text:
        return 0.0
    plain = len(_PLAIN.findall(text))
    ideographs = _WIDE_LETTER.findall(text)
    common = sum(c in _COMMON for c in ideographs)
    expected = min(len(ideographs), common * 3)
    return (plain + expected) / len(text)


def _is_cjk(data: bytes, text: str) -> bool:
    """Say whether bytes without any control are rather CJK in UTF-16 than letters of one byte."""
    ascii_letters = sum(1 for b in data[:_SAMPLE] if (b < 0x80 and chr(b).isalnum()) or b == 32)
    wide = [c for c in text[:_SAMPLE] if ord(c) >= 0x3000]
    common = sum(c in _COMMON or ord(c) < 0x3100 for c in wide)
    kana = sum(0x3040 <= ord(c) <= 0x30FF for c in wide)
    is_letters = ascii_letters > 0.6 * min(len(data), _SAMPLE) and kana < 0.3 * len(text)
    return len(wide) >= 2 and common >= 0.4 * len(wide) and not is_letters


# --- legacy encodings


def _legacy(data: bytes) -> Decoded:
    guesses = [g for name, common in DOUBLE_BYTE if (g := _double(data, name, common))]
    guesses += [g for name, common in SINGLE_BYTE if (g := _single(data, name, common))]
    if not guesses:
        raise Refusal(
            "expected text in a known encoding, came bytes that fit none; save the file as UTF-8",
            reason="encoding",
        )
    guesses.sort(key=lambda g: -g.score)
    best = guesses[0]
    text = tidy(best.text)
    margin = 0.1 if best.num_letters < 20 else 0.03
    rivals = [g for g in guesses[1:] if g.score > best.score - margin and g.text != best.text]
    if best.num_letters < (8 if best.encoding in _ALPHABETS else 4) or best.score < 0.35 or rivals:
        also = f" ({rivals[0].encoding} would fit too)" if rivals else ""
        return Decoded(
            text,
            best.encoding,
            f"not UTF-8: read as {best.encoding}, which is a guess{also}; save the file as UTF-8",
        )
    return Decoded(text, best.encoding)


def _try(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except UnicodeDecodeError:
        return None


_CJK_MARKS = "，。、；：？！「」『』（）《》“”‘’　・ー…—·"


def _double(data: bytes, name: str, common: str) -> _Guess | None:
    """Rate a double-byte decoding by the share of its wide letters that are frequent ones."""
    text = _try(data, name)
    if text is None:
        return None
    wide = [c for c in text[:_SAMPLE] if ord(c) >= 0x80]
    letters = [c for c in wide if c not in _CJK_MARKS]
    if not letters:
        return None
    frequent = frozenset(common)
    marks = len(wide) - len(letters)
    share = sum(c in frequent for c in letters) / len(letters)
    odd = sum(not _is_wide(c) for c in letters) / len(letters)
    bonus = 0.1 if marks and any(c in "，。、" for c in wide) else 0.0
    score = min(1.0, share * 1.6) + bonus - odd
    return _Guess(name, text, score * _confidence(len(letters)), len(letters))


def _is_wide(char: str) -> bool:
    code = ord(char)
    return 0x3000 <= code <= 0x9FFF or 0xAC00 <= code <= 0xD7A3 or 0xFF00 <= code <= 0xFFEF


def _confidence(num_letters: int) -> float:
    return 1.0 if num_letters >= 4 else 0.7


_BROKEN_WORD = re.compile(
    r"(?<=[a-zà-öø-ÿа-яα-ωά-ώ])[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω\u0402-\u040f]"
    r"|(?<=[^\W\d_])[^\w\s'’\-­־.,;:!?)/(\]»”\"…–—@&%*<>|=+#~]+(?=[^\W\d_])"
)


def _single(data: bytes, name: str, common: str) -> _Guess | None:
    """Rate a single-byte decoding: frequent letters count, broken words count against it."""
    text = _try(data, name)
    if text is None:
        return None
    sample = text[:_SAMPLE]
    letters = [c for c in sample if ord(c) >= 0x80]
    if not letters:
        return None
    rank = {c: 1.0 - 0.6 * place / len(common) for place, c in enumerate(common)}
    weight = sum(rank.get(c, 0.3 if c.lower() in rank else -0.4) for c in letters) / len(letters)
    if name in _ALPHABETS:
        peaks = sum(math.exp(-common.index(c) / 10) for c in letters if c in rank) / len(letters)
        weight += peaks / 2 - 0.2
    elif len(letters) > sum(c.isalpha() and c.isascii() for c in sample):
        weight -= 0.4  # Latin text is mostly unaccented
    weight += _PRIOR.get(name, 0.0)
    broken = sum(len(m.group()) for m in _BROKEN_WORD.finditer(sample))
    mixed = len(_MIXED.findall(sample))
    return _Guess(name, text, weight - (broken + mixed) / len(letters), len(letters))


_ALPHABETS = frozenset(
    ("cp1251", "koi8_r", "mac_cyrillic", "cp866", "iso8859_5", "cp1253", "cp1255", "cp1256")
)
_PRIOR = {"cp1252": 0.15}
"""The commonest one wins where a few accented letters leave several possible."""
_MIXED = re.compile(
    r"[A-Za-z][\u0370-\u05ff\u0600-\u06ff\u0e00-\u0e7f]|[\u0370-\u05ff\u0600-\u06ff\u0e00-\u0e7f][A-Za-z]"
)
