"""Applies migrations when a SQLite store is opened."""

from __future__ import annotations

from typing import Any

import apsw

from timewright.stores.migrate import Migration, load_migrations, pending_migrations
from timewright.stores.sqlite.file_safety import APPLICATION_ID


def migrate(connection: apsw.Connection, path: str) -> None:
    """Apply the missing migrations in one transaction."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        _migrate(connection, path)
        _delete_statistics(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _migrate(connection: apsw.Connection, path: str) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (number INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT"
    )
    rows: list[Any] = list(connection.execute("SELECT number, checksum FROM migrations ORDER BY number"))
    for migration in pending_migrations(load_migrations("sqlite"), rows, path=path):
        _apply(connection, migration)


def _apply(connection: apsw.Connection, migration: Migration) -> None:
    for statement in migration.statements:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migrations VALUES (?, ?, ?)", (migration.number, migration.name, migration.checksum)
    )
    connection.execute(f"PRAGMA user_version = {migration.number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _delete_statistics(connection: apsw.Connection) -> None:
    """Delete planner statistics: those of an almost empty store make every batch scan all runs."""
    if connection.table_exists("main", "sqlite_stat1"):
        connection.execute("DELETE FROM sqlite_stat1; ANALYZE sqlite_schema")
