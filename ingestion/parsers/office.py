"""Office files, mail, books and web pages go in; Markdown with tables comes out (kreuzberg)."""

from __future__ import annotations

import re
from html import unescape

from ingestion.parsers.charsets import decode
from ingestion.parsers.detect import MEDIA_TYPES
from ingestion.parsers.extracted import Extracted, Refusal, tidy

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.S)
_DATA_IMAGE = re.compile(r"!\[([^\]]*)\]\(\s*(?:<data:[^>]*>|data:[^)]*)[^)]*\)")
_EMPTY_IMAGE = re.compile(r"!\[\]\([^)\s]*\)")


def to_markdown(data: bytes, media_type: str) -> tuple[str, str | None]:
    """Give a file's Markdown and its title; raises Refusal for what kreuzberg cannot read."""
    import kreuzberg

    config = kreuzberg.ExtractionConfig(use_cache=False, disable_ocr=True, output_format="markdown")
    try:
        result = kreuzberg.extract_bytes_sync(data, media_type, config=config)
    except kreuzberg.KreuzbergError as error:
        reason = "encrypted" if re.search(r"(?i)encrypt|password", str(error)) else "broken"
        raise Refusal(
            f"expected a whole {media_type} file, came one that cannot be read: {str(error)[:300]}",
            reason=reason,
        ) from error
    title = result.metadata.get("title")
    return tidy(result.content), title if isinstance(title, str) and title.strip() else None


def parse_office(data: bytes, kind: str) -> Extracted:
    """Extract an office file, an Outlook message or a book."""
    media_type = MEDIA_TYPES[kind]
    text, title = to_markdown(data, media_type)
    return Extracted(clean(text), "markdown", media_type, title=title)


def clean(text: str) -> str:
    """Take out what is not words: embedded pictures and the metadata block."""
    text = _FRONT_MATTER.sub("", text, count=1)
    text = _DATA_IMAGE.sub(r"\1", text)
    return _EMPTY_IMAGE.sub("", text)


_HEAD = re.compile(r"(?is)<head\b.*?</head\s*>")
"""Scripts, styles and metadata, which would come out as text; the title is read apart."""
_CHARSET = re.compile(
    rb"""(?i)(<meta[^>]*charset\s*=\s*["']?|<\?xml[^>]*encoding\s*=\s*["'])([\w.:-]+)"""
)


def decode_markup(data: bytes) -> tuple[str, str | None]:
    """Decode HTML or XML by its bytes first and by what it declares second; with a warning."""
    found = _CHARSET.search(data[:4096])
    declared = found.group(2).decode("ascii") if found else None
    decoded = decode(data, declared=declared)
    return decoded.text, decoded.warning


def as_utf8(text: str) -> bytes:
    """Encode markup so that what it declares is true."""
    return _CHARSET.sub(rb"\1utf-8", text.encode("utf-8", "replace"), count=2)


def parse_html(data: bytes, _name: str) -> Extracted:
    """Extract a web page: its words, headings, lists and tables as Markdown."""
    html, warning = decode_markup(data)
    found = re.search(r"(?is)<title[^>]*>(.*?)</title>", html[:50_000])
    body = _HEAD.sub('<head><meta charset="utf-8"></head>', html, count=1)
    text, _ = to_markdown(as_utf8(body), "text/html")
    title = " ".join(unescape(found.group(1)).split()) if found else None
    warnings = (warning,) if warning else ()
    return Extracted(clean(text), "markdown", "text/html", warnings=warnings, title=title or None)


def parse_xml(data: bytes, _name: str) -> Extracted:
    """Extract an XML file's text."""
    xml, warning = decode_markup(data)
    text, title = to_markdown(as_utf8(xml), "application/xml")
    warnings = (warning,) if warning else ()
    return Extracted(text, "plain", "application/xml", warnings=warnings, title=title)
