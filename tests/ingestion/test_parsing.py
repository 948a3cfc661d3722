"""Parsing happens in a child that cannot hurt: limits, PDFs, and what comes back."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pypdfium2
import pypdfium2.raw as pdfium
import pytest

from index.errors import Cancelled, InvalidInput, ParseError, TooLarge, UnsupportedFormat
from ingestion.parsing import ParseLimits, Parser, parse

PageMaker = Callable[[pypdfium2.PdfDocument], None]


def text_page(words: str) -> PageMaker:
    def add(document: pypdfium2.PdfDocument) -> None:
        page = document.new_page(595, 842)
        font = pdfium.FPDFText_LoadStandardFont(document.raw, b"Helvetica")
        thing = pdfium.FPDFPageObj_CreateTextObj(document.raw, font, 12.0)
        data = words.encode("utf-16-le") + b"\0\0"
        buffer = ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(ctypes.c_ushort))
        pdfium.FPDFText_SetText(thing, buffer)
        pdfium.FPDFPageObj_Transform(thing, 1, 0, 0, 1, 50, 700)
        pdfium.FPDFPage_InsertObject(page.raw, thing)
        page.gen_content()

    return add


def picture_page(document: pypdfium2.PdfDocument) -> None:
    page = document.new_page(595, 842)
    bitmap = pypdfium2.PdfBitmap.new_native(8, 8, pdfium.FPDFBitmap_BGR)
    image = pypdfium2.PdfImage.new(document)
    image.set_bitmap(bitmap)
    image.set_matrix(pypdfium2.PdfMatrix().scale(300, 300))
    page.insert_obj(image)
    page.gen_content()


def blank_page(document: pypdfium2.PdfDocument) -> None:
    document.new_page(595, 842)


def save(path: Path, *pages: PageMaker) -> Path:
    document = pypdfium2.PdfDocument.new()
    for add in pages:
        add(document)
    document.save(str(path))
    document.close()
    return path


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    with Parser(ParseLimits()) as parser:
        yield parser


def test_a_pdf_has_a_page_map(parser: Parser, tmp_path: Path) -> None:
    path = save(tmp_path / "x.pdf", text_page("First words"), text_page("Second words"))
    parsed = parser.parse(path, "x.pdf").parsed
    assert parsed.text == "First words\n\nSecond words"
    assert parsed.page_starts == (0, parsed.text.index("Second"))
    assert (parsed.coverage, parsed.warnings, parsed.media_type) == (1.0, (), "application/pdf")


def test_j4_a_picture_only_pdf_fails_with_its_pages(parser: Parser, tmp_path: Path) -> None:
    path = save(tmp_path / "x.pdf", picture_page, picture_page, picture_page)
    with pytest.raises(ParseError, match="no text extracted: pages 1-3 of 3") as caught:
        parser.parse(path, "x.pdf")
    assert caught.value.reason == "no_text"
    assert caught.value.pages == (1, 2, 3)


def test_j5_half_picture_pages_give_a_warning_and_half_the_coverage(
    parser: Parser, tmp_path: Path
) -> None:
    pages = [maker for i in range(5) for maker in (text_page(f"Page {i} words"), picture_page)]
    parsed = parser.parse(save(tmp_path / "x.pdf", *pages), "x.pdf").parsed
    assert parsed.coverage == 0.5
    assert "pages 2, 4, 6, 8, 10 of 10" in parsed.warnings[0]
    assert len(parsed.page_starts) == 10


def test_blank_pages_lose_nothing(parser: Parser, tmp_path: Path) -> None:
    path = save(tmp_path / "x.pdf", text_page("Words"), blank_page)
    parsed = parser.parse(path, "x.pdf").parsed
    assert (parsed.coverage, parsed.warnings) == (1.0, ())


def test_p6_one_pdf_two_hundred_times_keeps_memory_flat(tmp_path: Path) -> None:
    path = save(tmp_path / "x.pdf", *[text_page(f"Page {i} words") for i in range(20)])
    with Parser(ParseLimits(), files_per_child=10_000) as parser:
        sizes = []
        for _ in range(200):
            parser.parse(path, "x.pdf")
            assert parser.pid is not None
            sizes.append(psutil.Process(parser.pid).memory_info().rss)
    assert max(sizes[100:]) <= max(sizes[20:100]) + 4 * 2**20


def test_the_result_is_named_by_the_bytes_that_were_read(parser: Parser, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"words")
    found = parser.parse(path, "x.txt")
    assert found.num_bytes == 5
    assert found.version == hashlib.sha256(b"words").hexdigest()


def test_p2_a_zip_is_unsupported_through_the_child(parser: Parser, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"PK\x05\x06" + b"\0" * 18)
    with pytest.raises(UnsupportedFormat, match=r"'x.txt'.*zip archive"):
        parser.parse(path, "x.txt")


def test_j2_a_file_that_hangs_its_parser_is_ended_and_the_next_one_is_parsed(
    tmp_path: Path,
) -> None:
    fifo, good = tmp_path / "hangs.txt", tmp_path / "good.txt"
    os.mkfifo(fifo)  # opening it blocks for ever
    good.write_text("words")
    with Parser(ParseLimits(wall_s=0.5)) as parser:
        begun = time.monotonic()
        with pytest.raises(ParseError, match=r"within 0\.5 s") as caught:
            parser.parse(fifo, "hangs.txt")
        assert caught.value.reason == "timeout"
        assert time.monotonic() - begun < 10
    with Parser(ParseLimits()) as parser:
        assert parser.parse(good, "good.txt").parsed.text == "words"


def test_a_file_that_burns_cpu_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n" * 6_000_000)
    with Parser(ParseLimits(cpu_s=0.1, memory_bytes=4 * 2**30)) as parser:
        with pytest.raises(ParseError) as caught:
            parser.parse(path, "x.csv")
        assert caught.value.reason == "timeout"


def test_a_file_that_needs_too_much_memory_is_refused_and_the_parser_lives_on(
    tmp_path: Path,
) -> None:
    large, good = tmp_path / "x.csv", tmp_path / "good.txt"
    large.write_bytes(b"a,b\n" * 6_000_000)
    good.write_text("words")
    with Parser(ParseLimits(memory_bytes=300 * 2**20)) as parser:
        with pytest.raises(ParseError) as caught:
            parser.parse(large, "x.csv")
        assert caught.value.reason == "memory"
        assert parser.parse(good, "good.txt").parsed.text == "words"


def test_too_much_output_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("words " * 100)
    with pytest.raises(ParseError) as caught:
        parse(path, "x.txt", limits=ParseLimits(output_chars=100))
    assert caught.value.reason == "too_much_output"


def test_p5_a_file_of_300_mb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    with Parser(ParseLimits()) as parser:
        with pytest.raises(TooLarge, match="314572800"):
            parser.parse(path, "x.txt")
        assert parser.pid is None


def test_a_crash_of_the_child_is_a_named_error_and_the_next_file_is_parsed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.txt"
    path.write_text("words")
    with Parser(ParseLimits()) as parser:
        parser.parse(path, "x.txt")
        first = parser.pid
        assert first is not None
        os.kill(first, 9)
        with pytest.raises(ParseError, match="crashed") as caught:
            parser.parse(path, "x.txt")
        assert caught.value.reason == "broken"
        assert parser.parse(path, "x.txt").parsed.text == "words"
        assert parser.pid != first


def test_a_child_is_kept_warm_and_replaced_after_a_number_of_files(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("words")
    pids = []
    with Parser(ParseLimits(), files_per_child=3) as parser:
        for _ in range(7):
            parser.parse(path, "x.txt")
            pids.append(parser.pid)
    assert len(set(pids)) == 3
    assert pids[0] == pids[2] != pids[3]
    assert not any(psutil.pid_exists(pid) for pid in pids if pid)


def test_a_parse_is_cancelled_within_two_seconds(tmp_path: Path) -> None:
    fifo = tmp_path / "hangs.txt"
    os.mkfifo(fifo)
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    with Parser(ParseLimits()) as parser:
        timer.start()
        begun = time.monotonic()
        with pytest.raises(Cancelled):
            parser.parse(fifo, "hangs.txt", cancelled=stop.is_set)
        assert time.monotonic() - begun < 2.3
        assert parser.pid is None


def test_the_child_has_no_network_and_imports_no_torch() -> None:
    code = (
        "import ingestion.child as child, sys, socket\n"
        "child.isolate(2**31)\n"
        "import ingestion.parsers.office, ingestion.parsers.pdf, ingestion.parsers.mail\n"
        "import kreuzberg\n"
        "heavy = {'torch', 'faiss', 'transformers', 'sqlalchemy', 'index'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "try: socket.create_connection(('127.0.0.1', 9), timeout=1)\n"
        "except PermissionError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == "a parser has no network", done.stderr


def test_limits_without_sense_are_refused() -> None:
    with pytest.raises(InvalidInput, match="wall_s"):
        ParseLimits(wall_s=0)


def test_a_missing_file_is_a_named_error(parser: Parser, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="cannot be read"):
        parser.parse(tmp_path / "none.txt", "none.txt")


def test_threads_take_turns(parser: Parser, tmp_path: Path) -> None:
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        path = tmp_path / f"{number}.txt"
        path.write_text(f"words {number}")
        texts[number] = parser.parse(path, path.name).parsed.text

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {i: f"words {i}" for i in range(8)}
