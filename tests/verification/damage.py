"""Damage a store inside a transaction that is rolled back after the check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg

from tests.conformance.support.databases import Database
from timewright.ids import TimedIds
from timewright.operations import OperationContext
from timewright.operations.health.verify import read_history
from timewright.stores.queries.verification import SqlVerificationQueries
from timewright.stores.statements import POSTGRES, RUN_COLUMNS, SQLITE, Dialect, load_statements
from timewright.verification import History

# Every column of a run but its id, to copy a row.
OTHERS = ", ".join([*RUN_COLUMNS.split()[1:], "deferred"])
LEASE = "run_id, {fence}, number, lease_id || 'x', holder, leased_at + {later}, lease_until + {later},"
AGAIN = "started_at, ended_at + {later}, outcome, charged, outcome_label, error, result"
COLUMNS = (
    "run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at,"
    " outcome, charged, outcome_label, error, result"
)


def again(which: str, *, fence: int, later: int) -> tuple[str, str]:
    """Insert one more lease after the last one of a run."""
    copied = f"{LEASE} {AGAIN}".format(fence=fence, later=later)
    return (
        f"INSERT INTO attempts ({COLUMNS}) SELECT {copied} FROM attempts WHERE run_id = ({which})",
        f"UPDATE runs SET fence = {fence} WHERE id = ({which})",
    )


def run_of(
    name: str, state: str = "succeeded", *, reason: str = "", nth: int = 0, oldest: bool = False
) -> str:
    """A subquery for the id of one occurrence of a schedule, by default the newest."""
    mine = f"schedule_id = (SELECT id FROM schedules WHERE name = '{name}') AND dedupe_scope = ''"
    said = f" AND reason = '{reason}'" if reason else ""
    order = "id" if oldest else "id DESC"
    return (
        f"SELECT id FROM runs WHERE {mine} AND state = '{state}'{said} ORDER BY {order} LIMIT 1 OFFSET {nth}"
    )


class _OpenTransaction:
    """A store whose queries run in the open transaction of a connection."""

    def __init__(self, dialect: Dialect, run: Callable[[str, Mapping[str, Any]], list[Any]]) -> None:
        self._statements = load_statements(dialect)
        self._run = run

    def query(self, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        return self._run(self._statements[name].sql, parameters)

    def execute_many(self, name: str, rows: Sequence[Any]) -> list[Any]:
        raise AssertionError(f"{name}: the checker only reads")

    def execute_columns(self, name: str, columns: Sequence[Any]) -> Sequence[Any]:
        raise AssertionError(f"{name}: the checker only reads")

    def read(self, work: Callable[[Any], Any]) -> Any:
        executor: Any = self
        return work(SqlVerificationQueries(executor))


@contextmanager
def damaged(database: Database, *statements: str) -> Iterator[History]:
    """The history of a store after some statements, which are rolled back at the end."""
    opened = _sqlite if database.kind == "sqlite" else _postgres
    with opened(database.place, statements) as inside:
        store: Any = inside
        yield read_history(OperationContext(store=store, ids=TimedIds(), notify=lambda _facts: None))


@contextmanager
def _sqlite(place: str, statements: tuple[str, ...]) -> Iterator[_OpenTransaction]:
    connection = apsw.Connection(place)
    connection.set_busy_timeout(10_000)

    def run(sql: str, parameters: Mapping[str, Any]) -> list[Any]:
        bound = {k: json.dumps(v) if isinstance(v, list) else v for k, v in parameters.items()}
        return list(connection.execute(sql, bound))

    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        yield _OpenTransaction(SQLITE, run)
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def _postgres(place: str, statements: tuple[str, ...]) -> Iterator[_OpenTransaction]:
    with psycopg.connect(place) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield _OpenTransaction(
            POSTGRES, lambda sql, given: connection.execute(sql.encode(), given).fetchall()
        )
        connection.rollback()
