"""The catalogue's tables, as SQLAlchemy Core sees them; migrations/ creates them.

Kept small on disk: SHA-256 as 32 bytes, no index that a look-up does not need, the words of a
text once (compressed). A document's chunks have consecutive ids, so a range names them.
"""

from __future__ import annotations

import re

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from index.errors import InvalidInput

HEAD = "0001"
"""The revision that this code works with; a test compares it with the migrations."""

metadata = MetaData()

stores = Table(
    "stores",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("embedder", Text, nullable=False),
    Column("embedder_fingerprint", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("chunking", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("pruned", Integer, nullable=False),  # tombstones up to this generation are gone
    Column("lexical", Text, nullable=False),  # the rule that made the terms: terms.RULE
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("tenant", "name"),
    sqlite_autoincrement=True,
)

texts = Table(
    "texts",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("sha", LargeBinary, nullable=False, unique=True),
    Column("data", LargeBinary, nullable=False),  # zlib of the UTF-8 bytes
    sqlite_autoincrement=True,
)

documents = Table(
    "documents",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("store", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", LargeBinary, nullable=False, index=True),
    Column("text", Integer, nullable=False, index=True),
    Column("format", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("num_chars", Integer, nullable=False),
    Column("first_chunk", Integer, nullable=False),
    Column("num_chunks", Integer, nullable=False),
    Column("page_starts", JSON, nullable=False),
    Column("coverage", Float, nullable=False),
    Column("warnings", JSON, nullable=False),
    Column("attributes", JSON, nullable=False),
    Column("file_id", Text),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("store", "name"),
    sqlite_autoincrement=True,
)

chunks = Table(
    "chunks",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("document", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("page", Integer),
    Column("around", JSON(none_as_null=True)),  # {"headings", "header", "caption"}, NULL if none
    Column("content", LargeBinary, nullable=False, index=True),  # 16 bytes of content_sha
    sqlite_autoincrement=True,
)

vector_segments = Table(
    "vector_segments",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("store", Integer, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("sha", LargeBinary, nullable=False),
    Column("num_rows", Integer, nullable=False),
    Column("num_dead", Integer, nullable=False),
    Column("first_id", Integer, nullable=False),
    Column("last_id", Integer, nullable=False),
    sqlite_autoincrement=True,
)

tombstones = Table(
    "tombstones",
    metadata,
    Column("store", Integer, primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("first_chunk", Integer, primary_key=True),
    Column("num_chunks", Integer, nullable=False),
    sqlite_with_rowid=False,
)

memory_segments = Table(
    "memory_segments",
    metadata,
    Column("document", Integer, primary_key=True),
    Column("backbone", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("sha", LargeBinary, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("key_dim", Integer, nullable=False),
    sqlite_with_rowid=False,
)

blobs = Table(
    "blobs",
    metadata,
    Column("sha", LargeBinary, primary_key=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("holder", Text),  # the session that put it and has not yet named it in a row
    sqlite_with_rowid=False,
)

files = Table(
    "files",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("sha", LargeBinary, nullable=False, index=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("tenant", "name", "sha"),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("store_id", Text),
    Column("kind", Text, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("state", Text, nullable=False),
    Column("dedupe_key", Text),
    Column("attempts", Integer, nullable=False),
    Column("worker", Text),
    Column("lease_s", Float, nullable=False),
    Column("lease_until", Float),
    Column("run_after", Float, nullable=False),
    Column("progress", JSON, nullable=False),
    Column("result", JSON(none_as_null=True)),
    Column("error", Text),
    Column("error_code", Text),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    sqlite_autoincrement=True,
)
Index("ix_jobs_state", jobs.c.state)
Index(
    "ix_jobs_live_key",
    jobs.c.tenant,
    jobs.c.kind,
    jobs.c.dedupe_key,
    unique=True,
    sqlite_where=text("dedupe_key IS NOT NULL AND state IN ('queued', 'running')"),
)

_HEX_SHA = re.compile(r"[0-9a-f]{64}")


def pack_sha(sha256: str) -> bytes:
    """Give the column's form of a hex SHA-256: 32 bytes."""
    if not _HEX_SHA.fullmatch(sha256):
        raise InvalidInput(f"expected a SHA-256 as 64 lower-case hex digits, got {sha256!r:.100}")
    return bytes.fromhex(sha256)


def unpack_sha(packed: bytes) -> str:
    """Undo `pack_sha`."""
    return packed.hex()


def lexical_table(store: int) -> str:
    """Name the FTS5 table of a store; one per store, so that statistics never cross stores."""
    return f"lexical_{int(store)}"
