"""Fill stores with schedules and history by bulk SQL; not timed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import psycopg

from timewright.core.moments import DAY, to_micros
from timewright.core.recurrence.triggers import Every
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Note
from timewright.stores.schedule_rows import schedule_body, shard_of

BASE = datetime(2026, 3, 10, tzinfo=UTC)
STEP = timedelta(milliseconds=1)
NEVER = datetime(2150, 1, 1, tzinfo=UTC)

SCHEDULE_COLUMNS = (
    "id, namespace, name, group_name, revision, state, reason, cursor_at, next_at, wake_at, source, trail,"
    " failures, runs, missed, paused_at, paused_until, last_started_at, last_finished_at, hints, shard"
)
REVISION_COLUMNS = "schedule_id, revision, body, at, actor, reason"
RUN_COLUMNS = (
    "id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, deferred, reason, source,"
    " revision, queue, ready_bucket, priority, exclusive, handoff, fence, last_of, dropped, created_at,"
    " finished_at, lease_id, holder, leased_at, lease_until, parent, previous, extra"
)


def schedule_id(number: int) -> str:
    return f"sch_{number:026d}"


def wake_position(number: int, many: int) -> int:
    """Scatter the wake times, because schedules are not created in the order in which they wake."""
    return number * 7_368_787 % many


def make_schedule(number: int, anchor: datetime, *, name: str = "") -> Schedule:
    """A schedule that runs once a day at its own millisecond, with default policies."""
    return Schedule(
        id=schedule_id(number),
        name=name or f"schedule-{number:08d}",
        created_at=BASE - DAY,
        trigger=Every(DAY, anchor),
        target=Note(text="hello"),
    )


def schedule_rows(first: int, many: int, *, wake_at: datetime | None = None) -> Iterator[tuple[Any, ...]]:
    """The rows of both tables, one schedule at a time."""
    body = schedule_body(make_schedule(0, BASE))
    parts = (schedule_id(0), "schedule-00000000", "2026-03-10T00:00:00Z")
    assert all(part in body for part in parts), body
    for number in range(first, first + many):
        anchor = wake_at or BASE + wake_position(number, many) * STEP
        own, name = schedule_id(number), f"schedule-{number:08d}"
        text = body.replace(parts[0], own).replace(parts[1], name)
        text = text.replace(parts[2], anchor.isoformat().replace("+00:00", "Z"))
        at = to_micros(anchor)
        start = (own, "default", name, "", 1, "active", "", at - 1, at, at, "baseline-interval", "")
        yield (
            (*start, 0, 0, 0, None, None, None, None, "", shard_of(own)),
            (own, 1, text, to_micros(BASE), "", ""),
        )


def fill_sqlite(connection: apsw.Connection, schedules: int) -> None:
    connection.execute("PRAGMA cache_size = -524288; BEGIN IMMEDIATE")
    rows = list(schedule_rows(0, schedules))
    connection.executemany(_values("schedules", SCHEDULE_COLUMNS), (row for row, _ in rows))
    connection.executemany(_values("revisions", REVISION_COLUMNS), (row for _, row in rows))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill_postgres(connection: psycopg.Connection[Any], schedules: int) -> None:
    rows = list(schedule_rows(0, schedules))
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY schedules ({SCHEDULE_COLUMNS}) FROM STDIN".encode()) as copy:
            for row, _ in rows:
                copy.write_row(row)
        with cursor.copy(f"COPY revisions ({REVISION_COLUMNS}) FROM STDIN".encode()) as copy:
            for _, row in rows:
                copy.write_row(row)
    _age_postgres(connection)


# Update every schedule and undo it, so that a benchmark need not wait until each was due.
_MOVED = "UPDATE schedules SET wake_at = wake_at - 1"
_MOVED_BACK = "UPDATE schedules SET wake_at = wake_at + 1"


def _age_postgres(connection: psycopg.Connection[Any]) -> None:
    """Flush what was written, and touch every page that a tick reads and writes."""
    statements = (
        "VACUUM ANALYZE",
        "CHECKPOINT",
        _MOVED,
        "VACUUM schedules",
        _MOVED_BACK,
        "VACUUM schedules",
        "SET enable_seqscan = off",
        "SELECT sum(length(body)) FROM (SELECT body FROM revisions ORDER BY schedule_id, revision) AS bodies",
        "RESET enable_seqscan",
    )
    for statement in statements:
        connection.execute(statement.encode())


_HISTORY = """
INSERT INTO runs ({columns})
SELECT 'run_' || {number}, 'default', 'sch_' || {schedule}, '', {base} - {back}, {base} - {back},
    'succeeded', 0, '', 'baseline-interval', 1, '', '', 100, 1, 0, 1, NULL, 0, {base} - {back},
    {base} - {back}, '', '', NULL, NULL, '', '', ''
FROM {series}
"""


def add_history_sqlite(
    connection: apsw.Connection, schedules: int, runs: int, *, at_a_time: int = 1_000_000
) -> None:
    """Insert finished runs, oldest first."""
    for first in range(0, runs, at_a_time):
        last = min(first + at_a_time, runs) - 1
        series = (
            f"(WITH RECURSIVE s (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM s WHERE i < {last})"
            " SELECT i FROM s)"
        )
        connection.execute(
            _HISTORY.format(
                columns=RUN_COLUMNS,
                number="printf('%026d', i)",
                schedule=f"printf('%026d', i % {schedules})",
                base=to_micros(BASE),
                back=f"({runs} - i) * 1000000",
                series=series,
            )
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def add_history_postgres(
    connection: psycopg.Connection[Any], schedules: int, runs: int, *, at_a_time: int = 1_000_000
) -> None:
    """Insert finished runs, oldest first."""
    for first in range(0, runs, at_a_time):
        last = min(first + at_a_time, runs) - 1
        statement = _HISTORY.format(
            columns=RUN_COLUMNS,
            number="lpad(i::text, 26, '0')",
            schedule=f"lpad((i % {schedules})::text, 26, '0')",
            base=to_micros(BASE),
            back=f"({runs} - i) * 1000000",
            series=f"generate_series({first}::bigint, {last}) AS s (i)",
        )
        connection.execute(statement.encode())
    _age_postgres(connection)


def _values(table: str, columns: str) -> str:
    places = ", ".join("?" for _ in columns.split(","))
    return f"INSERT INTO {table} ({columns}) VALUES ({places})"
