"""The two ends that every parser can come to: text, or a refusal with a reason.

Mirrors `index.records.ParsedText` and `index.errors` in plain types that travel as JSON; the
parent process turns them into those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RefusalKind = Literal["unsupported_format", "parse_error"]


@dataclass(frozen=True, slots=True)
class Extracted:
    """A file's text. `page_starts[i]` is the offset at which page i + 1 begins."""

    text: str
    format: str
    media_type: str
    page_starts: tuple[int, ...] = ()
    coverage: float = 1.0
    warnings: tuple[str, ...] = field(default=())
    title: str | None = None


class Refusal(Exception):
    """A file that cannot be read. `reason` is one of `index.errors.ParseReason`."""

    def __init__(
        self,
        message: str,
        *,
        kind: RefusalKind = "parse_error",
        reason: str = "broken",
        pages: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind: RefusalKind = kind
        self.reason = reason
        self.pages = pages


def unsupported(what: str) -> Refusal:
    """Make the refusal of a kind of file that Graft does not read."""
    return Refusal(
        f"expected a document, came {what}; convert it to text, Markdown, HTML, PDF or an office "
        "format first",
        kind="unsupported_format",
        reason="unsupported",
    )


def tidy(text: str) -> str:
    """Normalise line ends to `\\n` and drop NULs; everything else stays."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
