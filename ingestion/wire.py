"""Messages of the parser's child process: JSON with its length in front. No pickle.

Parent to child: one JSON object a line. Child to parent: eight bytes of length (big-endian), then
that many bytes of JSON. Knows nothing of what the messages say.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from typing import Any

_LENGTH = 8
_CHUNK = 1 << 16


class Closed(Exception):
    """The other end is gone."""


class TooSlow(Exception):
    """No whole message before the deadline."""


class TooLong(Exception):
    """The message is longer than allowed; `length` is what it claims to be."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Write one message with its length."""
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    write_all(descriptor, len(data).to_bytes(_LENGTH, "big") + data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises Closed when the reader is gone."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except (BrokenPipeError, OSError) as error:
        raise Closed("the pipe is closed") from error


def receive(descriptor: int, *, deadline: float, max_bytes: int) -> dict[str, Any]:
    """Read one message before `deadline` (time.monotonic).

    Raises Closed, TooSlow or TooLong; after either the stream is no longer in step: end the child.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        length = int.from_bytes(_exactly(selector, descriptor, _LENGTH, deadline), "big")
        if length > max_bytes:
            raise TooLong(length)
        data = _exactly(selector, descriptor, length, deadline)
    message = json.loads(data.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise Closed("expected a JSON object")
    return message


def _exactly(
    selector: selectors.BaseSelector, descriptor: int, length: int, deadline: float
) -> bytes:
    data = bytearray()
    while len(data) < length:
        left = deadline - time.monotonic()
        if left <= 0 or not selector.select(left):
            raise TooSlow
        part = os.read(descriptor, min(_CHUNK, length - len(data)))
        if not part:
            raise Closed("the pipe ended")
        data += part
    return bytes(data)
