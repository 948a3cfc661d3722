"""A file's path and name go in; its text comes out, read in a child process that can be killed.

The child (`ingestion.child`) is kept warm for many files and replaced after a number of them or
after any failure. It is the leader of its own process group and is killed as a group. Whatever a
file does, this process gets a ParsedText or a named error.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from index.errors import (
    Cancelled,
    InvalidInput,
    ParseError,
    ParseReason,
    TooLarge,
    UnsupportedFormat,
)
from index.records import ParsedText, TextFormat
from ingestion.wire import Closed, TooLong, TooSlow, receive, write_all

START_S = 30.0
_POLL_S = 0.5
_MAX_BYTES_PER_CHAR = 6


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """What one file may cost: address space, CPU and wall seconds, characters out, bytes in."""

    memory_bytes: int = 1536 * 2**20
    cpu_s: float = 60.0
    wall_s: float = 120.0
    output_chars: int = 50_000_000
    input_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise InvalidInput(f"{name} must be above 0, came {value!r}", param=name)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A parsed text with the SHA-256 (hex) and the length of the bytes that it was made of."""

    parsed: ParsedText
    version: str
    num_bytes: int


def _never() -> bool:
    return False


class Parser:
    """Parses files one at a time in a warm child process; close it, or use it with `with`.

    Safe to share between threads: they take turns.
    """

    def __init__(self, limits: ParseLimits, *, files_per_child: int = 200) -> None:
        self._limits = limits
        self._files_per_child = files_per_child
        self._child: _Child | None = None
        self._lock = threading.Lock()
        self._peak_bytes = 0

    def __enter__(self) -> Parser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._drop()

    def parse(self, path: Path, name: str, *, cancelled: Callable[[], bool] = _never) -> ParsedFile:
        """Parse one file.

        Raises TooLarge before anything is read, UnsupportedFormat or ParseError; Cancelled within
        a second of `cancelled()`.
        """
        self._check_size(path, name)
        with self._lock:
            if self._child is None or self._child.num_files >= self._files_per_child:
                self._drop()
                self._child = _Child(self._limits)
            try:
                answer = self._child.ask({"path": str(path), "name": name}, cancelled)
            except BaseException:
                self._drop()
                raise
            self._peak_bytes = max(self._peak_bytes, int(answer.get("peak_bytes", 0)))
            if answer.get("failed"):
                self._drop()
        return _read_answer(answer, name)

    def _check_size(self, path: Path, name: str) -> None:
        try:
            size = path.stat().st_size
        except OSError as error:
            raise ParseError(
                f"{name!r} cannot be read: {error.strerror}", reason="broken"
            ) from error
        if size > self._limits.input_bytes:
            raise TooLarge(
                f"{name!r}: expected at most {self._limits.input_bytes} bytes, came {size}; "
                "cut the file or raise the limit"
            )

    @property
    def pid(self) -> int | None:
        """The process id of the child that is kept warm, if there is one."""
        return self._child.pid if self._child is not None else None

    def peak_bytes(self) -> int:
        """Give the highest resident memory that any child reported (its own ru_maxrss)."""
        return self._peak_bytes

    def _drop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


class _Child:
    """One child process and its pipes."""

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self.num_files = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ingestion.child", json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=_environment(),
            bufsize=0,
        )
        try:
            self._receive(time.monotonic() + START_S, _never)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The child's process id, and its group's."""
        return self._process.pid

    def ask(self, request: dict[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Send one request and wait for its answer; after an error this child is of no more use."""
        self.num_files += 1
        assert self._process.stdin is not None
        line = json.dumps(request).encode("ascii") + b"\n"
        with contextlib.suppress(Closed):  # a dead child is told from its empty answer
            write_all(self._process.stdin.fileno(), line)
        return self._receive(time.monotonic() + self._limits.wall_s, cancelled)

    def _receive(self, deadline: float, cancelled: Callable[[], bool]) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        max_bytes = self._limits.output_chars * _MAX_BYTES_PER_CHAR + 2**20
        try:
            self._wait_for_answer(descriptor, deadline, cancelled)
            return receive(descriptor, deadline=deadline, max_bytes=max_bytes)
        except TooSlow as error:
            raise ParseError(
                f"expected a parse within {self._limits.wall_s:g} s, it took longer and was ended; "
                "raise the wall limit if the file is good",
                reason="timeout",
            ) from error
        except TooLong as error:
            raise ParseError(
                f"expected at most {self._limits.output_chars} characters of text, "
                f"came {error.length} bytes",
                reason="too_much_output",
            ) from error
        except Closed as error:
            raise self._post_mortem() from error

    def _wait_for_answer(
        self, descriptor: int, deadline: float, cancelled: Callable[[], bool]
    ) -> None:
        while not cancelled():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TooSlow
            if select.select([descriptor], [], [], min(_POLL_S, left))[0]:
                return
        raise Cancelled("the parse was cancelled")

    def _post_mortem(self) -> ParseError:
        """Say what a child died of."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 4000))
        said = self._errors.read().decode("utf-8", "replace")
        if code == -signal.SIGXCPU:
            return ParseError(
                f"expected a parse within {self._limits.cpu_s:g} s of CPU time, it took longer and "
                "was ended",
                reason="timeout",
            )
        if "memory allocation" in said or "MemoryError" in said or "bad_alloc" in said:
            return ParseError(
                f"the file needs more than the {self._limits.memory_bytes} bytes of memory that a "
                "parser may use",
                reason="memory",
            )
        last = said.strip().splitlines()[-1:] or [""]
        return ParseError(
            f"the parser crashed on the file (exit {code}) {last[0][:200]}".rstrip(),
            reason="broken",
        )

    def kill(self) -> None:
        """Kill the whole group and reap it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _environment() -> dict[str, str]:
    """Pass on what Python needs to start, and no secrets."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    here = str(Path(__file__).resolve().parents[1])
    passed = {name: os.environ[name] for name in kept if name in os.environ}
    return passed | {
        "PYTHONPATH": here,
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKIO_WORKER_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def _read_answer(answer: dict[str, Any], name: str) -> ParsedFile:
    if "refusal" in answer:
        message = f"{name!r}: {answer['message']}"
        if answer["refusal"] == "unsupported_format":
            raise UnsupportedFormat(message)
        reason = cast(ParseReason, answer["reason"])
        raise ParseError(message, reason=reason, pages=tuple(answer.get("pages", ())))
    fields = answer["text"]
    parsed = ParsedText(
        text=fields["text"],
        format=cast(TextFormat, fields["format"]),
        media_type=fields["media_type"],
        page_starts=tuple(fields["page_starts"]),
        coverage=fields["coverage"],
        warnings=tuple(fields["warnings"]),
        title=fields["title"],
    )
    return ParsedFile(parsed, answer["version"], answer["num_bytes"])


def parse(
    path: Path, name: str, *, limits: ParseLimits | None = None, media_type: str | None = None
) -> ParsedText:
    """Parse one file in a child of its own; `media_type` replaces the detected one in the result.

    Raises TooLarge, UnsupportedFormat or ParseError. For many files keep a `Parser`.
    """
    with Parser(limits or ParseLimits()) as parser:
        parsed = parser.parse(path, name).parsed
    if media_type is None:
        return parsed
    return replace(parsed, media_type=media_type)
