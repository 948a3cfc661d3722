"""A PDF's bytes go in; its text with a page map comes out (pypdfium2, no OCR)."""

from __future__ import annotations

import re

import pypdfium2
import pypdfium2.raw

from ingestion.parsers.extracted import Extracted, Refusal, tidy

_PAGE_BREAK = "\n\n"
_HYPHEN = re.compile(r"[\ufffe\x02]\n?")
"""PDFium's mark for a hyphen that only broke a line."""


def parse_pdf(data: bytes, _name: str) -> Extracted:
    """Extract all pages; raises Refusal: encrypted, broken, no_text (with the pages)."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Refusal(
                "expected a readable PDF, came one that opens with a password; remove it first",
                reason="encrypted",
            ) from error
        raise Refusal(f"expected a whole PDF, came a broken one: {error}") from error
    try:
        return _extract(document)
    finally:
        document.close()


def _extract(document: pypdfium2.PdfDocument) -> Extracted:
    texts: list[str] = []
    pictures: list[int] = []
    broken: list[int] = []
    for number in range(1, len(document) + 1):
        try:
            text, has_objects = _page(document, number - 1)
        except pypdfium2.PdfiumError:
            text, has_objects = "", False
            broken.append(number)
        texts.append(text)
        if has_objects and not text.strip():
            pictures.append(number)
    lost = sorted(pictures + broken)
    num_full = sum(bool(t.strip()) for t in texts)
    if not num_full:
        raise Refusal(
            f"no text extracted: {_named(lost, len(texts))}; run OCR on the file first",
            reason="no_text",
            pages=tuple(lost) or tuple(range(1, len(texts) + 1)),
        )
    warnings = []
    if pictures:
        warnings.append(
            f"no text on {_named(pictures, len(texts))} (pictures only; no OCR is done)"
        )
    if broken:
        warnings.append(f"{_named(broken, len(texts))} could not be read")
    starts: list[int] = []
    position = 0
    for text in texts:
        starts.append(position)
        position += len(text) + len(_PAGE_BREAK)
    return Extracted(
        text=_PAGE_BREAK.join(texts),
        format="plain",
        media_type="application/pdf",
        page_starts=tuple(starts),
        coverage=num_full / (num_full + len(lost)),
        warnings=tuple(warnings),
        title=_title(document),
    )


def _page(document: pypdfium2.PdfDocument, index: int) -> tuple[str, bool]:
    page = document[index]
    try:
        textpage = page.get_textpage()
        try:
            text = textpage.get_text_range()
        finally:
            textpage.close()
        has_objects = pypdfium2.raw.FPDFPage_CountObjects(page.raw) > 0
    finally:
        page.close()
    return _HYPHEN.sub("", tidy(text)), has_objects


def _named(pages: list[int], total: int) -> str:
    """Name pages in words: `pages 6-8, 10 of 12`."""
    if not pages:
        return f"{total} pages"
    runs: list[list[int]] = []
    for page in pages:
        if runs and runs[-1][1] == page - 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    names = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"page{'s' if len(pages) > 1 else ''} {names} of {total}"


def _title(document: pypdfium2.PdfDocument) -> str | None:
    title = tidy(document.get_metadata_dict().get("Title", "")).strip()
    is_file_name = re.search(r"(?i)untitled|^\(?anonymous|microsoft \w+ -|\.\w{2,4}$", title)
    return title if 3 < len(title) < 200 and not is_file_name else None
