"""Writes of on-time admission: one run per schedule at its planned instant, then the next instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from timewright.core.moments import EPOCH, to_micros
from timewright.core.policies.policies import Overlap
from timewright.core.run.needs import needs_of_schedule
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Handoff
from timewright.ports import OnTimeStep
from timewright.stores.queries.base import SqlQueries
from timewright.stores.rows import MICROSECOND, cached_micros, ready_bucket

# Column numbers in rows of new runs.
_READY_BUCKET, _READY_HANDOFF, _LEASED_BUCKET = 7, 10, 6


class SqlAdmissionQueries(SqlQueries):
    """The writes of admission for schedules that are on time."""

    def advance_schedules(self, rows: Sequence[OnTimeStep], *, now: datetime) -> set[str]:
        """Insert one run per schedule and move the schedules on; returns the ids of new runs."""
        if not rows:
            return set()
        created_at = to_micros(now)
        ready = [_run_row(row, created_at) for row in rows if row.started_run is None]
        started = [_leased_row(row.started_run, created_at) for row in rows if row.started_run is not None]
        self._add_buckets(row[_READY_BUCKET] for row in ready if not row[_READY_HANDOFF])
        self._add_buckets(row[_LEASED_BUCKET] for row in started)
        new = {row[0] for row in self._execute_many("insert_on_time_runs", ready)} if ready else set()
        if started:
            new |= {row[0] for row in self._execute_many("insert_leased_runs", started)}
        self._execute_many("advance_on_time", [_progress_row(row, new) for row in rows])
        return new


def _run_row(row: OnTimeStep, created_at: int) -> tuple[Any, ...]:
    """A ready run, with the columns of `insert_on_time_runs`."""
    record, schedule = row.record, row.record.schedule
    at, source = record.progress.next_at, record.progress.source
    assert at is not None
    assert source is not None
    return (
        row.run_id,
        schedule.namespace,
        schedule.id,
        (at - EPOCH) // MICROSECOND,
        source._value_,
        schedule.revision,
        schedule.queue or "",
        _bucket_of(schedule),
        schedule.priority,
        0 if schedule.overlap is Overlap.ALLOW else 1,
        1 if isinstance(schedule.target, Handoff) else 0,
        created_at,
        record.last_run,
    )


def _leased_row(run: Run, created_at: int) -> tuple[Any, ...]:
    """A run with its first lease, with the columns of `insert_leased_runs`."""
    assert run.lease_until is not None
    return (
        run.id,
        run.namespace,
        run.schedule_id,
        (run.planned_at - EPOCH) // MICROSECOND,
        run.source._value_,
        run.revision,
        ready_bucket(run.needs, run.limit_keys),
        run.priority,
        1 if run.exclusive else 0,
        created_at,
        run.previous,
        run.lease_id,
        run.holder,
        cached_micros(run.lease_until),
    )


def _bucket_of(schedule: Schedule) -> str:
    limit_keys = schedule.limit_keys
    return ready_bucket(needs_of_schedule(schedule), limit_keys)


def _progress_row(row: OnTimeStep, new: set[str]) -> tuple[str, int, str]:
    """The next instant of a schedule. If its occurrence existed already, its newest run stays."""
    newest = row.run_id if row.run_id in new else row.record.last_run
    return row.record.schedule.id, (row.next_at - EPOCH) // MICROSECOND, newest
