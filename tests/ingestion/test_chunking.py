"""Chunks are spans that cover the text, along its structure, within the embedder's limit."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.errors import InvalidInput
from index.records import Chunk, ParsedText, TextFormat
from ingestion.chunking import ChunkSettings, split
from ingestion.words import WordCounting

FORMATS: tuple[TextFormat, ...] = ("plain", "markdown", "rst", "code", "records")
PIECES = st.sampled_from(
    ["word ", "Another sentence here. ", "天气很好。", "第三条 本法自公布之日起施行。\n",
     "# Title\n\n", "## Sub\n", "\n", "\n\n", "```py\nx = 1\n",
     "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n",
     "```\n", "- item one\n", "Title\n=====\n\n",
     "+---+---+\n| a | b |\n+===+===+\n| 1 | 2 |\n",
     "===  ===\na    b\n===  ===\n1    2\n===  ===\n\n", "Code::\n\n    x = 1\n\n", "\t", "\u3000",
     "def f():\n    return 1\n", "x" * 90, "\u200b", "e\u0301", "🙂", "|", "---\n", "> quote\n",
     "Table 1: numbers\n\n", "第一章 总则\n", "1. one\n   more\n", "a.b.c. D", "\r\n", "\x0b"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def cut(
    text: str, size: int = 256, overlap: int = 0, fmt: TextFormat = "markdown", most: int = 1 << 30
) -> list[Chunk]:
    return split(
        ParsedText(text, fmt, "text/plain"), ChunkSettings(size, overlap), WordCounting(most)
    )


def check_cover(text: str, chunks: list[Chunk]) -> None:
    covered = bytearray(len(text))
    for chunk in chunks:
        assert 0 <= chunk.start < chunk.end <= len(text)
        assert text[chunk.start : chunk.end].strip()
        covered[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
    lost = [i for i, c in enumerate(text) if not covered[i] and not c.isspace()]
    assert not lost, f"lost {text[lost[0] : lost[0] + 20]!r} at {lost[0]}"
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end


def test_c1_a_repeated_word_has_two_spans() -> None:
    chunks = cut("chunk chunk", size=1)
    assert [(c.start, c.end) for c in chunks] == [(0, 5), (6, 11)]


@settings(max_examples=300, deadline=None)
@given(
    TEXTS,
    st.integers(1, 60),
    st.integers(0, 59),
    st.sampled_from(FORMATS),
    st.sampled_from((8, 40, 1 << 30)),
)
def test_c2_p4_any_sizes_end_and_cover_the_whole_text(
    text: str, size: int, overlap: int, fmt: TextFormat, most: int
) -> None:
    chunks = cut(text, size, min(overlap, size - 1), fmt, most)
    check_cover(text, chunks)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(1, 60), st.sampled_from(FORMATS), st.sampled_from((8, 20, 60)))
def test_m3_what_is_embedded_never_exceeds_the_embedder(
    text: str, size: int, fmt: TextFormat, most: int
) -> None:
    counting = WordCounting(most)
    for chunk in cut(text, size, 0, fmt, most):
        assert counting.count_tokens(chunk.embedded_text(text)) <= most


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(4, 60))
def test_chunks_hold_at_most_the_size_asked_for(text: str, size: int) -> None:
    counting = WordCounting()
    for chunk in cut(text, size, size // 4):
        assert chunk.num_tokens <= size
        # A word beyond 16 characters a token may be cut; alone, its second part counts again.
        assert counting.count_tokens(text[chunk.start : chunk.end]) <= size + 1


def test_m3_a_needle_at_the_end_of_a_long_text_is_in_a_chunk_that_fits() -> None:
    text = "The report goes on about the weather. " * 100 + "The needle is made of cobalt."
    chunks = cut(text, size=800, overlap=32, most=256)
    assert "needle is made of cobalt" in text[chunks[-1].start : chunks[-1].end]
    assert max(c.num_tokens for c in chunks) <= 256


@pytest.mark.parametrize(("size", "overlap"), [(10, 10), (10, 11), (0, 0), (-1, 0), (10, -1)])
def test_p4_sizes_without_sense_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(InvalidInput, match="came"):
        ChunkSettings(size, overlap)


def test_settings_of_a_store_take_defaults_and_refuse_what_is_unknown() -> None:
    assert ChunkSettings.of({}) == ChunkSettings(256, 32, "structure")
    assert ChunkSettings.of({"size": 99, "overlap": 9}) == ChunkSettings(99, 9)
    with pytest.raises(InvalidInput, match="unknown chunk settings"):
        ChunkSettings.of({"sise": 3})
    with pytest.raises(InvalidInput, match="integers"):
        ChunkSettings.of({"size": "many"})


def test_an_unknown_splitter_lists_what_exists() -> None:
    with pytest.raises(InvalidInput, match="RecursiveCharacterTextSplitter"):
        split(ParsedText("a", "plain", "text/plain"), ChunkSettings(8, 0, "Nope"), WordCounting())


def table(rows: int) -> str:
    body = "\n".join(f"| city {i} | {i * 17} | {i * 3} km |" for i in range(rows))
    return f"| place | people | road |\n| --- | --- | --- |\n{body}\n"


def test_p3_every_chunk_of_a_table_carries_header_and_caption_and_whole_rows() -> None:
    caption = "Table 4: Cities of the north"
    text = f"# Report\n\nSome words.\n\n{caption}\n\n{table(30)}\nAfter the table.\n"
    rows = {line for line in text.split("\n") if line.startswith("| city")}
    chunks = cut(text, size=60)
    holding = [c for c in chunks if "| city" in text[c.start : c.end]]
    assert len(holding) > 3
    for chunk in holding:
        seen = chunk.embedded_text(text)
        assert seen.count("| place | people | road |") == 1
        assert seen.count(caption) == 1
        assert chunk.header is not None
        assert text[chunk.header.start : chunk.header.end] == "| place | people | road |"
        lines = [x for x in text[chunk.start : chunk.end].split("\n") if x.startswith("| city")]
        assert set(lines) <= rows
    assert sum(text[c.start : c.end].count("| city") for c in holding) == 30
    assert all("After" not in text[c.start : c.end] for c in holding[:-1])


GRID = "+------+-----+\n| name | age |\n+======+=====+\n" + "".join(
    f"| n{i}   | {i}   |\n+------+-----+\n" for i in range(30)
)
SIMPLE_RULE = "=====  ====\n"
SIMPLE = f"{SIMPLE_RULE}name   age\n{SIMPLE_RULE}" + "".join(f"n{i}     {i}\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "header"), [(GRID, "| name | age |"), (SIMPLE + SIMPLE_RULE, "name   age")]
)
def test_p3_tables_of_restructured_text_keep_their_header(text: str, header: str) -> None:
    chunks = cut(text, size=40, fmt="rst")
    assert len(chunks) > 2
    assert all(chunk.embedded_text(text).count(header) == 1 for chunk in chunks)


def test_p3_a_header_longer_than_the_embedder_allows_is_shortened_and_not_lost() -> None:
    wide = "| " + " | ".join(f"column{i}" for i in range(60)) + " |"
    text = f"{wide}\n|{' --- |' * 60}\n" + "\n".join(["| " + " | ".join(["v"] * 60) + " |"] * 5)
    counting = WordCounting(64)
    chunks = cut(text, size=256, most=64)
    check_cover(text, chunks)
    assert all(counting.count_tokens(c.embedded_text(text)) <= 64 for c in chunks)
    assert any("column59" in text[c.start : c.end] for c in chunks)


def test_headings_make_the_path_and_begin_their_chunk() -> None:
    body = "Words about it go here. " * 12
    text = f"# Guide\n\n{body}\n\n## Setup\n\n{body}\n\n### Linux\n\n{body}\n\n## Use\n\n{body}\n"
    chunks = cut(text, size=80)
    by_path = {c.headings: text[c.start : c.end] for c in reversed(chunks)}
    assert list(reversed(by_path)) == [
        ("Guide",), ("Guide", "Setup"), ("Guide", "Setup", "Linux"), ("Guide", "Use"),
    ]  # fmt: skip
    assert by_path[("Guide", "Setup", "Linux")].startswith("### Linux")


def test_small_sections_share_a_chunk_under_their_common_path() -> None:
    text = "# Terms\n\n" + "\n\n".join(f"## T{i}\n\nShort." for i in range(6))
    chunks = cut(text, size=200)
    assert len(chunks) == 1
    assert chunks[0].headings == ("Terms",)


def test_a_heading_never_ends_a_chunk() -> None:
    text = "".join(f"## Section {i}\n\n{'Word ' * 45}end.\n\n" for i in range(10))
    for chunk in cut(text, size=50):
        assert not text[chunk.start : chunk.end].split("\n")[-1].startswith("##")


def test_long_heading_paths_are_cut_from_the_outside_and_no_word_is_lost() -> None:
    deep = "".join(f"{'#' * i} {' '.join([f'level{i}'] * 20)}\n\n" for i in range(1, 7))
    text = deep + "Body words. " * 40
    chunks = cut(text, size=64, most=64)
    check_cover(text, chunks)
    assert all("level6" in " ".join(c.headings) or not c.headings for c in chunks)


def test_a_statute_is_cut_at_its_articles() -> None:
    articles = [
        f"第{n}条 " + "有关部门应当依照本法规定履行职责，加强监督管理。" * 4 for n in "一二三四五"
    ]
    text = "# 某法\n\n## 第一章 总则\n\n" + "\n\n".join(articles)
    chunks = cut(text, size=120, overlap=20)
    check_cover(text, chunks)
    assert [c.headings[-1] for c in chunks[1:]] == ["第二条", "第三条", "第四条", "第五条"]
    assert all(text[c.start] == "第" for c in chunks[1:])


def test_chapters_of_a_plain_statute_are_headings() -> None:
    first = "某法\n\n第一章 总则\n\n第一条 为了规范活动，制定本法。\n\n"
    text = first + "第二章 监督\n\n第二条 国家加强监督。\n"
    chunks = cut(text, size=14, fmt="plain")
    assert chunks[-1].headings == ("第二章 监督", "第二条")


def test_overlap_is_whole_sentences_of_the_same_section() -> None:
    sentences = [f"Sentence number {i} has exactly these words." for i in range(30)]
    text = " ".join(sentences)
    chunks = cut(text, size=40, overlap=10, fmt="plain")
    check_cover(text, chunks)
    for before, after in pairwise(chunks):
        shared = text[after.start : before.end]
        assert shared in sentences


def test_fenced_code_is_cut_between_lines_and_keeps_its_indentation() -> None:
    lines = [f"    value_{i} = compute({i})" for i in range(40)]
    text = "# Code\n\n```python\ndef f():\n" + "\n".join(lines) + "\n```\n"
    chunks = cut(text, size=50)
    assert len(chunks) > 3
    for chunk in chunks[1:]:
        words = text[chunk.start : chunk.end].split("\n")
        assert all(line in lines or line == "```" for line in words)


def test_source_code_names_the_definition_that_a_chunk_lies_in() -> None:
    text = "import os\n\n\nclass Store:\n    def get(self):\n" + "        x = 1\n" * 60
    chunks = cut(text, size=60, fmt="code")
    assert all(c.headings == ("class Store",) for c in chunks[1:])


def test_pages_are_one_based_and_follow_the_start() -> None:
    text = "First page words.\n\nSecond page words.\n\nThird page words."
    starts = (0, text.index("Second"), text.index("Third"))
    parsed = ParsedText(text, "plain", "application/pdf", page_starts=starts)
    chunks = split(parsed, ChunkSettings(4, 0), WordCounting())
    assert [c.page for c in chunks] == [1, 2, 3]


def test_white_space_alone_has_no_chunks() -> None:
    assert cut(" \n\t\n") == []
    assert cut("") == []


def test_a_title_is_the_root_of_every_path() -> None:
    parsed = ParsedText("# A\n\nwords\n", "markdown", "text/markdown", title="Doc")
    assert split(parsed, ChunkSettings(), WordCounting())[0].headings == ("Doc", "A")
    same = ParsedText("# Doc\n\nwords\n", "markdown", "text/markdown", title="Doc")
    assert split(same, ChunkSettings(), WordCounting())[0].headings == ("Doc",)


@pytest.mark.parametrize(
    "text",
    ["word " * 200_000, "x" * 1_000_000, "a, " * 300_000, "p\n\n" * 100_000,
     "| " * 200_000,      "字" * 300_000, "Dr. " * 200_000, "- a\n" * 100_000, "#" * 500_000,
     "=" * 500_000, "```\n" * 100_000],
    ids=lambda text: text[:6] + str(len(text)),
)  # fmt: skip
def test_time_grows_with_the_text_and_not_with_its_square(text: str) -> None:
    begun = time.process_time()
    chunks = cut(text, size=256, overlap=32)
    assert time.process_time() - begun < 20
    assert chunks[-1].end == len(text.rstrip())
