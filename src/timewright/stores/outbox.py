"""The outbox: a table in the user's own SQLite database, written in the user's transaction.

The standard `sqlite3` is used, as by the user: two SQLite libraries in one process lose each other's locks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

BUSY_TIMEOUT_S = 2.0
_CREATE = """
CREATE TABLE IF NOT EXISTS timewright_outbox (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, zone TEXT NOT NULL, operation TEXT NOT NULL,
    request TEXT NOT NULL, error TEXT NOT NULL DEFAULT '')
"""
_INSERT = """
INSERT INTO timewright_outbox (id, namespace, zone, operation, request) VALUES (?, ?, ?, ?, ?)
"""
_READ = """
SELECT id, namespace, zone, operation, request FROM timewright_outbox WHERE error = '' ORDER BY rowid LIMIT ?
"""
_DELETE = "DELETE FROM timewright_outbox WHERE id = ?"
_REFUSE = "UPDATE timewright_outbox SET error = ? WHERE id = ?"


class OutboxEntry(Struct, frozen=True, kw_only=True):
    """An operation that is performed after the user's commit, with its request as JSON.

    Its id is the key by which the operation happens once.
    """

    id: str
    namespace: str
    zone: str
    operation: str
    request: str


def read_file_name(connection: sqlite3.Connection) -> str:
    """Return the file of the main database of a connection; "" if it is in memory."""
    with closing(_cursor(connection)) as cursor:
        rows = cursor.execute("PRAGMA database_list").fetchall()
    return next((str(row[2] or "") for row in rows if row[1] == "main"), "")


def begins_transactions(connection: sqlite3.Connection) -> bool:
    """Whether a transaction is open, or begins with the next statement that writes."""
    legacy = getattr(connection, "autocommit", -1) == -1
    return connection.in_transaction or (legacy and connection.isolation_level is not None)


def add_entry(connection: sqlite3.Connection, entry: OutboxEntry) -> None:
    """Write an entry in the transaction of the connection; the first one of a database makes the table."""
    with closing(_cursor(connection)) as cursor:
        cursor.execute(_CREATE)
        cursor.execute(_INSERT, (entry.id, entry.namespace, entry.zone, entry.operation, entry.request))


def read_entries(path: str, *, limit: int) -> list[OutboxEntry]:
    """Return the oldest committed entries of a database."""
    with closing(_open(path)) as connection:
        try:
            rows = connection.execute(_READ, (limit,)).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
    names = ("id", "namespace", "zone", "operation", "request")
    return [OutboxEntry(**dict(zip(names, row, strict=True))) for row in rows]


def finish_entries(path: str, done: Sequence[str], refused: Sequence[tuple[str, str]]) -> None:
    """Delete the entries that were performed, and write the error (id, error) of those that were refused."""
    with closing(_open(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_DELETE, [(one,) for one in done])
        connection.executemany(_REFUSE, [(error, one) for one, error in refused])
        connection.execute("COMMIT")


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _open(path: str) -> sqlite3.Connection:
    url = f"{Path(path).resolve().as_uri()}?mode=rw"
    return sqlite3.connect(url, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
