"""Uploaded bytes, by SHA-256: a stream goes in, a durable file and its row come out, once.

A blob that nobody names yet belongs to the session that put it; it stays until a file or a
document names it, or that session is gone. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, LargeBinary, bindparam, delete, insert, select, update

from index.catalogue import MAX_BOUND, batched
from index.core import Part
from index.errors import Damaged, NotFound, TooLarge
from index.files import CHUNK_BYTES, Folder
from index.records import Blob
from index.schema import blobs, documents, files, pack_sha

_REMEDY = "restore the file from a backup, or upload the same bytes again"

_unnamed = bindparam("unnamed", type_=LargeBinary)
_RELEASE = delete(blobs).where(
    blobs.c.sha == _unnamed,
    blobs.c.holder.is_(None),
    ~select(files.c.pk).where(files.c.sha == _unnamed).exists(),
    ~select(documents.c.pk).where(documents.c.version == _unnamed).exists(),
)


def claim_blob(connection: Connection, sha: bytes) -> bool:
    """Note that a row names the blob now; False where there is no such blob."""
    statement = update(blobs).where(blobs.c.sha == sha).values(holder=None)
    return connection.execute(statement).rowcount > 0


def claim_blobs(connection: Connection, shas: Collection[bytes]) -> None:
    """Note that rows name these blobs now, those that exist."""
    for some in batched(list(shas), MAX_BOUND):
        connection.execute(update(blobs).where(blobs.c.sha.in_(some)).values(holder=None))


def release_blobs(connection: Connection, shas: Iterable[bytes]) -> list[str]:
    """Delete the rows of blobs that nobody names or holds; give the names of their files."""
    gone = []
    for sha in shas:
        if connection.execute(_RELEASE, {"unnamed": sha}).rowcount:
            gone.append(sha.hex())
    return gone


def release_abandoned(connection: Connection, folder: Folder) -> list[str]:
    """Delete the rows of blobs whose session ended before anything named them."""
    rows = connection.execute(
        select(blobs.c.sha, blobs.c.holder).where(blobs.c.holder.is_not(None))
    ).all()
    abandoned = [row.sha for row in rows if not folder.is_living(row.holder)]
    for sha in abandoned:
        claim_blob(connection, sha)
    return release_blobs(connection, abandoned)


class Blobs(Part):
    """Public methods for blobs."""

    def put_blob(self, source: BinaryIO | bytes, *, max_bytes: int | None = None) -> Blob:
        """Store bytes durably and name them by SHA-256; bytes that are there are not stored again.

        Raises TooLarge beyond `max_bytes` (nothing is kept), StorageFailed for a full disk.
        """
        stream = io.BytesIO(source) if isinstance(source, bytes) else source
        folder = self._core.folder
        written = folder.write_temporary(_pieces(stream, max_bytes))
        sha, target = pack_sha(written.sha256), folder.blobs / written.sha256
        try:
            with self._core.write() as (connection, _):
                known = connection.execute(select(blobs.c.num_bytes).where(blobs.c.sha == sha))
                is_new = known.first() is None
                if is_new:
                    folder.publish(written.name, target)
                    connection.execute(
                        insert(blobs).values(
                            sha=sha, num_bytes=written.num_bytes, holder=folder.session
                        )
                    )
                else:
                    _heal(folder, written.name, target, written.num_bytes)
                    _hold(connection, sha, folder.session)
        finally:
            folder.discard_temporary(written.name)
        return Blob(written.sha256, written.num_bytes, is_new)

    def read_blob(self, sha256: str) -> bytes:
        """Give a blob's bytes. Raises NotFound, Damaged."""
        return self.blob_path(sha256).read_bytes()

    def blob_path(self, sha256: str) -> Path:
        """Give the path of a blob whose bytes were just verified. Raises NotFound, Damaged."""
        with self._core.database.read() as connection:
            num_bytes = connection.execute(
                select(blobs.c.num_bytes).where(blobs.c.sha == pack_sha(sha256))
            ).scalar()
        if num_bytes is None:
            raise NotFound(f"no blob {sha256!r}")
        path = self._core.folder.blobs / sha256
        verify_blob(path, num_bytes)
        return path


def verify_blob(path: Path, num_bytes: int) -> None:
    """Check a blob's length and SHA-256 (its name). Raises Damaged."""
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            length = file.tell()
    except OSError as error:
        raise Damaged(f"the blob {str(path)!r} cannot be read: {error}; {_REMEDY}") from error
    if (found, length) != (path.name, num_bytes):
        raise Damaged(
            f"the blob {str(path)!r} has {length} bytes with SHA-256 {found}, expected {num_bytes} "
            f"bytes with the SHA-256 of its name; {_REMEDY}"
        )


def _hold(connection: Connection, sha: bytes, session: str) -> None:
    """Keep a known blob from being collected before the caller has named it, if nobody names it."""
    if not _is_named(connection, sha):
        connection.execute(update(blobs).where(blobs.c.sha == sha).values(holder=session))


def _is_named(connection: Connection, sha: bytes) -> bool:
    for column in (files.c.sha, documents.c.version):
        if connection.execute(select(1).where(column == sha).limit(1)).first() is not None:
            return True
    return False


def _heal(folder: Folder, temporary: str, target: Path, num_bytes: int) -> None:
    """Put good bytes in the place of a blob whose file is missing or damaged."""
    try:
        verify_blob(target, num_bytes)
    except Damaged:
        folder.publish(temporary, target)


def _pieces(stream: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
    total = 0
    while piece := stream.read(CHUNK_BYTES):
        total += len(piece)
        if max_bytes is not None and total > max_bytes:
            raise TooLarge(f"expected at most {max_bytes} bytes, got more; send a smaller file")
        yield piece
