"""Public methods for documents: commit, find, list, delete, their words, and cached vectors.

Prepared documents go in, records come out. Knows nothing of parsing or embedding.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select, update

from index import commits
from index.blobs import release_blobs
from index.catalogue import MAX_BOUND, batched, find_documents, find_named, store_row
from index.core import Part
from index.errors import Damaged, InvalidInput, NotFound
from index.filters import check_attributes
from index.jobs import finish_inside, require_running
from index.records import DocumentRecord, FloatArray, NewDocument
from index.schema import chunks, documents, stores, texts
from index.views import open_view

logger = logging.getLogger(__name__)


class Documents(Part):
    """Public methods for the documents of a store."""

    def find_document(self, store_id: str, name: str) -> DocumentRecord | None:
        """Give a document by name, or None. Raises NotFound for the store."""
        with self._core.database.read() as connection:
            pk, _ = store_row(connection, store_id)
            return find_named(connection, pk, [name]).get(name)

    def get_document(self, store_id: str, name: str) -> DocumentRecord:
        """Give a document by name. Raises NotFound."""
        found = self.find_document(store_id, name)
        if found is None:
            raise NotFound(f"no document {name!r} in the vector store {store_id!r}")
        return found

    def list_documents(
        self, store_id: str, *, after: str | None = None, limit: int | None = None
    ) -> list[DocumentRecord]:
        """Give documents ordered by name (code points), from the first name beyond `after`."""
        with self._core.database.read() as connection:
            pk, _ = store_row(connection, store_id)
            conditions = [documents.c.store == pk]
            if after is not None:
                conditions.append(documents.c.name > after)
            return find_documents(connection, *conditions, limit=limit)

    def commit_documents(
        self,
        store_id: str,
        new_documents: Sequence[NewDocument],
        *,
        embedder_fingerprint: str,
        finishes_job: str | None = None,
        during_job: str | None = None,
        worker: str | None = None,
    ) -> list[DocumentRecord]:
        """Make documents searchable, all at once; gives their records in the order given.

        The same name and version is left as it is; the same name with another version replaces
        the old one with its chunks and memory. `finishes_job` marks a job done in the same
        transaction; with it or `during_job` the commit is refused (Conflict) unless that job is
        running (and leased to `worker`, if given).
        Raises InvalidInput, FingerprintMismatch, NotFound, Conflict, StorageFailed.
        """
        _refuse_repeated([new.name for new in new_documents])
        prepared = [commits.prepare(new) for new in new_documents]
        with self._core.write() as (connection, garbage):
            pk, store = store_row(connection, store_id)
            commits.check_store(store, embedder_fingerprint, prepared)
            job = finishes_job or during_job
            if job is not None:
                require_running(connection, job, worker)
            names = [each.document.name for each in prepared]
            present = find_named(connection, pk, names)
            changed = [
                each
                for each in prepared
                if each.document.name not in present
                or present[each.document.name].version != each.document.version
            ]
            if changed:
                old = [present[n] for n in (c.document.name for c in changed) if n in present]
                versions = commits.remove(self._core, connection, pk, store, old, garbage)
                garbage.segments += commits.add(self._core, connection, pk, store, changed)
                garbage.blobs += release_blobs(connection, versions)
                commits.advance_generation(connection, pk)
            if finishes_job is not None:
                finish_inside(connection, finishes_job, {"documents": names}, self._core.clock())
            found = find_named(connection, pk, names)
        return [found[name] for name in names]

    def update_document(
        self,
        store_id: str,
        name: str,
        *,
        attributes: Mapping[str, str | int | float | bool],
        file_id: str | None = None,
        during_job: str | None = None,
        worker: str | None = None,
    ) -> DocumentRecord:
        """Replace a document's attributes (and its file, if given); later searches filter by them.

        With `during_job` as in `commit_documents`. Raises NotFound, InvalidInput, Conflict.
        """
        check_attributes(attributes)
        values: dict[str, Any] = {"attributes": dict(attributes)}
        if file_id is not None:
            values["file_id"] = file_id
        with self._core.write() as (connection, _):
            pk, _store = store_row(connection, store_id)
            if during_job is not None:
                require_running(connection, during_job, worker)
            changed = connection.execute(
                update(documents)
                .where(documents.c.store == pk, documents.c.name == name)
                .values(**values)
            ).rowcount
            if not changed:
                raise NotFound(f"no document {name!r} in the vector store {store_id!r}")
            commits.advance_generation(connection, pk)
            return find_named(connection, pk, [name])[name]

    def delete_documents(self, store_id: str, names: Sequence[str]) -> list[str]:
        """Delete documents, all at once; gives the names that were there, in the order given.

        A name that is not there is left out of the answer and hinders nothing; a repeated name
        refuses the whole call (InvalidInput). When this returns, no new search finds them.
        """
        _refuse_repeated(names)
        with self._core.write() as (connection, garbage):
            pk, store = store_row(connection, store_id)
            present = find_named(connection, pk, names)
            if present:
                old = list(present.values())
                versions = commits.remove(self._core, connection, pk, store, old, garbage)
                garbage.blobs += release_blobs(connection, versions)
                commits.advance_generation(connection, pk)
        return [name for name in names if name in present]

    def text(self, store_id: str, name: str) -> str:
        """Give exactly the extracted text of a document. Raises NotFound, Damaged."""
        return self.text_of(self.get_document(store_id, name))

    def text_of(self, document: DocumentRecord) -> str:
        """Give exactly the extracted text of a version. Raises NotFound once it was deleted."""
        with self._core.database.read() as connection:
            key = connection.execute(
                select(texts.c.pk)
                .join(documents, documents.c.text == texts.c.pk)
                .where(documents.c.pk == document.id)
            ).scalar()
            if key is None:
                raise NotFound(f"the document {document.name!r} was deleted or replaced")
            return self._core.texts.get(connection, key)

    def cached_vectors(
        self, tenant: str, embedder_fingerprint: str, shas: Sequence[str]
    ) -> dict[str, FloatArray]:
        """Give vectors [E] that the tenant's stores already hold, by content SHA-256.

        The name of a chunk's content is `content_sha(chunk.embedded_text(text))`.
        """
        keys = {commits.content_key(sha): sha for sha in shas}
        found: dict[str, FloatArray] = {}
        statement = (
            select(chunks.c.content, chunks.c.pk, stores.c.id)
            .join(documents, documents.c.pk == chunks.c.document)
            .join(stores, stores.c.pk == documents.c.store)
            .where(stores.c.tenant == tenant)
            .where(stores.c.embedder_fingerprint == embedder_fingerprint)
        )
        with self._core.database.read() as connection:
            places: dict[str, dict[bytes, int]] = defaultdict(dict)
            for some in batched(list(keys), MAX_BOUND):
                for row in connection.execute(statement.where(chunks.c.content.in_(some))):
                    places[row.id][row.content] = row.pk
        for store_id, by_content in places.items():
            for content, vector in self._vectors_at(store_id, by_content).items():
                found[keys[content]] = vector
        return found

    def _vectors_at(self, store_id: str, places: Mapping[bytes, int]) -> dict[bytes, FloatArray]:
        """Give the vectors of chunks; those that a delete or damage took meanwhile are left out."""
        try:
            with open_view(self._core, store_id) as view:
                table = view.table
                alive = {c: n for c, n in places.items() if table.has(n)}
                if not alive:
                    return {}
                vectors = table.vectors_of(np.array(list(alive.values()), np.int64))
                return dict(zip(alive, vectors, strict=True))
        except NotFound:
            return {}
        except Damaged as error:
            logger.warning("vectors are not taken from a damaged store: %s", error)
            return {}


def _refuse_repeated(names: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InvalidInput(
            f"expected each document once, got {repeated[0]!r} more than once; nothing was changed"
        )
