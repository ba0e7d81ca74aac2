"""Two ways to do the same writes: through ledger and store, and by hand-written batched SQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any, Protocol

import apsw
import psycopg

from benchmarks.parts.store_fill import (
    BASE,
    NEVER,
    REVISION_COLUMNS,
    RUN_COLUMNS,
    SCHEDULE_COLUMNS,
    make_schedule,
    schedule_rows,
)
from timewright.core.moments import DAY, to_micros
from timewright.core.run.run import Succeeded
from timewright.core.schedule.schedule import ScheduleProgress
from timewright.ids import TimedIds
from timewright.ledger.admit import admit_due
from timewright.ledger.lease import lease_ready
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ports import ScheduleWrite, Store
from timewright.stores.sqlite.file_safety import WAL_AUTOCHECKPOINT_PAGES
from timewright.stores.sqlite.store import CACHE_KIB

HOLDER = "bench"
LEASE = timedelta(seconds=300)
DAY_US = DAY // timedelta(microseconds=1)
ATTEMPT_COLUMNS = (
    "run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at, outcome, charged,"
    " outcome_label, error, result"
)
# Added schedules are numbered from here, so that they never collide with the filled ones.
_added = count(1_000_000_000, 100_000)


class Side(Protocol):
    """The writes of a scheduler, a batch at a time; each checks its result."""

    name: str

    def add(self, many: int) -> None: ...
    def admit(self, many: int, *, now: datetime) -> None: ...
    def lease(self, many: int, *, now: datetime) -> None: ...
    def settle(self, many: int, *, now: datetime) -> None: ...
    def close(self) -> None: ...


class TimewrightSide:
    """The production code, with decisions, rows and facts."""

    name = "timewright"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids = TimedIds()
        self._leases: tuple[Any, ...] = ()

    def add(self, many: int) -> None:
        first = next(_added)
        progress = ScheduleProgress(cursor=BASE, next_at=NEVER, wake_at=NEVER)
        rows = [
            ScheduleWrite(
                schedule=make_schedule(first + n, NEVER, name=f"added-{first + n}"),
                progress=progress,
                at=BASE,
            )
            for n in range(many)
        ]
        self._store.write(lambda tx: tx.put_schedules(rows))

    def admit(self, many: int, *, now: datetime) -> None:
        admitted = admit_due(self._store, ids=self._ids, now=now, limit=many)
        assert admitted.schedules_read == many == len(admitted.facts), (
            admitted.schedules_read,
            len(admitted.facts),
        )

    def lease(self, many: int, *, now: datetime) -> None:
        self._leases = lease_ready(self._store, ids=self._ids, holder=HOLDER, capacity=many, now=now).leases
        assert len(self._leases) == many, len(self._leases)

    def settle(self, many: int, *, now: datetime) -> None:
        answers = [
            AttemptResult(run=lease.run, outcome=Succeeded(), started_at=now) for lease in self._leases
        ]
        settled = settle_results(self._store, answers, now=now)
        assert len(settled.ended) == many

    def close(self) -> None:
        self._store.close()


class RawSqlSide:
    """The rows that both hand-written sides write."""

    name = "raw SQL"

    def __init__(self) -> None:
        self._numbers = count(1)
        self._leased: list[tuple[Any, ...]] = []

    def _new_schedules(self, many: int) -> list[tuple[Any, ...]]:
        return list(schedule_rows(next(_added), many, wake_at=NEVER))

    def _new_runs(self, due: list[tuple[Any, ...]], at: int) -> list[tuple[Any, ...]]:
        end = ("", "", 100, 1, 0, 0, None, 0, at, None, "", "", None, None, "")
        return [
            (
                f"run_01A{next(self._numbers):023d}",
                *("default", own, "", planned, planned, "ready", 0, "", "baseline-interval", revision),
                *end,
                *(previous, ""),
            )
            for own, revision, planned, _, previous in due
        ]

    def _moves(self, due: list[tuple[Any, ...]], runs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [
            (planned, planned + DAY_US, planned + DAY_US, done + 1, run[0], own)
            for (own, _, planned, done, _), run in zip(due, runs, strict=True)
        ]

    def _leases(self, ready: list[tuple[Any, ...]], at: int) -> list[tuple[Any, ...]]:
        until = at + LEASE // timedelta(microseconds=1)
        return [(f"lease_{run}", HOLDER, at, until, run, fence) for run, fence in ready]

    def _ends(self, at: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        ends = [(at, at, run, fence + 1) for _, _, _, _, run, fence in self._leased]
        attempts = [
            (run, fence + 1, 1, lease, holder, since, until, at, at, "succeeded", 1, "", "", "")
            for lease, holder, since, until, run, fence in self._leased
        ]
        return ends, attempts


class RawSqliteSide(RawSqlSide):
    """apsw and executemany on a connection with the same pragmas."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._db = apsw.Connection(path)
        self._db.set_busy_timeout(10_000)
        # One pragma at a time: the driver stops at the first that returns a row.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}")

    def add(self, many: int) -> None:
        rows = self._new_schedules(many)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(_insert("schedules", SCHEDULE_COLUMNS), [row for row, _ in rows])
        self._db.executemany(_insert("revisions", REVISION_COLUMNS), [row for _, row in rows])
        self._db.execute("COMMIT")

    def admit(self, many: int, *, now: datetime) -> None:
        at = to_micros(now)
        self._db.execute("BEGIN IMMEDIATE")
        due = self._db.execute(
            "SELECT id, revision, wake_at, runs, last_run FROM schedules"
            " WHERE wake_at IS NOT NULL AND wake_at <= ? ORDER BY wake_at, id LIMIT ?",
            (at, many),
        ).fetchall()
        assert len(due) == many
        runs = self._new_runs(due, at)
        self._db.executemany(_insert("runs", RUN_COLUMNS) + " ON CONFLICT DO NOTHING", runs)
        self._db.executemany(
            "UPDATE schedules SET cursor_at = ?, next_at = ?, wake_at = ?, runs = ?, last_run = ?"
            " WHERE id = ?",
            self._moves(due, runs),
        )
        self._db.execute("COMMIT")

    def lease(self, many: int, *, now: datetime) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        ready = self._db.execute(
            "SELECT id, fence FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 0"
            " AND ready_bucket = ''"
            " ORDER BY priority, planned_at, id LIMIT ?",
            (many,),
        ).fetchall()
        assert len(ready) == many
        self._leased = self._leases(ready, to_micros(now))
        self._db.executemany(
            "UPDATE runs SET state = 'leased', fence = fence + 1, lease_id = ?, holder = ?, leased_at = ?,"
            " lease_until = ? WHERE id = ? AND state = 'ready' AND fence = ?",
            self._leased,
        )
        self._db.execute("COMMIT")

    def settle(self, many: int, *, now: datetime) -> None:
        ends, attempts = self._ends(to_micros(now))
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "UPDATE runs SET state = 'succeeded', attempts = attempts + 1, started_at = ?, finished_at = ?,"
            " lease_id = '', holder = '', leased_at = NULL, lease_until = NULL"
            " WHERE id = ? AND state = 'leased' AND fence = ?",
            ends,
        )
        self._db.executemany(_insert("attempts", ATTEMPT_COLUMNS), attempts)
        self._db.execute("COMMIT")
        assert len(ends) == many

    def close(self) -> None:
        self._db.close()


class RawPostgresSide(RawSqlSide):
    """psycopg and unnest: one statement a table, one transaction a batch, prepared by the driver.

    States are compared so that no statistics apply, as in our statements: else some plans are quadratic.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute("SET synchronous_commit = on")

    def add(self, many: int) -> None:
        rows = self._new_schedules(many)
        self._db.execute("BEGIN")
        self._unnest("schedules", SCHEDULE_COLUMNS, SCHEDULE_TYPES, [row for row, _ in rows])
        self._unnest(
            "revisions", REVISION_COLUMNS, "text bigint text bigint text text", [row for _, row in rows]
        )
        self._db.execute("COMMIT")

    def admit(self, many: int, *, now: datetime) -> None:
        at = to_micros(now)
        self._db.execute("BEGIN")
        due = self._db.execute(
            "SELECT id, revision, wake_at, runs, last_run FROM schedules"
            " WHERE wake_at IS NOT NULL AND wake_at <= %s ORDER BY wake_at, id LIMIT %s"
            " FOR UPDATE SKIP LOCKED",
            (at, many),
        ).fetchall()
        assert len(due) == many
        runs = self._new_runs(due, at)
        self._unnest("runs", RUN_COLUMNS, RUN_TYPES, runs, " ON CONFLICT DO NOTHING")
        self._db.execute(
            "UPDATE schedules s SET cursor_at = v.a, next_at = v.b, wake_at = v.c, runs = v.d,"
            " last_run = v.e"
            " FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[])"
            " AS v (a, b, c, d, e, id) WHERE s.id = v.id",
            _columns(self._moves(due, runs)),
        )
        self._db.execute("COMMIT")

    def lease(self, many: int, *, now: datetime) -> None:
        self._db.execute("BEGIN")
        ready = self._db.execute(
            "SELECT id, fence FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 0"
            " AND ready_bucket = ''"
            " ORDER BY priority, planned_at, id LIMIT %s FOR UPDATE SKIP LOCKED",
            (many,),
        ).fetchall()
        assert len(ready) == many
        self._leased = self._leases(ready, to_micros(now))
        self._db.execute(
            "UPDATE runs SET state = 'leased', fence = runs.fence + 1, lease_id = v.a, holder = v.b,"
            " leased_at = v.c, lease_until = v.d"
            " FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[])"
            " AS v (a, b, c, d, id, fence)"
            " WHERE runs.id = v.id AND runs.state || '' = 'ready' AND runs.fence = v.fence",
            _columns(self._leased),
        )
        self._db.execute("COMMIT")

    def settle(self, many: int, *, now: datetime) -> None:
        ends, attempts = self._ends(to_micros(now))
        self._db.execute("BEGIN")
        self._db.execute(
            "UPDATE runs SET state = 'succeeded', attempts = attempts + 1, started_at = v.a,"
            " finished_at = v.b, lease_id = '', holder = '', leased_at = NULL, lease_until = NULL"
            " FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[]) AS v (a, b, id, fence)"
            " WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence",
            _columns(ends),
        )
        self._unnest("attempts", ATTEMPT_COLUMNS, ATTEMPT_TYPES, attempts)
        self._db.execute("COMMIT")
        assert len(ends) == many

    def close(self) -> None:
        self._db.close()

    def _unnest(
        self, table: str, columns: str, types: str, rows: list[tuple[Any, ...]], more: str = ""
    ) -> None:
        arrays = ", ".join(f"%s::{kind}[]" for kind in types.split())
        statement = f"INSERT INTO {table} ({columns}) SELECT * FROM unnest({arrays}){more}"
        self._db.execute(statement.encode(), _columns(rows))


SCHEDULE_TYPES = (
    "text text text text bigint text text bigint bigint bigint text text" + " bigint" * 7 + " text bigint"
)
RUN_TYPES = (
    "text text text text bigint bigint text bigint text text bigint text text"
    " bigint bigint bigint bigint bigint bigint bigint bigint text text bigint bigint text text text"
)
ATTEMPT_TYPES = "text bigint bigint text text bigint bigint bigint bigint text bigint text text text"


def _insert(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' for _ in columns.split(','))})"


def _columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
