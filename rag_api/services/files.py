"""Uploaded files: bytes streamed into the blob store, named, listed, read back, deleted.

A name is a label and never becomes a path. Knows nothing of HTTP.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal

from index.errors import InvalidInput, NotFound
from index.records import OF_DOCUMENT, DocumentRecord

if TYPE_CHECKING:
    from index import FileRecord
    from rag_api.wiring import Graft

Order = Literal["asc", "desc"]
MAX_NAME = 1024
PURPOSES = ("assistants", "user_data", "batch", "evals", "fine-tune", "vision")


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A stored file, and whether it was there already under this name."""

    file: FileRecord
    is_new: bool


def check_name(name: str, *, param: str = "filename") -> str:
    """Refuse a name that cannot be shown or found again; any other stays exactly as it is."""
    if not name.strip() or len(name) > MAX_NAME:
        raise InvalidInput(f"a name has 1 to {MAX_NAME} characters", param=param)
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        raise InvalidInput(f"the name {name!r} holds control characters", param=param)
    return name


def _check_purpose(purpose: str) -> None:
    if purpose not in PURPOSES:
        raise InvalidInput(
            f"purpose is one of {', '.join(PURPOSES)} and not {purpose!r}", param="purpose"
        )


class Files:
    """The files of a data folder, tenant by tenant."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft

    def upload(
        self, name: str, source: BinaryIO | bytes, *, tenant: str, purpose: str = "user_data"
    ) -> Uploaded:
        """Store bytes under a name. The bytes are durable when this returns.

        The same name with the same bytes is the same file: its record comes back, not new.
        """
        _check_purpose(purpose)
        return self._store(name, source, tenant, purpose)

    def of_document(self, name: str, source: BinaryIO | bytes, *, tenant: str) -> Uploaded:
        """Store bytes that come in only as a document; they go when it is replaced or deleted."""
        return self._store(name, source, tenant, OF_DOCUMENT)

    def _store(self, name: str, source: BinaryIO | bytes, tenant: str, purpose: str) -> Uploaded:
        label = check_name(name)
        limit = self._graft.settings.limits.upload_bytes
        blob = self._graft.index.put_blob(source, max_bytes=limit)
        record, is_new = self._graft.index.add_file(label, blob, tenant=tenant, purpose=purpose)
        return Uploaded(record, is_new)

    def get(self, file_id: str, *, tenant: str) -> FileRecord:
        """Find a file; another tenant's is unknown."""
        return self._graft.index.get_file(file_id, tenant=tenant)

    def list(
        self,
        *,
        tenant: str,
        after: str | None = None,
        limit: int = 100,
        order: Order = "desc",
        purpose: str | None = None,
    ) -> list[FileRecord]:
        """List a tenant's files, of one purpose or of all, after one of them."""
        if purpose is not None:
            _check_purpose(purpose)
        return self._graft.index.list_files(
            tenant=tenant, after=after, limit=limit, order=order, purpose=purpose
        )

    def content(self, file_id: str, *, tenant: str) -> bytes:
        """Read a file's bytes, checked against their checksum."""
        return self._graft.index.read_blob(self.get(file_id, tenant=tenant).sha256)

    def delete(self, file_id: str, *, tenant: str) -> FileRecord:
        """Delete a file, and the documents that were made of it in every store."""
        record = self.get(file_id, tenant=tenant)
        self._delete_documents(file_id, tenant)
        try:
            self._graft.index.delete_file(file_id, tenant=tenant)
        except NotFound:  # two deletes at once: it is gone, which is what was asked
            return record
        self._delete_documents(file_id, tenant)  # what was attached until the file was gone
        return record

    def _delete_documents(self, file_id: str, tenant: str) -> None:
        for store in self._graft.stores.list(tenant=tenant):
            self._graft.jobs.cancel_for(store, {file_id})
            names = [
                document.name
                for document in self._graft.index.list_documents(store.id)
                if document.file_id == file_id
            ]
            if names:
                self._graft.index.delete_documents(store.id, names)

    def release(
        self, file_ids: Iterable[str], *, tenant: str, only_of_documents: bool = False
    ) -> None:
        """Delete files that no document of any store is made of, or is to be made of, any more.

        With `only_of_documents` those stay that were uploaded by themselves.
        """
        wanted = set(file_ids)
        if wanted and only_of_documents:
            wanted &= {f.id for f in self._of_documents(tenant)}
        for store in self._graft.stores.list(tenant=tenant) if wanted else []:
            # Jobs first: one that commits and ends in between is then seen as a document.
            wanted -= self._graft.jobs.waited_for(store)
            listed = self._graft.index.list_documents(store.id)
            wanted -= {document.file_id for document in listed if document.file_id}
        for file_id in wanted:
            try:
                self._graft.index.delete_file(file_id, tenant=tenant)
            except NotFound:
                continue

    def earlier_versions(self, documents: Sequence[DocumentRecord], *, tenant: str) -> set[str]:
        """Give the files that came in as earlier versions of documents (a crash may leave one)."""
        ages = {document.name: document.created for document in documents}
        return {
            file.id
            for file in self._of_documents(tenant)
            if file.name in ages and file.created <= ages[file.name]
        }

    def _of_documents(self, tenant: str) -> Sequence[FileRecord]:
        return self._graft.index.list_files(tenant=tenant, purpose=OF_DOCUMENT)
