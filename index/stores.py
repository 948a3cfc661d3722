"""Public methods for vector stores and uploaded files: create, find, list, change, delete.

Knows nothing of what a store's documents hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select, update

from index import lexical
from index.blobs import claim_blob, release_blobs
from index.catalogue import (
    file_of_tenant,
    file_record,
    find_documents,
    store_of_tenant,
    store_record,
    store_row,
)
from index.commits import remove
from index.core import Part, fresh_id
from index.errors import Conflict, InvalidInput
from index.filters import check_words
from index.jobs import cancel_inside
from index.records import OF_DOCUMENT, Blob, FileRecord, StoreRecord
from index.schema import documents, files, pack_sha, stores, tombstones, vector_segments
from index.terms import RULE


class Stores(Part):
    """Public methods for vector stores."""

    def create_store(
        self,
        name: str,
        *,
        tenant: str,
        embedder: str,
        embedder_fingerprint: str,
        dimension: int,
        chunking: Mapping[str, int | str],
        metadata: Mapping[str, str] | None = None,
    ) -> StoreRecord:
        """Create an empty store. Raises Conflict where the tenant has one of this name."""
        check_words(name, what="a store's name", max_chars=256)
        if dimension < 1:
            raise InvalidInput(f"expected a dimension of at least 1, got {dimension}")
        with self._core.write() as (connection, _):
            _refuse_taken(connection, name, tenant)
            inserted = connection.execute(
                insert(stores).values(
                    id=fresh_id("vs_"),
                    tenant=tenant,
                    name=name,
                    embedder=embedder,
                    embedder_fingerprint=embedder_fingerprint,
                    dimension=dimension,
                    chunking=dict(chunking),
                    metadata=dict(metadata or {}),
                    generation=0,
                    pruned=0,
                    lexical=RULE,
                    created=self._core.now(),
                )
            )
            assert inserted.inserted_primary_key is not None
            pk = int(inserted.inserted_primary_key[0])
            lexical.create(connection, pk)
            return store_record(connection.execute(select(stores).where(stores.c.pk == pk)).one())

    def get_store(self, store: str, *, tenant: str) -> StoreRecord:
        """Give a tenant's store by id or name. Raises NotFound, for foreign ones too."""
        with self._core.database.read() as connection:
            return store_of_tenant(connection, store, tenant)[1]

    def list_stores(self, *, tenant: str) -> list[StoreRecord]:
        """Give a tenant's stores, oldest first."""
        statement = select(stores).where(stores.c.tenant == tenant).order_by(stores.c.pk)
        with self._core.database.read() as connection:
            return [store_record(row) for row in connection.execute(statement)]

    def known_stores(self, store_ids: Collection[str]) -> set[str]:
        """Give those ids that are a store's, whosever it is."""
        statement = select(stores.c.id).where(stores.c.id.in_(store_ids))
        with self._core.database.read() as connection:
            return set(connection.execute(statement).scalars())

    def update_store(
        self,
        store_id: str,
        *,
        tenant: str,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> StoreRecord:
        """Rename a store or replace its metadata. Raises NotFound, Conflict."""
        values: dict[str, Any] = {} if metadata is None else {"metadata": dict(metadata)}
        with self._core.write() as (connection, _):
            pk, store = store_of_tenant(connection, store_id, tenant)
            if name is not None and name != store.name:
                check_words(name, what="a store's name", max_chars=256)
                _refuse_taken(connection, name, tenant)
                values["name"] = name
            if values:
                connection.execute(update(stores).where(stores.c.pk == pk).values(**values))
            return store_row(connection, store.id)[1]

    def delete_store(self, store_id: str, *, tenant: str) -> None:
        """Delete a store with all its documents; its live jobs are cancelled."""
        with self._core.write() as (connection, garbage):
            pk, store = store_of_tenant(connection, store_id, tenant)
            lexical.clear(connection, pk)
            old = find_documents(connection, documents.c.store == pk)
            versions = remove(self._core, connection, pk, store, old, garbage, with_lexical=False)
            garbage.blobs += release_blobs(connection, versions)
            lexical.drop(connection, pk)
            for table in (vector_segments, tombstones):
                connection.execute(delete(table).where(table.c.store == pk))
            connection.execute(delete(stores).where(stores.c.pk == pk))
            cancel_inside(connection, store.id, self._core.clock())
            garbage.stores.append(pk)


def _refuse_taken(connection: Connection, name: str, tenant: str) -> None:
    statement = select(stores.c.id).where(stores.c.tenant == tenant, stores.c.name == name)
    found = connection.execute(statement).scalar()
    if found is not None:
        raise Conflict(
            f"a vector store named {name!r} exists already ({found}); "
            "use it, or choose another name"
        )


class Files(Part):
    """Public methods for uploaded files."""

    def add_file(
        self, name: str, blob: Blob, *, tenant: str, purpose: str
    ) -> tuple[FileRecord, bool]:
        """Name a blob; the same name and bytes again give the record that is there, and False.

        One that came in as a document (OF_DOCUMENT) takes the purpose of a later upload by itself.
        Raises Conflict where the blob was collected meanwhile: put it again.
        """
        check_words(name, what="a file's name")
        sha = pack_sha(blob.sha256)
        same = select(files).where(
            files.c.tenant == tenant, files.c.name == name, files.c.sha == sha
        )
        with self._core.write() as (connection, _):
            if not claim_blob(connection, sha):
                raise Conflict(f"the bytes of {name!r} were deleted meanwhile; upload them again")
            if (row := connection.execute(same).first()) is not None:
                if row.purpose == OF_DOCUMENT != purpose:
                    connection.execute(
                        update(files).where(files.c.pk == row.pk).values(purpose=purpose)
                    )
                return file_record(connection.execute(same).one()), False
            connection.execute(
                insert(files).values(
                    id=fresh_id("file-"),
                    tenant=tenant,
                    name=name,
                    sha=sha,
                    num_bytes=blob.num_bytes,
                    purpose=purpose,
                    created=self._core.now(),
                )
            )
            return file_record(connection.execute(same).one()), True

    def get_file(self, file_id: str, *, tenant: str) -> FileRecord:
        """Give a tenant's file. Raises NotFound, for foreign ones too."""
        with self._core.database.read() as connection:
            return file_of_tenant(connection, file_id, tenant)

    def list_files(
        self,
        *,
        tenant: str,
        after: str | None = None,
        limit: int | None = None,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> list[FileRecord]:
        """Give a tenant's files by time of upload, from the one that follows the id `after`."""
        statement = select(files).where(files.c.tenant == tenant).limit(limit)
        if purpose is not None:
            statement = statement.where(files.c.purpose == purpose)
        with self._core.database.read() as connection:
            if after is not None:
                file_of_tenant(connection, after, tenant)
                border = select(files.c.pk).where(files.c.id == after).scalar_subquery()
                beyond = files.c.pk > border if order == "asc" else files.c.pk < border
                statement = statement.where(beyond)
            sorted_by = files.c.pk.asc() if order == "asc" else files.c.pk.desc()
            return [file_record(row) for row in connection.execute(statement.order_by(sorted_by))]

    def delete_file(self, file_id: str, *, tenant: str) -> None:
        """Delete an uploaded file; its bytes go unless a document or another file has them."""
        with self._core.write() as (connection, garbage):
            record = file_of_tenant(connection, file_id, tenant)
            connection.execute(delete(files).where(files.c.id == record.id))
            garbage.blobs += release_blobs(connection, [pack_sha(record.sha256)])
