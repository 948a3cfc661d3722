"""The words of versions: compressed once in the catalogue, verified when read, then cached.

Text goes in, its key comes out, and the other way round. Knows nothing of chunks.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict

from sqlalchemy import Connection, bindparam, select

from index.errors import Damaged
from index.records import content_sha
from index.schema import texts, unpack_sha

CACHE_CHARS = 64_000_000

_BY_PK = select(texts.c.sha, texts.c.data).where(texts.c.pk == bindparam("key"))


def compress(words: str) -> bytes:
    """Give the stored form of a text."""
    return zlib.compress(words.encode("utf-8", "surrogatepass"), 6)


def expand(data: bytes, sha256: str) -> str:
    """Undo `compress` and verify. Raises Damaged."""
    try:
        words = zlib.decompress(data).decode("utf-8", "surrogatepass")
    except (zlib.error, UnicodeDecodeError) as error:
        raise Damaged(_message(sha256, str(error))) from error
    if content_sha(words) != sha256:
        raise Damaged(_message(sha256, "its words have another SHA-256"))
    return words


def _message(sha256: str, problem: str) -> str:
    return (
        f"the text {sha256} in the catalogue is damaged ({problem}); restore the data folder from "
        "a backup, or delete the documents that hold it and ingest them again"
    )


class TextCache:
    """The texts read last, at most CACHE_CHARS code points of them; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[int, str] = OrderedDict()
        self._num_chars = 0

    def get(self, connection: Connection, key: int) -> str:
        """Give the text with this primary key (keys are never used twice). Raises Damaged."""
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        row = connection.execute(_BY_PK, {"key": key}).one()
        words = expand(row.data, unpack_sha(row.sha))
        self._remember(key, words)
        return words

    def forget(self, keys: set[int]) -> None:
        """Drop texts that were deleted."""
        with self._lock:
            for key in keys & self._texts.keys():
                self._num_chars -= len(self._texts.pop(key))

    def _remember(self, key: int, words: str) -> None:
        with self._lock:
            if key in self._texts:
                return
            self._texts[key] = words
            self._num_chars += len(words)
            while self._num_chars > CACHE_CHARS and len(self._texts) > 1:
                self._num_chars -= len(self._texts.popitem(last=False)[1])
