"""The tables of a PostgreSQL store, for backups and moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from timewright.errors import StoreError
from timewright.stores.rows import Row
from timewright.stores.sqlite.file_safety import FROZEN
from timewright.stores.table_copy import Table, TableAccess, sql_literal, store_tables

# Tables whose rows the server numbers, and the column with the number.
NUMBERED = {"audit": "seq", "ready_buckets": "id"}


class PostgresTables(TableAccess):
    """The tables of a database; read-only, it reads one snapshot."""

    mark = "%s"

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        with _translate_errors():
            self._connection = psycopg.connect(url, autocommit=True, connect_timeout=5)
            if read_only:
                self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction."""
        with _translate_errors(), self._connection.transaction():
            yield

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        with _translate_errors():
            cursor = self._connection.execute(sql.encode(), tuple(values) or None)
            return [*cursor.fetchall()] if cursor.description is not None else []

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows into a table; what the server numbers itself goes on after them."""
        statement = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)
        if table.name in NUMBERED:
            key, name = NUMBERED[table.name], table.name
            self.query(f"SELECT setval(pg_get_serial_sequence('{name}', '{key}'), max({key})) FROM {name}")

    def freeze(self, message: str) -> None:
        """Refuse every write from now on, with this message, in every process."""
        text = sql_literal(f"{FROZEN}: {message}")
        with self.transaction():
            # All locks before any work; each waits for the transactions that write to the table.
            tables = ", ".join(table.name for table in store_tables())
            self.query(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
            self.query(
                "CREATE OR REPLACE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS $refuse$"
                f" BEGIN RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction', MESSAGE = {text}; END"
                " $refuse$"
            )
            for table in store_tables():
                self.query(f"DROP TRIGGER IF EXISTS frozen ON {table.name}")
                self.query(
                    f"CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON {table.name}"
                    " FOR EACH STATEMENT EXECUTE FUNCTION refuse_write()"
                )

    def unfreeze(self) -> None:
        """Allow writes again."""
        with self.transaction():
            for table in store_tables():
                self.query(f"DROP TRIGGER IF EXISTS frozen ON {table.name}")
            self.query("DROP FUNCTION IF EXISTS refuse_write()")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StoreError(
            f"PostgreSQL: {' '.join(str(error).split())}",
            rule="the server must be reachable, and the user must own the tables",
            fix="correct it and run the command again; a move continues where it stopped",
        ) from error
