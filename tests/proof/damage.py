"""Damage done by hand, in a transaction that is undone: what the checker sees is gone afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg

from tests.conformance.databases import Database
from timewright.ids import TimedIds
from timewright.operations import Context
from timewright.operations.verify import gather
from timewright.proof import History
from timewright.stores.proof_verbs import ProofVerbs
from timewright.stores.statements import POSTGRES, RUN_COLUMNS, SQLITE, Dialect, load_book

# Every column of a run but its id, for a row that is copied.
OTHERS = ", ".join([*RUN_COLUMNS.split()[1:], "asleep"])
LEASE = "run_id, {fence}, number, lease_id || 'x', holder, leased_at + {later}, lease_until + {later},"
AGAIN = "started_at, ended_at + {later}, outcome, charged, word, error, result"
COLUMNS = (
    "run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at,"
    " outcome, charged, word, error, result"
)


def again(which: str, *, fence: int, later: int) -> tuple[str, str]:
    """One more lease after the last one of a run, as if it had been given."""
    copied = f"{LEASE} {AGAIN}".format(fence=fence, later=later)
    return (
        f"INSERT INTO attempts ({COLUMNS}) SELECT {copied} FROM attempts WHERE run_id = ({which})",
        f"UPDATE runs SET fence = {fence} WHERE id = ({which})",
    )


def run_of(
    name: str, state: str = "succeeded", *, reason: str = "", nth: int = 0, oldest: bool = False
) -> str:
    """The id of one occurrence of a schedule, as a question inside another; the newest unless said."""
    mine = f"schedule_id = (SELECT id FROM schedules WHERE name = '{name}') AND lane = ''"
    said = f" AND reason = '{reason}'" if reason else ""
    order = "id" if oldest else "id DESC"
    return (
        f"SELECT id FROM runs WHERE {mine} AND state = '{state}'{said} ORDER BY {order} LIMIT 1 OFFSET {nth}"
    )


class _Inside:
    """A store that is the open transaction of a connection, and speaks the book there."""

    def __init__(self, dialect: Dialect, run: Callable[[str, Mapping[str, Any]], list[Any]]) -> None:
        self._book = load_book(dialect)
        self._run = run

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        return self._run(self._book[name].sql, parameters)

    def tell(self, name: str, rows: Sequence[Any]) -> list[Any]:
        raise AssertionError(f"{name}: the checker only reads")

    def keep(self, name: str, columns: Sequence[Any]) -> Sequence[Any]:
        raise AssertionError(f"{name}: the checker only reads")

    def read(self, work: Callable[[Any], Any]) -> Any:
        speaker: Any = self
        return work(ProofVerbs(speaker))


@contextmanager
def damaged(database: Database, *statements: str) -> Iterator[History]:
    """What a store would hold after some statements; they are undone at the end."""
    opened = _sqlite if database.kind == "sqlite" else _postgres
    with opened(database.place, statements) as inside:
        store: Any = inside
        yield gather(Context(store=store, ids=TimedIds(), tell=lambda _facts: None))


@contextmanager
def _sqlite(place: str, statements: tuple[str, ...]) -> Iterator[_Inside]:
    connection = apsw.Connection(place)
    connection.set_busy_timeout(10_000)

    def run(sql: str, parameters: Mapping[str, Any]) -> list[Any]:
        bound = {k: json.dumps(v) if isinstance(v, list) else v for k, v in parameters.items()}
        return list(connection.execute(sql, bound))

    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        yield _Inside(SQLITE, run)
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def _postgres(place: str, statements: tuple[str, ...]) -> Iterator[_Inside]:
    with psycopg.connect(place) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield _Inside(POSTGRES, lambda sql, given: connection.execute(sql.encode(), given).fetchall())
        connection.rollback()
