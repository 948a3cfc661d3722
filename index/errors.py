"""The one tree of errors: every failure that a user can meet is one of these.

GraftError                      code, message; never raised bare
├── InvalidInput                what came is wrong: 422 (bad value) or 400
│   ├── UnsupportedFormat       415: not a kind of file that Graft reads
│   ├── ParseError              422: a file of a known kind without usable text; `reason` says why
│   └── TooLarge                413
├── NotFound                    404: unknown, or another tenant's; the two answer alike
├── Conflict                    409: the state does not allow it
│   └── FingerprintMismatch     409: made by another model; names the command that fixes it
├── Damaged                     503: bytes on disk are not the bytes that were committed
├── StorageFailed               507: the disk is full or failing; nothing was changed
├── ModelError                  a model could not be fetched, converted, checked or loaded
├── ConfigError                 the settings name something that does not exist or is missing
├── Busy                        503: try again later; `retry_after_s`
└── Cancelled                   the caller asked to stop

Knows nothing of HTTP beyond the numbers in this comment: `rag_api` maps classes to answers.
"""

from __future__ import annotations

from typing import Literal

ParseReason = Literal[
    "empty", "no_text", "encrypted", "broken", "timeout", "memory", "too_much_output", "encoding"
]


class GraftError(Exception):
    """Base of all of Graft's errors. `code` is a stable machine-readable word."""

    code = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidInput(GraftError):
    """A value that the caller sent cannot be used; `param` names it when it is known."""

    code = "invalid_input"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnsupportedFormat(InvalidInput):
    """A file of a kind that Graft does not read (or whose name and bytes disagree)."""

    code = "unsupported_format"


class ParseError(InvalidInput):
    """A file of a known kind that yields no usable text."""

    code = "parse_error"

    def __init__(self, message: str, *, reason: ParseReason, pages: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.pages = pages


class TooLarge(InvalidInput):
    """More bytes, rows or tokens than the settings allow."""

    code = "too_large"


class NotFound(GraftError):
    """No such thing for this tenant."""

    code = "not_found"


class Conflict(GraftError):
    """The request is well formed, and the present state forbids it."""

    code = "conflict"


class FingerprintMismatch(Conflict):
    """Vectors or keys were made by another model, hook, prefix or normalisation."""

    code = "fingerprint_mismatch"


class Damaged(GraftError):
    """A file's length or checksum is not what its catalogue row says."""

    code = "damaged"


class StorageFailed(GraftError):
    """The disk refused a write (full, failing, read only); the state is as it was before."""

    code = "storage_failed"


class ModelError(GraftError):
    """A model could not be fetched, converted, checked or loaded."""

    code = "model_error"


class ConfigError(GraftError):
    """The settings name something that does not exist."""

    code = "config_error"


class Busy(GraftError):
    """Too much is asked at once; `retry_after_s` seconds later it may work."""

    code = "busy"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Cancelled(GraftError):
    """The caller asked to stop."""

    code = "cancelled"
