"""The parser's child process: paths come in on stdin, texts or refusals go out on stdout.

Run as `python -m ingestion.child '{"memory_bytes": …, "cpu_s": …, "output_chars": …}'`. It has no
network, a limit on memory, on CPU seconds per file and on written files, and imports neither torch
nor the rest of Graft. It ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import resource
import sys
from typing import Any

from ingestion.parsers.extracted import Extracted, Refusal
from ingestion.parsers.registry import parse_bytes
from ingestion.wire import send

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_MAX_WRITTEN = 64 * 2**20
_NETWORK_EVENTS = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo")


def _refuse_network(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _NETWORK_EVENTS:
        raise PermissionError("a parser has no network")


def isolate(memory_bytes: int) -> None:
    """Give up the network and what the limits do not allow; for good."""
    sys.addaudithook(_refuse_network)
    if sys.platform == "linux":
        flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
        with contextlib.suppress(OSError, AttributeError):  # the audit hook remains
            ctypes.CDLL(None, use_errno=True).unshare(flags)
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, _MAX_WRITTEN),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, allowed))


def allow_cpu(seconds: float) -> None:
    """Let this process use `seconds` more of CPU; then SIGXCPU ends it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = int(usage.ru_utime + usage.ru_stime + seconds) + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    allowed = total if hard == resource.RLIM_INFINITY else min(total, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, hard))


def peak_bytes() -> int:
    """Give the highest resident memory of this process.

    Linux carries a parent's `ru_maxrss` over to the program that it starts, so the peak is read
    from the process's own memory map where the kernel shows it.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def answer(request: dict[str, Any], output_chars: int) -> dict[str, Any]:
    """Parse the file that a request names; every outcome is a message."""
    facts: dict[str, Any] = {}
    try:
        with open(request["path"], "rb") as file:
            data = file.read()
        facts = {"version": hashlib.sha256(data).hexdigest(), "num_bytes": len(data)}
        extracted = parse_bytes(data, request["name"])
        if len(extracted.text) > output_chars:
            raise Refusal(
                f"expected at most {output_chars} characters of text, came {len(extracted.text)}; "
                "cut the file or raise the limit",
                reason="too_much_output",
            )
    except Refusal as refusal:
        return facts | {
            "refusal": refusal.kind,
            "reason": refusal.reason,
            "message": refusal.message,
            "pages": list(refusal.pages),
        }
    except MemoryError:
        return facts | _failure("memory", "the file needs more memory than a parser may use")
    except FileNotFoundError:
        return _failure("broken", "the file has vanished")
    except Exception as error:  # noqa: BLE001 - the process border: named, and the child is replaced
        return facts | _failure("broken", f"the parser failed: {type(error).__name__}: {error}")
    return facts | {"text": _fields(extracted)}


def _failure(reason: str, message: str) -> dict[str, Any]:
    return {"refusal": "parse_error", "reason": reason, "message": message[:500], "failed": True}


def _fields(extracted: Extracted) -> dict[str, Any]:
    return {
        "text": extracted.text,
        "format": extracted.format,
        "media_type": extracted.media_type,
        "page_starts": list(extracted.page_starts),
        "coverage": extracted.coverage,
        "warnings": list(extracted.warnings),
        "title": extracted.title,
    }


def main() -> int:
    """Answer requests until stdin ends."""
    limits = json.loads(sys.argv[1])
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    isolate(limits["memory_bytes"])
    send(out, {"ready": True})
    for line in sys.stdin.buffer:
        allow_cpu(limits["cpu_s"])
        message = answer(json.loads(line), limits["output_chars"])
        send(out, message | {"peak_bytes": peak_bytes()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
