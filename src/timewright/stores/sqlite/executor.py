"""Runs named statements on SQLite, one row at a time or for a batch of rows.

Rows of a batch are passed as a JSON object of the columns that differ: row by row costs a cache lookup,
binding and a start per row, and evicts the cached plans of other statements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.stores.cache import RowCache
from timewright.stores.rows import Row
from timewright.stores.statements import SQLITE, Statement, load_statements

# Smaller batches, and batches with many distinct values in the shared columns, run row by row.
MIN_BATCH_ROWS = 8

_PARAMETER = re.compile(r"\?(\d+)")
_PLAIN_WRITE = re.compile(r"^(UPDATE|INSERT)(?= (?!OR))")


class JsonBatch(Struct, frozen=True):
    """A statement for many rows, and how its parameters are built from them."""

    sql: str
    shared_columns: Callable[[Row], tuple[Any, ...]]
    varying_columns: Callable[[Row], Any]

    def parameters(self, rows: Sequence[Row]) -> list[tuple[Any, ...]] | None:
        """Return one parameter tuple per set of shared values; None if row by row is better."""
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        shared, varying_of = self.shared_columns, self.varying_columns
        last: tuple[Any, ...] | None = None
        pairs: dict[str, Any] = {}
        for row in rows:
            values = shared(row)
            if values != last:
                last, pairs = values, groups.setdefault(values, {})
            pairs[row[0]] = varying_of(row)
        # A repeated key would overwrite its entry; such a batch runs row by row.
        if len(groups) * MIN_BATCH_ROWS > len(rows) or sum(map(len, groups.values())) < len(rows):
            return None
        return [(_write_json(pairs).decode(), *values) for values, pairs in groups.items()]


@lru_cache(maxsize=256)
def json_batch(sql: str, varying: tuple[int, ...]) -> JsonBatch:
    """Rewrite a statement for many rows; the first parameter holds the varying columns by key."""
    key, *rest = varying
    used = sorted({int(column) - 1 for column in _PARAMETER.findall(sql)})
    shared = [column for column in used if column not in varying]
    replacements = {column: f"?{number}" for number, column in enumerate(shared, start=2)}
    replacements |= {column: f"(v.value ->> {number})" for number, column in enumerate(rest)}
    if len(rest) == 1:
        replacements[rest[0]] = "v.value"
    replacements[key] = "v.key"
    rewritten = _PARAMETER.sub(lambda found: replacements[int(found[1]) - 1], sql)
    return JsonBatch(
        _add_rows_table(rewritten), _column_getter(shared), itemgetter(*rest) if rest else lambda _: 0
    )


def differing_columns(rows: Sequence[Row], varying: tuple[int, ...]) -> tuple[int, ...]:
    """Return the key column and the varying columns in which these rows really differ."""
    key, *rest = varying
    first = rows[0]
    return (key, *(column for column in rest if any(row[column] != first[column] for row in rows)))


def _add_rows_table(sql: str) -> str:
    """Add the JSON rows as a table to a statement.

    OR FAIL avoids a statement journal: a failing statement stays half done, and the caller rolls back.
    """
    sql = _PLAIN_WRITE.sub(r"\1 OR FAIL", sql)
    if "VALUES (" in sql:
        return re.sub(r"VALUES \((.*)\)", r"SELECT \1 FROM json_each(?1) v WHERE true", sql, count=1)
    if sql.startswith("SELECT"):
        return re.sub(r"FROM (\w+)\s+WHERE", r"FROM json_each(?1) v CROSS JOIN \1 WHERE", sql, count=1)
    return sql.replace("WHERE", "FROM json_each(?1) v WHERE", 1)


def _column_getter(columns: Sequence[int]) -> Callable[[Row], tuple[Any, ...]]:
    """Return a getter for these columns of a row."""
    if len(columns) > 1:
        return itemgetter(*columns)
    if not columns:
        return lambda _: ()
    (column,) = columns
    return lambda row: (row[column],)


_write_json = msgspec.json.Encoder().encode
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b")
_OF_LIST = re.compile(r"IN \(SELECT value FROM json_each\((:\w+)\)\)")


class SqliteExecutor:
    """Runs named statements on one connection."""

    is_remote = False

    def __init__(
        self,
        connection: apsw.Connection,
        cache: RowCache | None = None,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self.connection = connection
        self.now = now
        self.cache = cache or RowCache()
        self.has_uncommitted_revisions = False
        self._statements = dict(_one_line_statements())

    def query(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement and return its rows."""
        if list in map(type, parameters.values()):
            return self._query_with_lists(self._statements[name].sql, parameters)
        return list(self.connection.execute(self._statements[name].sql, parameters))

    def _query_with_lists(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement with list parameters; a list of one, the usual case, is bound as a value."""
        for value in parameters.values():
            if type(value) is list and len(value) != 1:
                return self._query_with_json(sql, parameters)
        single = {k: v[0] if type(v) is list else v for k, v in parameters.items()}
        try:
            return list(self.connection.execute(_for_single_values(sql), single))
        except UnicodeEncodeError:
            # A lone surrogate cannot be bound; as JSON it matches nothing.
            return self._query_with_json(sql, parameters)

    def _query_with_json(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        encoded = {k: _json_list(v) if type(v) is list else v for k, v in parameters.items()}
        return list(self.connection.execute(sql, encoded))

    def execute_many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows; returns its rows, or the rows that changed."""
        statement = self._statements[name]
        if len(rows) == 1:
            return self._execute_one(statement, rows)
        batched = (
            self._execute_batch(statement, rows)
            if statement.varying_columns and len(rows) >= MIN_BATCH_ROWS
            else None
        )
        if batched is not None:
            return batched
        if statement.returns_ids:
            return self._changed_rows(statement.sql, rows)
        return list(self.connection.executemany(statement.sql, rows))

    def execute_columns(self, name: str, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Run one statement for many rows given as columns; returns the ids of changed rows."""
        changed = self.execute_many(name, list(zip(*columns, strict=True)))
        is_all = not self._statements[name].returns_ids or len(changed) == len(columns[0])
        return columns[0] if is_all else [row[0] for row in changed]

    def _execute_one(self, statement: Statement, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for one row; the general way costs more than the statement."""
        connection = self.connection
        if not statement.returns_ids:
            return list(connection.execute(statement.sql, rows[0]))
        before = connection.total_changes()
        connection.execute(statement.sql, rows[0])
        return list(rows) if connection.total_changes() != before else []

    def _execute_batch(self, statement: Statement, rows: Sequence[Row]) -> list[Row] | None:
        """Run one statement for all rows; None if they differ in too many columns."""
        batch = json_batch(statement.sql, differing_columns(rows, statement.varying_columns))
        batches = batch.parameters(rows)
        if batches is None:
            return None
        execute, total_changes = self.connection.execute, self.connection.total_changes
        before = total_changes()
        found = [row for parameters in batches for row in execute(batch.sql, parameters)]
        if not statement.returns_ids:
            return found
        if total_changes() - before == len(rows):
            return list(rows)
        return self.execute_many(f"{statement.name}_changed", rows)

    def _changed_rows(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """Run the statement row by row and return the rows that changed something."""
        total_changes = self.connection.total_changes
        changed: list[Row] = []

        def counted() -> Iterator[Row]:
            before = total_changes()
            for row in rows:
                yield row
                after = total_changes()
                if after != before:
                    changed.append(row)
                    before = after

        self.connection.executemany(sql, counted())
        return changed


class SqliteReadExecutor(SqliteExecutor):
    """Runs only reads, on the single connection of an in-memory store.

    `PRAGMA query_only` would discard all prepared plans, so writing statements are refused here instead.
    """

    def __init__(self, connection: apsw.Connection, cache: RowCache, *, now: Callable[[], datetime]) -> None:
        super().__init__(connection, cache, now=now)
        self._statements = _ReadStatements(
            {
                name: statement
                for name, statement in self._statements.items()
                if not _WRITES.search(statement.sql)
            }
        )


class _ReadStatements(dict[str, Statement]):
    """The statements that do not write."""

    def __missing__(self, name: str) -> Statement:
        raise apsw.ReadOnlyError(f"{name} writes, and this is a read-only transaction")


@cache
def _one_line_statements() -> dict[str, Statement]:
    """Statements on one line: the driver compares the whole text to find a cached plan."""
    return {
        name: statement
        if statement.column_types
        else replace(statement, sql=" ".join(map(str.strip, statement.sql.splitlines())))
        for name, statement in load_statements(SQLITE).items()
    }


@cache
def _for_single_values(sql: str) -> str:
    """The same statement for lists of one value."""
    return _OF_LIST.sub(r"= \1", sql)


def _json_list(values: list[Any]) -> str:
    """Return a list as JSON; only the slower encoder accepts lone surrogates."""
    try:
        return _write_json(values).decode()
    except UnicodeEncodeError:
        return json.dumps(values)
