"""The lexical index of one store: an FTS5 table without content; words go in, BM25 hits come out.

Its rows hold terms made by `terms.py`, joined by spaces. A row is deleted by telling FTS5 the
terms that it was made from, so it works with every SQLite that has FTS5.
Knows nothing of documents or filters beyond a SQL condition that it is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, column, func, select, table, text

from index import schema
from index.records import Hit
from index.terms import query_terms

Term = tuple[str, bool]
MANY_ROWS = 2000
"""From here on, counting a term's rows costs less than scoring them in vain."""


def create(connection: Connection, store: int) -> None:
    """Create the empty index of a store."""
    # "ascii" splits at ASCII punctuation and spaces only: exactly at the spaces between our terms.
    connection.exec_driver_sql(
        f"CREATE VIRTUAL TABLE {schema.lexical_table(store)} "
        "USING fts5(terms, content='', tokenize='ascii')"
    )


def drop(connection: Connection, store: int) -> None:
    """Remove the index of a store."""
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {schema.lexical_table(store)}")


def insert(connection: Connection, store: int, rows: Iterable[tuple[int, str]]) -> None:
    """Add rows of (chunk id, terms joined by spaces)."""
    if listed := list(rows):
        name = schema.lexical_table(store)
        connection.exec_driver_sql(f"INSERT INTO {name}(rowid, terms) VALUES (?, ?)", listed)


def delete(connection: Connection, store: int, rows: Iterable[tuple[int, str]]) -> None:
    """Delete rows, given the same terms that they were inserted with."""
    if listed := list(rows):
        name = schema.lexical_table(store)
        connection.exec_driver_sql(
            f"INSERT INTO {name}({name}, rowid, terms) VALUES ('delete', ?, ?)", listed
        )


def clear(connection: Connection, store: int) -> None:
    """Delete all rows at once."""
    name = schema.lexical_table(store)
    connection.exec_driver_sql(f"INSERT INTO {name}({name}) VALUES ('delete-all')")


def optimize(connection: Connection, store: int) -> None:
    """Merge the index into one piece, so that nothing deleted stays in it."""
    name = schema.lexical_table(store)
    connection.exec_driver_sql(f"INSERT INTO {name}({name}) VALUES ('optimize')")


def verify(connection: Connection, store: int) -> None:
    """Let FTS5 check its own structure. Raises sqlite3.DatabaseError (as DBAPIError) if damaged."""
    name = schema.lexical_table(store)
    connection.exec_driver_sql(f"INSERT INTO {name}({name}) VALUES ('integrity-check')")


def search(
    connection: Connection,
    store: int,
    query: str,
    *,
    k: int,
    condition: ColumnElement[bool] | None,
    num_rows: int,
) -> list[Hit]:
    """Give at most k chunks that hold a term of the query, best BM25 first (greater is better).

    `condition` speaks of `schema.documents` and holds before the top k are taken. Of an index of
    many rows (`num_rows`), terms that BM25 weighs with nothing are left out: see `telling`.
    """
    terms = query_terms(query)
    if not terms:
        return []
    if num_rows >= MANY_ROWS:
        some = telling(connection, store, terms, num_rows)
        if 0 < len(some) < len(terms):
            hits = ranked(connection, store, some, k=k, condition=condition)
            if len(hits) == k:
                return hits
    return ranked(connection, store, terms, k=k, condition=condition)


def telling(connection: Connection, store: int, terms: Sequence[Term], num_rows: int) -> list[Term]:
    """Give the terms that fewer than half of the rows hold.

    To the others FTS5 gives the weight 1e-6, at the price of scoring every row that holds them.
    """
    name, half = schema.lexical_table(store), (num_rows + 1) // 2
    matched = f"SELECT 1 FROM {name} WHERE {name} MATCH each.value LIMIT ?"
    counts = connection.exec_driver_sql(
        f"SELECT (SELECT count(*) FROM ({matched})) FROM json_each(?) AS each ORDER BY each.id",
        (half, json.dumps([_match([term]) for term in terms])),
    ).scalars()
    return [term for term, count in zip(terms, counts, strict=True) if count < half]


def ranked(
    connection: Connection,
    store: int,
    terms: Sequence[Term],
    *,
    k: int,
    condition: ColumnElement[bool] | None,
) -> list[Hit]:
    """Give the k best rows that hold one of the terms and satisfy the condition."""
    name = schema.lexical_table(store)
    rows = table(name, column("rowid"))
    rank = func.bm25(text(name)).label("rank")
    statement = select(rows.c.rowid, rank).where(text(f"{name} MATCH :match"))
    if condition is not None:
        statement = (
            statement.select_from(rows)
            .join(schema.chunks, schema.chunks.c.pk == rows.c.rowid)
            .join(schema.documents, schema.documents.c.pk == schema.chunks.c.document)
            .where(condition)
        )
    statement = statement.order_by(text("rank"), rows.c.rowid).limit(k)
    found = connection.execute(statement, {"match": _match(terms)})
    return [Hit(int(row.rowid), -float(row.rank)) for row in found]


def _match(terms: Sequence[Term]) -> str:
    """Join terms by OR; they hold no quote and no ASCII punctuation, so quoting is enough."""
    return " OR ".join(f'"{term}"' + (" *" if is_prefix else "") for term, is_prefix in terms)
