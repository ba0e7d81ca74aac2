"""Runs named statements on PostgreSQL. The rows of a batch are sent as array literals.

Results are decoded by the driver's loaders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.adapt import Transformer
from psycopg.pq.abc import PGresult

from timewright.ports import Clock
from timewright.stores.cache import RowCache
from timewright.stores.clock_guard import ClockGuard
from timewright.stores.postgres.connection import Connection, PreparedStatement, RawConnection
from timewright.stores.rows import Row
from timewright.stores.statements import Statement

# Reads of every tick. They are prepared, because planning one takes ten times as long as running it.
PROBES = frozenset({"pending_work", "waiting_rows_of_past", "cancel_requested_runs"})

# Statements whose result nobody reads; they are sent together with the next one. A lock among them is taken
# only then, so no caller may rely on it before its next query.
PIPELINED = frozenset(
    {
        "lock_schedules",
        "lock_runs",
        "insert_schedules",
        "insert_revisions",
        "insert_unique_runs",
        "insert_manual_runs",
        "save_progress",
        "advance_progress",
        "advance_on_time",
        "insert_limit_holds",
        "delete_limit_holds",
        "insert_attempts",
        "lock_meta",
        "put_meta",
        "insert_audit",
    }
)
_PLACEHOLDER = re.compile(r"%(?:\((\w+)\))?s")


def number_parameters(statements: Mapping[str, Statement]) -> dict[str, PreparedStatement]:
    """Return every statement with numbered parameters, and the shared forms of some."""
    shared = {
        f"{name}_shared": statement.shared_form
        for name, statement in statements.items()
        if statement.shared_form
    }
    numbered = {name: _number(statement) for name, statement in statements.items()}
    return numbered | {name: _number(Statement(name, sql)) for name, sql in shared.items()}


class PostgresExecutor:
    """Runs named statements on one connection inside a transaction."""

    is_remote = True

    def __init__(
        self,
        connection: Connection | RawConnection,
        statements: Mapping[str, PreparedStatement],
        cache: RowCache | None = None,
        *,
        prepares: bool = False,
        clock: Clock | None = None,
        guard: ClockGuard | None = None,
    ) -> None:
        self.cache = cache or RowCache()
        self.has_uncommitted_revisions = False
        self._connection = connection
        self._statements = statements
        self._prepares = prepares
        self._clock = clock
        self._guard = guard
        self._loads = Transformer(connection if isinstance(connection, Connection) else None)

    def query(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement and return its rows."""
        statement = self._statements[name]
        given = (parameters[name] for name in statement.names)
        values = [text_array(value) if isinstance(value, list) else value for value in given]
        return self._rows(self._run(statement, values))

    def execute_many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows; each column is sent as one array."""
        return self._rows(self._run_batch(name, tuple(zip(*rows, strict=True)))) if rows else []

    def execute_columns(self, name: str, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Run one statement for many rows given as columns; returns the ids of changed rows."""
        result = self._run_batch(name, columns)
        if result is None or not result.nfields or result.ntuples == len(columns[0]):
            return columns[0]
        return [row[0] for row in self._rows(result)]

    def _run_batch(self, name: str, columns: Sequence[Sequence[Any]]) -> PGresult | None:
        statement = self._statements[name]
        if statement.shared_form and _differ_only_in(columns, statement.varying_columns):
            shared = self._statements[statement.shared_form]
            return self._run(shared, _shared_parameters(statement, columns, order=map(int, shared.names)))
        pairs = zip(statement.kinds, columns, strict=True)
        return self._run(
            statement, [text_array(c) if kind == "text" else bigint_array(c) for kind, c in pairs]
        )

    def now(self) -> datetime:
        """Return the server's clock; tests and simulation inject another."""
        if self._clock is None:
            reading = self._connection.now()
        else:
            self._connection.flush_pipeline()
            reading = self._clock.now()
        return self._guard.check(reading) if self._guard is not None else reading

    def _run(self, statement: PreparedStatement, values: Sequence[str | int | None]) -> PGresult | None:
        return self._connection.query_statement(statement, values, prepares=self._prepares)

    def _rows(self, result: PGresult | None) -> list[Row]:
        if result is None or not result.ntuples:
            return []
        self._loads.set_pgresult(result)
        return self._loads.load_rows(0, result.ntuples, tuple)


class PostgresReadExecutor(PostgresExecutor):
    """Runs reads; the first query begins the snapshot.

    Most reads are not prepared, because their plans depend on the parameters. A probe needs no transaction.
    """

    has_begun = False

    def _run(self, statement: PreparedStatement, values: Sequence[str | int | None]) -> PGresult | None:
        is_probe, connection = statement.name in PROBES, self._connection
        assert isinstance(connection, Connection)
        if not self.has_begun and not (is_probe and connection.has_planner_settings):
            connection.begin_read(is_probe=is_probe)
            self.has_begun = True
            self._prepares = self._prepares and is_probe
        return super()._run(statement, values)


def bigint_array(column: Iterable[int | None]) -> str:
    """Return an array literal of numbers; None becomes NULL."""
    return f"{{{','.join(map(str, column)).replace('None', 'NULL')}}}"


def text_array(column: Sequence[str]) -> str:
    """Return an array literal of texts."""
    if not column:
        return "{}"
    quoted = '","'.join(column)
    if "\\" in quoted or quoted.count('"') != 2 * len(column) - 2:
        quoted = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in column])
    return f'{{"{quoted}"}}'


def _differ_only_in(columns: Sequence[Sequence[Any]], varying: tuple[int, ...]) -> bool:
    """Whether rows differ only in the varying columns."""
    rows = len(columns[0])
    return all(number in varying or column.count(column[0]) == rows for number, column in enumerate(columns))


def _shared_parameters(
    statement: PreparedStatement, columns: Sequence[Sequence[Any]], *, order: Iterable[int]
) -> list[str | int | None]:
    """Parameters of the shared form: arrays for varying columns, single values for the others."""
    given: list[str | int | None] = []
    for number in order:
        column = columns[number]
        if number in statement.varying_columns:
            given.append(text_array(column) if statement.kinds[number] == "text" else bigint_array(column))
        else:
            given.append(None if column[0] is None else str(column[0]))
    return given


def _number(statement: Statement) -> PreparedStatement:
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found[1] or str(len(names))
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    sql = _PLACEHOLDER.sub(number, statement.sql)
    shared_form = f"{statement.name}_shared" if statement.shared_form else ""
    has_no_result = statement.name.removesuffix("_shared") in PIPELINED
    return PreparedStatement(
        statement.name,
        sql,
        tuple(names),
        statement.column_types,
        statement.varying_columns,
        shared_form,
        has_no_result,
    )
