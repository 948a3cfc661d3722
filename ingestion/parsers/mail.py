"""An e-mail's bytes go in; its headers, words and attachments' names come out as Markdown."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

from ingestion.parsers.charsets import decode
from ingestion.parsers.extracted import Extracted, Refusal, tidy
from ingestion.parsers.office import clean, to_markdown

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MAX_DEPTH = 8


def parse_mail(data: bytes, _name: str) -> Extracted:
    """Extract a message and the messages inside it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in data[:64]:
        data = decode(data).text.encode("utf-8")
    message = email.message_from_bytes(data, policy=email.policy.default)
    if not isinstance(message, EmailMessage) or not message.keys():
        raise Refusal("expected an e-mail with headers, came something else", reason="broken")
    warnings: list[str] = []
    parts = _parts(message, warnings, 0)
    if not parts:
        raise Refusal("no text extracted: the message has no words", reason="no_text")
    subject = _header(message, "Subject")
    return Extracted(
        "\n\n".join(parts),
        "markdown",
        "message/rfc822",
        warnings=tuple(dict.fromkeys(warnings)),
        title=subject or None,
    )


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name, "")).split())
    except (ValueError, IndexError, AttributeError):  # broken headers break the standard parser
        raw = next((v for k, v in message.raw_items() if k.lower() == name.lower()), "")
        return " ".join(str(raw).split())


def _parts(message: EmailMessage, warnings: list[str], depth: int) -> list[str]:
    head = [f"{name}: {value}" for name in _HEADERS if (value := _header(message, name))]
    parts = ["\n".join(head)] if head else []
    if depth > _MAX_DEPTH:
        warnings.append(f"messages nested deeper than {_MAX_DEPTH} were left out")
        return parts
    parts += _body(message, warnings, depth)
    return parts


def _body(message: EmailMessage, warnings: list[str], depth: int) -> list[str]:
    kind = message.get_content_type()
    name = message.get_filename()
    if message.get_content_disposition() == "attachment" and name:
        warnings.append(f"the attachment {name!r} was not read; ingest it as a file of its own")
        return [f"Attachment: {name}"]
    if kind == "message/rfc822" or message.is_multipart():
        return _inner(message, warnings, depth)
    if kind == "text/html":
        text = _words(message, warnings)
        return [clean(to_markdown(text.encode("utf-8", "replace"), "text/html")[0])] if text else []
    if message.get_content_maintype() == "text":
        text = _words(message, warnings)
        return [text.strip("\n")] if text.strip() else []
    return []


def _inner(message: EmailMessage, warnings: list[str], depth: int) -> list[str]:
    children = [part for part in message.iter_parts() if isinstance(part, EmailMessage)]
    if message.get_content_type() == "multipart/alternative":
        order = ("text/plain", "text/html")
        ranked = sorted(
            children,
            key=lambda p: order.index(p.get_content_type()) if p.get_content_type() in order else 2,
        )
        children = ranked[:1]
    found: list[str] = []
    for child in children:
        is_message = message.get_content_type() in ("message/rfc822", "multipart/digest")
        found += (_parts if is_message else _body)(child, warnings, depth + 1)
    return found


def _words(message: EmailMessage, warnings: list[str]) -> str:
    """Decode a text part by its declared charset; by its bytes where that is wrong."""
    payload = message.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    charset = message.get_content_charset()
    try:
        return tidy(data.decode(charset or "utf-8"))
    except (LookupError, UnicodeDecodeError):
        if not data:
            return ""
        decoded = decode(data)
        warnings.append(f"a part that says it is {charset!r} is not; read as {decoded.encoding}")
        return decoded.text
