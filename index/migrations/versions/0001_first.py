"""Create the first catalogue."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision: str | None = None

# Frozen on purpose: a migration says what was created then, not what schema.py says now.
STATEMENTS = (
    """
    CREATE TABLE blobs (
        sha BLOB NOT NULL,
        num_bytes BIGINT NOT NULL,
        holder TEXT,
        PRIMARY KEY (sha)
    )
     WITHOUT ROWID
    """,
    """
    CREATE TABLE chunks (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        document INTEGER NOT NULL,
        start INTEGER NOT NULL,
        "end" INTEGER NOT NULL,
        num_tokens INTEGER NOT NULL,
        page INTEGER,
        around JSON,
        content BLOB NOT NULL
    )
    """,
    """
    CREATE INDEX ix_chunks_content ON chunks (content)
    """,
    """
    CREATE TABLE documents (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        store INTEGER NOT NULL,
        name TEXT NOT NULL,
        version BLOB NOT NULL,
        text INTEGER NOT NULL,
        format TEXT NOT NULL,
        media_type TEXT NOT NULL,
        num_bytes BIGINT NOT NULL,
        num_chars INTEGER NOT NULL,
        first_chunk INTEGER NOT NULL,
        num_chunks INTEGER NOT NULL,
        page_starts JSON NOT NULL,
        coverage FLOAT NOT NULL,
        warnings JSON NOT NULL,
        attributes JSON NOT NULL,
        file_id TEXT,
        created BIGINT NOT NULL,
        UNIQUE (store, name)
    )
    """,
    """
    CREATE INDEX ix_documents_text ON documents (text)
    """,
    """
    CREATE INDEX ix_documents_version ON documents (version)
    """,
    """
    CREATE TABLE files (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        sha BLOB NOT NULL,
        num_bytes BIGINT NOT NULL,
        purpose TEXT NOT NULL,
        created BIGINT NOT NULL,
        UNIQUE (tenant, name, sha),
        UNIQUE (id)
    )
    """,
    """
    CREATE INDEX ix_files_sha ON files (sha)
    """,
    """
    CREATE TABLE jobs (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        tenant TEXT NOT NULL,
        store_id TEXT,
        kind TEXT NOT NULL,
        payload JSON NOT NULL,
        state TEXT NOT NULL,
        dedupe_key TEXT,
        attempts INTEGER NOT NULL,
        worker TEXT,
        lease_s FLOAT NOT NULL,
        lease_until FLOAT,
        run_after FLOAT NOT NULL,
        progress JSON NOT NULL,
        result JSON,
        error TEXT,
        error_code TEXT,
        created FLOAT NOT NULL,
        updated FLOAT NOT NULL,
        UNIQUE (id)
    )
    """,
    """
    CREATE UNIQUE INDEX ix_jobs_live_key ON jobs (tenant, kind, dedupe_key)
        WHERE dedupe_key IS NOT NULL AND state IN ('queued', 'running')
    """,
    """
    CREATE INDEX ix_jobs_state ON jobs (state)
    """,
    """
    CREATE TABLE memory_segments (
        document INTEGER NOT NULL,
        backbone TEXT NOT NULL,
        name TEXT NOT NULL,
        num_bytes BIGINT NOT NULL,
        sha BLOB NOT NULL,
        num_tokens INTEGER NOT NULL,
        key_dim INTEGER NOT NULL,
        PRIMARY KEY (document, backbone)
    )
     WITHOUT ROWID
    """,
    """
    CREATE TABLE stores (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        embedder TEXT NOT NULL,
        embedder_fingerprint TEXT NOT NULL,
        dimension INTEGER NOT NULL,
        chunking JSON NOT NULL,
        metadata JSON NOT NULL,
        generation INTEGER NOT NULL,
        pruned INTEGER NOT NULL,
        lexical TEXT NOT NULL,
        created BIGINT NOT NULL,
        UNIQUE (tenant, name),
        UNIQUE (id)
    )
    """,
    """
    CREATE TABLE texts (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        sha BLOB NOT NULL,
        data BLOB NOT NULL,
        UNIQUE (sha)
    )
    """,
    """
    CREATE TABLE tombstones (
        store INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        first_chunk INTEGER NOT NULL,
        num_chunks INTEGER NOT NULL,
        PRIMARY KEY (store, generation, first_chunk)
    )
     WITHOUT ROWID
    """,
    """
    CREATE TABLE vector_segments (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        store INTEGER NOT NULL,
        name TEXT NOT NULL,
        num_bytes BIGINT NOT NULL,
        sha BLOB NOT NULL,
        num_rows INTEGER NOT NULL,
        num_dead INTEGER NOT NULL,
        first_id INTEGER NOT NULL,
        last_id INTEGER NOT NULL
    )
    """,
    """
    CREATE INDEX ix_vector_segments_store ON vector_segments (store)
    """,
)


def upgrade() -> None:
    """Create all tables and indexes."""
    for statement in STATEMENTS:
        op.execute(statement)
