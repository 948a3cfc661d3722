"""The first bytes and the name of a file go in; what kind of file it is comes out.

Bytes beat the name: a zip called `x.txt` is a zip (P2). The name only chooses among the text kinds.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import PurePosixPath

from ingestion.parsers.extracted import Refusal, unsupported

_DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MEDIA_TYPES = {
    "plain": "text/plain",
    "markdown": "text/markdown",
    "rst": "text/x-rst",
    "html": "text/html",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "ipynb": "application/x-ipynb+json",
    "xml": "application/xml",
    "eml": "message/rfc822",
    "code": "text/x-source",
    "pdf": "application/pdf",
    "docx": _DOCX,
    "pptx": _PPTX,
    "xlsx": _XLSX,
    "odt": "application/vnd.oasis.opendocument.text",
    "epub": "application/epub+zip",
    "doc": "application/msword",
    "ppt": "application/vnd.ms-powerpoint",
    "xls": "application/vnd.ms-excel",
    "msg": "application/vnd.ms-outlook",
    "rtf": "application/rtf",
}
_CODE = (
    "py", "pyi", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "cs", "java", "kt", "kts", "scala",
    "go", "rs", "swift", "m", "mm", "js", "mjs", "cjs", "jsx", "ts", "tsx", "vue", "php", "rb",
    "pl", "pm", "lua", "r", "jl", "sh", "bash", "zsh", "fish", "ps1", "bat", "sql", "css",
    "scss", "less", "toml", "ini", "cfg", "conf", "yaml", "yml", "makefile", "cmake", "gradle",
    "dockerfile", "proto", "graphql", "tf", "hs", "ml", "ex", "exs", "erl", "clj", "lisp", "el",
    "vim", "asm", "s", "f90", "pas", "tex", "bib", "sty", "zig", "nim", "dart",
)  # fmt: skip
EXTENSIONS = {
    "md": "markdown",
    "markdown": "markdown",
    "mdx": "markdown",
    "rst": "rst",
    "rest": "rst",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "csv": "csv",
    "tsv": "tsv",
    "tab": "tsv",
    "json": "json",
    "geojson": "json",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "ipynb": "ipynb",
    "xml": "xml",
    "eml": "eml",
    **dict.fromkeys(_CODE, "code"),
}
_BINARY_NAMES = {"pdf", "docx", "pptx", "xlsx", "odt", "epub", "doc", "ppt", "xls", "msg", "rtf"}
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"RIFF", "a RIFF file (sound, film or WebP image)"),
    (b"\x1f\x8b\x08", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\x7fELF", "an ELF program"),
    (b"MZ\x90\x00", "a Windows program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"PAR1", "a Parquet file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"GGUF", "a GGUF model"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"\x00asm", "a WebAssembly module"),
    (b"wOFF", "a font"),
    (b"wOF2", "a font"),
)


def extension(name: str) -> str:
    """Give a name's last suffix, lower case, without its dot (`Makefile`: itself)."""
    path = PurePosixPath(name)
    whole = path.name.lower()
    return whole if whole in ("makefile", "dockerfile") else path.suffix[1:].lower()


def detect(data: bytes, name: str) -> str:
    """Name the kind of a file, one of MEDIA_TYPES; raises Refusal for kinds that are not read."""
    if not data:
        raise Refusal("expected a file with content, came one of 0 bytes", reason="empty")
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _kind_of_zip(data)
    if data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _kind_of_ole(data)
    if data.lstrip()[:5] == b"{\\rtf":
        return "rtf"
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise unsupported(what)
    if data[4:8] == b"ftyp":
        raise unsupported("a film or an MP4 container")
    suffix = extension(name)
    if suffix in _BINARY_NAMES:
        raise Refusal(
            f"expected the bytes of a .{suffix} file, as its name {name!r} says, came something "
            "else; the file is damaged or misnamed",
        )
    return EXTENSIONS.get(suffix, "plain")


def _kind_of_zip(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
            mime = archive.read("mimetype")[:100] if "mimetype" in names else b""
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise Refusal(f"expected a whole zip container, came a broken one: {error}") from error
    if mime.startswith(b"application/epub"):
        return "epub"
    if mime.startswith(b"application/vnd.oasis.opendocument.text"):
        return "odt"
    for folder, kind in (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx")):
        if any(name.startswith(folder) for name in names) and "[Content_Types].xml" in names:
            return kind
    raise unsupported("a zip archive")


def _kind_of_ole(data: bytes) -> str:
    def has(stream: str) -> bool:
        return stream.encode("utf-16-le") in data

    if has("EncryptedPackage") or has("EncryptionInfo"):
        raise Refusal(
            "expected a readable file, came one encrypted with a password; remove the password",
            reason="encrypted",
        )
    if has("__properties_version1.0") or has("__substg1.0_"):
        return "msg"
    for stream, kind in (
        ("WordDocument", "doc"),
        ("PowerPoint Document", "ppt"),
        ("Workbook", "xls"),
        ("Book", "xls"),
    ):
        if has(stream):
            return kind
    raise unsupported("an OLE container that is no Office document")


_HTML = re.compile(
    r"\s*(?:<!--.*?-->\s*)?(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html)\b", re.I | re.S
)
_MAIL = re.compile(
    r"(?:(?:From|To|Cc|Subject|Date|Received|Return-Path|Message-ID|MIME-Version|Delivered-To|"
    r"Content-Type|X-[\w-]+):[^\n]*\n(?:[ \t][^\n]*\n)*){3}",
    re.I,
)


def refine(kind: str, text: str) -> str:
    """Correct a text kind that came from the name by what the text begins with."""
    head = text[:4096]
    if kind in ("plain", "xml") and _HTML.match(head):
        return "html"
    if (
        kind == "plain"
        and _MAIL.match(head)
        and re.search(r"^(?:Received|MIME-Version):", head, re.M)
    ):
        return "eml"
    if kind == "plain" and head.lstrip().startswith("<?xml"):
        return "xml"
    return kind
