"""Public methods for the care of a store: check, repair, compact, measure.

Knows nothing of schedules: somebody calls these.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import DBAPIError

from index import lexical
from index.check import findings
from index.commits import advance_generation, rebuild_lexical
from index.core import Part
from index.records import Finding
from index.schema import documents, memory_segments, stores, tombstones
from index.segments import rewrite, segments_of


class Care(Part):
    """Public methods for care."""

    def check(self) -> list[Finding]:
        """Compare every row with its file and every file with its row; empty where all is well.

        What only a concurrent commit explains is not reported: a finding must be there twice.
        """
        found = self._look()
        if found:
            again = {(each.kind, each.subject) for each in self._look()}
            found = [each for each in found if (each.kind, each.subject) in again]
        return found

    def repair(self) -> list[Finding]:
        """Drop or rebuild what is derived and damaged (lexical indexes, token memory).

        Gives the findings that were acted upon; what is left needs a backup or a new ingestion.
        """
        found = [each for each in self.check() if each.kind in ("lexical", "memory")]
        by_kind = {
            kind: {f.subject for f in found if f.kind == kind} for kind in ("lexical", "memory")
        }
        with self._core.write() as (connection, garbage):
            for row in connection.execute(select(stores.c.pk, stores.c.id)).all():
                if row.id in by_kind["lexical"]:
                    lexical.drop(connection, row.pk)
                    lexical.create(connection, row.pk)
                    rebuild_lexical(self._core, connection, row.pk)
            for name in by_kind["memory"]:
                self._drop_memory(connection, name)
                garbage.segments.append(name)
        return found

    def compact(self) -> None:
        """Give deleted things' bytes back: from segments, the lexical index and the catalogue."""
        with self._core.write() as (connection, garbage):
            for row in connection.execute(select(stores)).all():
                for segment in segments_of(connection, row.pk):
                    if segment.num_dead:
                        garbage.segments += rewrite(
                            connection, self._core.folder, row.pk, row.dimension, segment
                        )
                lexical.optimize(connection, row.pk)
                connection.execute(delete(tombstones).where(tombstones.c.store == row.pk))
                connection.execute(
                    update(stores).where(stores.c.pk == row.pk).values(pruned=row.generation)
                )
        self._core.database.vacuum()

    def disk_usage(self) -> dict[str, int]:
        """Give the bytes of files by what they hold: catalogue, vectors, memory, blobs, total."""
        folder = self._core.folder
        sizes = {
            "catalogue": _num_bytes(folder.root.glob("catalogue.sqlite3*")),
            "vectors": _num_bytes(folder.segments.glob("vectors-*")),
            "memory": _num_bytes(folder.segments.glob("memory-*")),
            "blobs": _num_bytes(folder.blobs.iterdir()),
        }
        return sizes | {"total": sum(sizes.values())}

    def _look(self) -> list[Finding]:
        with self._core.database.read() as connection:
            found = list(findings(self._core, connection))
            keys = connection.execute(select(stores.c.pk, stores.c.id)).all()
        for row in keys:
            with self._core.write() as (connection, _):
                if connection.execute(select(stores.c.pk).where(stores.c.pk == row.pk)).first():
                    found += _structure(connection, row.pk, row.id)
        return found

    def _drop_memory(self, connection: Connection, name: str) -> None:
        row = connection.execute(
            select(memory_segments.c.document, documents.c.store)
            .outerjoin_from(
                memory_segments, documents, documents.c.pk == memory_segments.c.document
            )
            .where(memory_segments.c.name == name)
        ).first()
        connection.execute(delete(memory_segments).where(memory_segments.c.name == name))
        if row is not None and row.store is not None:
            advance_generation(connection, row.store)


def _structure(connection: Connection, pk: int, store_id: str) -> list[Finding]:
    """Let FTS5 check one index; it asks for a write transaction, and writes nothing."""
    try:
        lexical.verify(connection, pk)
    except DBAPIError as error:
        message = f"the lexical index is damaged ({error.orig}); Index.repair() builds it again"
        return [Finding("lexical", store_id, message)]
    return []


def _num_bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())
