"""Bytes of unknown encoding become the right text, or a text with a warning (P1)."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestion.parsers.charsets import decode
from ingestion.parsers.extracted import Refusal

CHINESE = "国际标准化组织制定了许多重要的标准。"
JAPANESE = "国際標準化機構は多くの規格を定めています。"
KOREAN = "오늘 날씨가 매우 좋습니다. 검색은 빠릅니다."
FRENCH = "Le café où l'été revient à la fenêtre coûte très cher."
P1 = [
    ("cp1252", FRENCH),
    ("gb18030", CHINESE),
    ("shift_jis", JAPANESE),
    ("cp932", JAPANESE),
    ("euc_kr", KOREAN),
    ("utf-16-le", CHINESE),
    ("utf-16-be", CHINESE),
    ("utf-16-le", FRENCH),
    ("utf-16-be", FRENCH),
    ("utf-16-le", KOREAN),
    ("utf-16-be", JAPANESE),
    ("utf-16", CHINESE),
    ("utf-32", CHINESE),
    ("utf-32-be", FRENCH),
    ("utf-8", CHINESE),
    ("utf-8-sig", CHINESE),
    ("big5", "國際標準化組織制定了許多重要的標準。"),
    ("euc_jp", JAPANESE),
    ("iso2022_jp", JAPANESE),
    ("cp1250", "Zażółć gęślą jaźń i jeszcze trochę więcej słów."),
    ("cp1251", "Быстрая лиса прыгает через ленивую собаку."),
    ("koi8_r", "Быстрая лиса прыгает через ленивую собаку."),
    ("cp866", "Быстрая лиса прыгает через ленивую собаку."),
    ("cp1253", "Η γρήγορη αλεπού πηδάει πάνω από το σκυλί."),
    ("cp1254", "Hızlı tilki tembel köpeğin üzerinden atlar, şöyle güzel."),
    ("cp1255", "השועל המהיר קופץ מעל הכלב העצלן"),
    ("cp1256", "الثعلب السريع يقفز فوق الكلب الكسول"),
]


@pytest.mark.parametrize(("encoding", "text"), P1, ids=[f"{e} {t[:6]}" for e, t in P1])
def test_p1_one_sentence_is_decoded_right(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_p1_four_bytes_of_cafe_are_no_chinese_and_the_guess_is_named() -> None:
    found = decode(b"caf\xe9")
    assert found.text == "café"
    assert found.warning is not None
    assert "cp1252" in found.warning


@pytest.mark.parametrize(("encoding", "text"), [("cp1252", FRENCH), ("gb18030", CHINESE * 3)])
def test_p1_a_sure_reading_has_no_warning(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)).warning is None


@pytest.mark.parametrize("word", ["검색", "天气", "半导体", "価格"])
@pytest.mark.parametrize("encoding", ["euc_kr", "gb18030", "cp932", "utf-16-le", "utf-16-be"])
def test_p1_a_single_word_is_right_or_has_a_warning(word: str, encoding: str) -> None:
    try:
        data = word.encode(encoding)
    except UnicodeEncodeError:
        pytest.skip(f"{word} cannot be written in {encoding}")
    found = decode(data)
    assert found.text == word or found.warning is not None


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_utf8_round_trips(text: str) -> None:
    assert decode(text.encode()).text == text.removeprefix("\ufeff")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_text_or_a_named_refusal(data: bytes) -> None:
    try:
        text = decode(data).text
    except Refusal:
        return
    assert "\x00" not in text
    assert "\r" not in text


def test_line_ends_become_newlines_and_the_rest_stays() -> None:
    assert decode(b"a\r\nb\rc\nd \t\x0c e").text == "a\nb\nc\nd \t\x0c e"


def test_what_a_file_declares_is_taken_when_it_fits() -> None:
    data = "Łódź".encode("iso8859_2")
    assert decode(data, declared="iso-8859-2").text == "Łódź"
    assert decode("日本".encode(), declared="shift_jis").text == "日本"
    assert decode("naïve".encode("cp1252"), declared="no-such-codec").text == "naïve"


def test_a_broken_marked_file_is_repaired_with_a_warning_or_refused() -> None:
    found = decode(codecs.BOM_UTF8 + b"many good words and \xff one bad byte")
    assert found.warning is not None
    with pytest.raises(Refusal, match="byte-order mark"):
        decode(codecs.BOM_UTF8 + b"\xff\xfe\xfd\xfc" * 10)


SAMPLES = {
    "sample-arabic-1": "cp1256", "sample-chinese": "big5", "sample-french-1": "cp1252",
    "sample-greek": "cp1253", "sample-greek-2": "cp1253", "sample-hebrew-2": "cp1255",
    "sample-hebrew-3": "cp1255", "sample-korean": "cp949", "sample-russian": "mac_cyrillic",
    "sample-turkish": "cp1254",
}  # fmt: skip


def test_all_samples_of_charset_normalizer_are_decoded_right_without_doubt(
    shared_data: Path,
) -> None:
    files = sorted((shared_data / "hard-files" / "charset-normalizer").glob("*.txt"))
    assert len(files) == 18
    for path in files:
        data = path.read_bytes()
        expected = data.decode(SAMPLES.get(path.stem, "utf-8-sig"))
        found = decode(data)
        assert found.text == expected.replace("\r\n", "\n").replace("\r", "\n"), path.name
        assert found.warning is None, path.name


UNICODE_SAMPLES = ("sample-russian-3", "sample-polish", "sample-spanish", "sample-french")


@pytest.mark.parametrize(
    ("sample", "encoding"),
    [
        ("sample-russian-3", "cp1251"), ("sample-russian-3", "koi8_r"),
        ("sample-russian-3", "cp866"), ("sample-russian-3", "iso8859_5"),
        ("sample-polish", "cp1250"), ("sample-french", "cp1252"), ("sample-spanish", "cp1252"),
        ("sample-russian-3", "utf-16-le"), ("sample-french", "utf-16-be"),
    ],
)  # fmt: skip
def test_real_text_written_in_other_encodings_is_decoded_right(
    shared_data: Path, sample: str, encoding: str
) -> None:
    path = shared_data / "hard-files" / "charset-normalizer" / f"{sample}.txt"
    text = path.read_text("utf-8").encode(encoding, "ignore").decode(encoding)
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16-le", "utf-16-be"])
def test_chinese_laws_in_other_encodings_are_decoded_right(
    shared_data: Path, encoding: str
) -> None:
    for path in sorted((shared_data / "zh-laws-2024-2025").rglob("*法*.md"))[:6]:
        text = path.read_text("utf-8")
        assert decode(text.encode(encoding)).text == text, path.name


@pytest.mark.parametrize("encoding", ["cp932", "euc_jp", "utf-16-be"])
@pytest.mark.parametrize("length", [24, 60, 200])
def test_pieces_of_the_declaration_of_human_rights_in_japanese(
    shared_data: Path, encoding: str, length: int
) -> None:
    folder = shared_data / "hard-files" / "unstructured" / "language-docs"
    text = (folder / "UDHR_first_article_all.txt").read_text("utf-8")
    start = text.index("すべての人間は")
    words = text[start : start + length].split("\n")[0]
    assert decode(words.encode(encoding)).text == words
