"""Brings the schema of a SQLite store up to date when it is opened."""

from __future__ import annotations

from typing import Any

import apsw

from timewright.stores.file_safety import APPLICATION_ID
from timewright.stores.migrate import Migration, migrations, pending


def bring_up_to_date(connection: apsw.Connection, place: str) -> None:
    """Apply the steps that are missing, all of them or none."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        _migrate(connection, place)
        _forget_statistics(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _migrate(connection: apsw.Connection, place: str) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (number INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT"
    )
    rows: list[Any] = list(connection.execute("SELECT number, checksum FROM migrations ORDER BY number"))
    for step in pending(migrations("sqlite"), rows, place=place):
        _apply(connection, step)


def _apply(connection: apsw.Connection, step: Migration) -> None:
    for statement in step.statements:
        connection.execute(statement)
    connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (step.number, step.name, step.checksum))
    connection.execute(f"PRAGMA user_version = {step.number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _forget_statistics(connection: apsw.Connection) -> None:
    """Those of a store that was almost empty would have every batch walk through all runs."""
    if connection.table_exists("main", "sqlite_stat1"):
        connection.execute("DELETE FROM sqlite_stat1; ANALYZE sqlite_schema")
