"""Copies whole tables between stores of either database, for backups and moves, and freezes a moved store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from timewright.stores.migrate import load_migrations
from timewright.stores.rows import Row
from timewright.stores.sqlite.file_safety import FROZEN, translate_errors

# A transaction of this many rows takes some 0.1 s, and its rows about 10 MB of memory.
BATCH_ROWS = 5_000
# Clock marks belong to one database and are not copied.
CLOCK_META = ("high_water", "clock_accepted")
PROGRESS_META = "copy_progress"
BUSY_TIMEOUT_MS = 60_000
_WRITES = ("INSERT", "UPDATE", "DELETE")


class Table(Struct, frozen=True):
    """A table: its columns, and those of its primary key. Both databases have the same."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class CopyProgress(Struct, frozen=True, kw_only=True):
    """How far a copy got: the table, and the key of its last row. Written with the rows themselves."""

    copy_id: str
    table: str = ""
    after: tuple[str | int, ...] = ()


class TableAccess(ABC):
    """Reads and writes whole tables of one store."""

    mark: str
    """The placeholder of the driver."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Run the block in one transaction."""

    @abstractmethod
    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""

    @abstractmethod
    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows into a table."""

    @abstractmethod
    def freeze(self, message: str) -> None:
        """Refuse every write from now on, with this message, in every process."""

    @abstractmethod
    def unfreeze(self) -> None:
        """Allow writes again."""

    def read_rows(self, table: Table, after: Sequence[Any]) -> list[Row]:
        """Return the next rows after a key, in the order of the key."""
        key = ", ".join(table.key)
        where = f" WHERE ({key}) > ({', '.join([self.mark] * len(table.key))})" if after else ""
        return self.query(
            f"SELECT {', '.join(table.columns)} FROM {table.name}{where} ORDER BY {key} LIMIT {BATCH_ROWS}",
            after,
        )

    def append_rows(self, table: Table, rows: Sequence[Row], progress: CopyProgress) -> None:
        """Insert rows and save the progress, in one transaction."""
        with self.transaction():
            if table.name == "meta":
                for name, value in rows:
                    self.put_meta(name, value)
            else:
                self.insert(table, rows)
            self.put_meta(PROGRESS_META, msgspec.json.encode(progress).decode())

    def count_rows(self, table: Table) -> int:
        """Return how many rows of a table are copied."""
        not_copied = ", ".join(map(sql_literal, (*CLOCK_META, PROGRESS_META)))
        where = f" WHERE name NOT IN ({not_copied})" if table.name == "meta" else ""
        return int(self.query(f"SELECT count(*) FROM {table.name}{where}")[0][0])

    def count_running(self, *, now: int, without_holders: Sequence[str]) -> int:
        """Return how many leases are live at an instant in microseconds, without those of some holders."""
        marks = ", ".join(self.mark for _ in without_holders)
        return int(
            self.query(
                "SELECT count(*) FROM runs WHERE state = 'leased'"
                f" AND lease_until > {self.mark} AND holder NOT IN ({marks})",
                (now, *without_holders),
            )[0][0]
        )

    def read_namespaces(self) -> list[str]:
        """Return the namespaces that have schedules."""
        return [str(row[0]) for row in self.query("SELECT DISTINCT namespace FROM schedules ORDER BY 1")]

    def read_progress(self) -> CopyProgress | None:
        """Return how far an unfinished copy into this store got."""
        value = self.get_meta(PROGRESS_META)
        return msgspec.json.decode(value, type=CopyProgress) if value is not None else None

    def get_meta(self, name: str) -> str | None:
        """Return a single value."""
        rows = self.query(f"SELECT value FROM meta WHERE name = {self.mark}", (name,))
        return str(rows[0][0]) if rows else None

    def put_meta(self, name: str, value: str) -> None:
        """Set a single value."""
        self.query(
            f"INSERT INTO meta (name, value) VALUES ({self.mark}, {self.mark})"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def finish_copy(self, *, now: int) -> None:
        """Make the copy usable; `now` is the clock of the store it came from, in microseconds."""
        with self.transaction():
            self.query(f"DELETE FROM meta WHERE name = {self.mark}", (PROGRESS_META,))


@cache
def store_tables() -> tuple[Table, ...]:
    """Return the tables of a store; pauses come first, so that an unfinished copy starts no work."""
    connection = apsw.Connection(":memory:")
    for migration in load_migrations("sqlite"):
        for statement in migration.statements:
            connection.execute(statement)
    names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = []
    for name in names:
        info = list(connection.execute(f"SELECT name, pk FROM pragma_table_info('{name}')"))
        key = sorted((pk, str(column)) for column, pk in info if pk)
        found.append(Table(name, tuple(str(column) for column, _ in info), tuple(c for _, c in key)))
    connection.close()
    return tuple(sorted(found, key=lambda table: (table.name != "pauses", table.name)))


def copy_tables(
    source: TableAccess,
    to: TableAccess,
    *,
    copy_id: str,
    on_batch: Callable[[str, int], None] | None = None,
) -> None:
    """Copy every table in batches, each in one transaction; continue where a copy with this id was killed."""
    tables = store_tables()
    progress = to.read_progress() or CopyProgress(copy_id=copy_id)
    first = [table.name for table in tables].index(progress.table) if progress.table else 0
    for table in tables[first:]:
        after = progress.after if table.name == progress.table else ()
        while rows := source.read_rows(table, after):
            positions = [table.columns.index(column) for column in table.key]
            after = tuple(rows[-1][position] for position in positions)
            kept = [row for row in rows if row[0] not in CLOCK_META] if table.name == "meta" else rows
            to.append_rows(table, kept, CopyProgress(copy_id=copy_id, table=table.name, after=after))
            if on_batch is not None:
                on_batch(table.name, len(rows))


class SqliteTables(TableAccess):
    """The tables of a store file; read-only, it reads one snapshot."""

    mark = "?"

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self._path = path
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        with translate_errors(path):
            self._connection = apsw.Connection(path, flags=flags)
            self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            if read_only:
                self._connection.execute("BEGIN")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction."""
        with translate_errors(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        with translate_errors(self._path):
            rows: Any = self._connection.execute(sql, tuple(values))
            return list(rows)

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows into a table."""
        marks = ", ".join("?" * len(table.columns))
        self._connection.executemany(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", rows
        )

    def finish_copy(self, *, now: int) -> None:
        """Make the copy usable: its clock does not go back behind that of the store it came from."""
        super().finish_copy(now=now)
        self.put_meta("high_water", str(max(now, int(self.get_meta("high_water") or 0))))

    def freeze(self, message: str) -> None:
        """Refuse every write from now on, with this message, in every process."""
        with self.transaction():
            for table in store_tables():
                for write in _WRITES:
                    self.query(
                        f"CREATE TRIGGER IF NOT EXISTS frozen_{table.name}_{write.lower()}"
                        f" BEFORE {write} ON {table.name}"
                        f" BEGIN SELECT RAISE(ABORT, {sql_literal(f'{FROZEN}: {message}')}); END"
                    )

    def unfreeze(self) -> None:
        """Allow writes again."""
        with self.transaction():
            for table in store_tables():
                for write in _WRITES:
                    self.query(f"DROP TRIGGER IF EXISTS frozen_{table.name}_{write.lower()}")


def sql_literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
