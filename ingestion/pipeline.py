"""Files go into a store: identity, parse, split, embed, commit; what became of each comes out.

Files that are already there cost a hash and nothing more (R1). One bad file never stops the others.
Documents are committed in batches that start small, so that the first are searchable early; a
document is visible whole or not at all. Knows nothing of jobs, HTTP or token memories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from index import Index
from index.errors import (
    Cancelled,
    Conflict,
    Damaged,
    FingerprintMismatch,
    GraftError,
    InvalidInput,
    ParseError,
)
from index.records import (
    Chunk,
    DocumentRecord,
    FloatArray,
    NewDocument,
    Progress,
    StoreRecord,
    content_sha,
    no_progress,
)
from ingestion.chunking import ChunkSettings, split
from ingestion.embedding import PassageEmbedder, SlicedEmbedding, Wanted, matrix
from ingestion.parsing import ParsedFile, ParseLimits, Parser
from ingestion.sources import Outcome, SourceFile

FIRST_BATCH, LARGEST_BATCH = 32, 1024
"""Chunks in the first commit, and in the later ones, which double up to it."""


def _never() -> bool:
    return False


def _stop_if(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise Cancelled("the ingestion was cancelled")


def _other_file(old: DocumentRecord | None, new: DocumentRecord) -> str | None:
    """Name the file that a document is no longer made of."""
    return old.file_id if old is not None and old.file_id != new.file_id else None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A document that is parsed and split, and waits for its vectors."""

    number: int
    source: SourceFile
    file: ParsedFile
    chunks: Sequence[Chunk]
    shas: Sequence[str]
    old: DocumentRecord | None

    @property
    def attributes(self) -> Mapping[str, str | int | float | bool]:
        """Give the source's attributes; one that says none keeps those of the version before."""
        return self.source.attributes or (self.old.attributes if self.old is not None else {})

    def wanted(self) -> list[Wanted]:
        text = self.file.parsed.text
        return [
            Wanted(sha, words, chunk.num_tokens + (len(words) - chunk.end + chunk.start) // 3)
            for sha, chunk in zip(self.shas, self.chunks, strict=True)
            for words in (chunk.embedded_text(text),)
        ]


class Pipeline:
    """The way in: one for many runs; it keeps the parser's child process warm between them."""

    def __init__(
        self, index: Index, embedder: PassageEmbedder, limits: ParseLimits | None = None
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._parser = Parser(limits or ParseLimits())
        self._embedding = SlicedEmbedding(embedder)

    def close(self) -> None:
        """End the parser's child process."""
        self._parser.close()

    def ingest(
        self,
        store_id: str,
        sources: Iterable[SourceFile],
        *,
        progress: Progress = no_progress,
        cancelled: Callable[[], bool] = _never,
        during_job: str | None = None,
        worker: str | None = None,
    ) -> list[Outcome]:
        """Ingest files; one outcome a source, in order.

        After `cancelled()` turns true the run ends within about two seconds: what is committed
        stays, the outcomes of the rest are failed with Cancelled. The same happens where
        `during_job` is no longer running (leased to `worker`): each commit looks in its own
        transaction, so a delete that cancels the job is never overtaken by it. Raises NotFound
        for an unknown store and FingerprintMismatch where another embedder made its vectors
        (M1, M2).
        """
        with self._index.view(store_id) as view:
            store = view.store
        if store.embedder_fingerprint != self._embedder.fingerprint:
            raise FingerprintMismatch(
                f"store {store.name!r} holds vectors of {store.embedder!r} "
                f"({store.embedder_fingerprint[:12]}), the embedder at hand is another "
                f"({self._embedder.fingerprint[:12]}); run `graft reindex --store {store.name}` or "
                "load the store's embedder"
            )
        lease = _Lease(during_job, worker)
        run = _Run(self._index, self._embedder, self._parser, self._embedding, store, lease)
        return run.all(list(sources), progress, cancelled)


@dataclass(frozen=True, slots=True)
class _Lease:
    """The job that a run belongs to, if any, and who holds it."""

    job: str | None
    worker: str | None


class _Run:
    """One call of `ingest`."""

    def __init__(
        self,
        index: Index,
        embedder: PassageEmbedder,
        parser: Parser,
        embedding: SlicedEmbedding,
        store: StoreRecord,
        lease: _Lease,
    ) -> None:
        self._lease = lease
        self._index = index
        self._embedder = embedder
        self._parser = parser
        self._embedding = embedding
        self._store = store
        self._settings = ChunkSettings.of(store.chunking)
        self._outcomes: dict[int, Outcome] = {}
        self._waiting: list[_Prepared] = []
        self._batch = FIRST_BATCH
        self._seen: dict[str, str] = {}

    def all(
        self, sources: Sequence[SourceFile], progress: Progress, cancelled: Callable[[], bool]
    ) -> list[Outcome]:
        try:
            for number, source in enumerate(sources):
                if any(waiting.source.name == source.name for waiting in self._waiting):
                    self._flush(progress, cancelled)
                self._take(number, source, cancelled)
                progress("parse", number + 1, len(sources), "files")
                if sum(len(waiting.chunks) for waiting in self._waiting) >= self._batch:
                    self._flush(progress, cancelled)
            self._flush(progress, cancelled)
        except Cancelled as error:
            for number, source in enumerate(sources):
                self._outcomes.setdefault(number, Outcome(source.name, "failed", error=error))
        return [self._outcomes[number] for number in range(len(sources))]

    def _take(self, number: int, source: SourceFile, cancelled: Callable[[], bool]) -> None:
        """Parse and split one file, or note at once what became of it."""
        _stop_if(cancelled)
        try:
            prepared = self._prepare(number, source, cancelled)
        except Cancelled:
            raise
        except GraftError as error:
            self._outcomes[number] = Outcome(source.name, "failed", error=error)
            return
        if prepared is not None:
            self._waiting.append(prepared)

    def _prepare(
        self, number: int, source: SourceFile, cancelled: Callable[[], bool]
    ) -> _Prepared | None:
        there = self._index.find_document(self._store.id, source.name)
        if there is not None and there.version == self._version(source):
            now = self._relabelled(there, source)
            self._outcomes[number] = Outcome(
                source.name,
                "unchanged",
                document=now,
                duplicate_of=now.name,
                replaced_file=_other_file(there, now),
            )
            return None
        file = self._parser.parse(self._path(source), source.name, cancelled=cancelled)
        chunks = split(
            file.parsed, self._settings, self._embedder, check=lambda: _stop_if(cancelled)
        )
        text = file.parsed.text
        shas = [content_sha(chunk.embedded_text(text)) for chunk in chunks]
        return _Prepared(number, source, file, chunks, shas, old=there)

    def _relabelled(self, there: DocumentRecord, source: SourceFile) -> DocumentRecord:
        """Give a document whose bytes are unchanged the attributes and the file of its source."""
        file_id = there.file_id if source.file_id is None else source.file_id
        attributes = source.attributes or there.attributes
        if dict(there.attributes) == dict(attributes) and there.file_id == file_id:
            return there
        try:
            return self._index.update_document(
                self._store.id,
                there.name,
                attributes=attributes,
                file_id=file_id,
                during_job=self._lease.job,
                worker=self._lease.worker,
            )
        except Conflict as error:
            raise Cancelled(f"the job is no longer running here: {error.message}") from error

    def _path(self, source: SourceFile) -> Path:
        if source.path is not None:
            return source.path
        assert source.sha256 is not None
        return self._index.blob_path(source.sha256)

    def _version(self, source: SourceFile) -> str:
        """Hash a file's bytes (a blob is named by its hash)."""
        if source.sha256 is not None:
            return source.sha256
        try:
            with self._path(source).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ParseError(
                f"{source.name!r} cannot be read: {error.strerror}", reason="broken"
            ) from error

    def _flush(self, progress: Progress, cancelled: Callable[[], bool]) -> None:
        """Embed and commit all that waits, and let the next batch be larger."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._finish(waiting, progress, cancelled)
            self._batch = min(self._batch * 2, LARGEST_BATCH)

    def _finish(
        self, batch: Sequence[_Prepared], progress: Progress, cancelled: Callable[[], bool]
    ) -> None:
        """Commit a batch; if it is refused, document by document, so that one alone fails."""
        try:
            vectors = self._vectors(batch, progress, cancelled)
            _stop_if(cancelled)
            documents = [
                NewDocument(
                    name=prepared.source.name,
                    version=prepared.file.version,
                    num_bytes=prepared.file.num_bytes,
                    parsed=prepared.file.parsed,
                    chunks=prepared.chunks,
                    vectors=matrix(vectors, prepared.shas, self._embedder.dimension),
                    attributes=prepared.attributes,
                    file_id=prepared.source.file_id,
                )
                for prepared in batch
            ]
            records = self._commit(documents)
        except (InvalidInput, Damaged) as error:
            self._divide(batch, error, progress, cancelled)
            return
        for prepared, record in zip(batch, records, strict=True):
            self._note(prepared, record)
        progress("commit", len(self._outcomes), len(self._outcomes) + len(self._waiting), "files")

    def _commit(self, documents: Sequence[NewDocument]) -> list[DocumentRecord]:
        try:
            return self._index.commit_documents(
                self._store.id,
                documents,
                embedder_fingerprint=self._embedder.fingerprint,
                during_job=self._lease.job,
                worker=self._lease.worker,
            )
        except Conflict as error:
            if self._lease.job is None or isinstance(error, FingerprintMismatch):
                raise
            raise Cancelled(f"the job is no longer running here: {error.message}") from error

    def _divide(
        self,
        batch: Sequence[_Prepared],
        error: GraftError,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> None:
        if len(batch) == 1:
            source = batch[0].source
            self._outcomes[batch[0].number] = Outcome(source.name, "failed", error=error)
            return
        for prepared in batch:
            self._finish([prepared], progress, cancelled)

    def _note(self, prepared: _Prepared, record: DocumentRecord) -> None:
        earlier = self._seen.setdefault(prepared.file.version, record.name)
        self._outcomes[prepared.number] = Outcome(
            record.name,
            "replaced" if prepared.old is not None else "added",
            document=record,
            duplicate_of=earlier if earlier != record.name else None,
            replaced_file=_other_file(prepared.old, record),
        )

    def _vectors(
        self, batch: Sequence[_Prepared], progress: Progress, cancelled: Callable[[], bool]
    ) -> dict[str, FloatArray]:
        """Take the vectors that the store's tenant has already, and embed the rest."""
        shas = list(dict.fromkeys(sha for prepared in batch for sha in prepared.shas))
        vectors = dict(
            self._index.cached_vectors(self._store.tenant, self._embedder.fingerprint, shas)
        )
        missing = [w for prepared in batch for w in prepared.wanted() if w.sha not in vectors]
        if missing:
            vectors |= self._embedding.embed(missing, progress=progress, cancelled=cancelled)
        return vectors
