"""The ordinary step of many schedules at once: a run each where they stood, and on to the next instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from timewright.core.moments import EPOCH, micros
from timewright.core.policies import Overlap
from timewright.core.run import Run
from timewright.core.target import Handoff
from timewright.ports import Advance
from timewright.stores.rows import MICROSECOND, line_of, shared_int
from timewright.stores.verbs import Verbs


class AdvanceVerbs(Verbs):
    """What admission writes most of the time."""

    def advance(self, rows: Sequence[Advance], *, now: datetime) -> set[str]:
        """Insert a run for each, ready or started, and move its schedule on; gives back what was new."""
        if not rows:
            return set()
        created_at = micros(now)
        ready = [_run_row(row, created_at) for row in rows if row.started is None]
        started = [_started_row(row.started, created_at) for row in rows if row.started is not None]
        new = {row[0] for row in self._tell("insert_advanced", ready)} if ready else set()
        if started:
            new |= {row[0] for row in self._tell("insert_started", started)}
        self._tell("move_on", [_moved_row(row, new) for row in rows])
        return new


def _run_row(row: Advance, created_at: int) -> tuple[Any, ...]:
    """The run of an ordinary step, in the order of the statement book."""
    due, schedule = row.due, row.due.schedule
    at, source = due.standing.next_at, due.standing.source
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
        line_of(schedule.gates) if schedule.queue or schedule.limits else "",
        schedule.priority,
        0 if schedule.overlap is Overlap.ALLOW else 1,
        1 if isinstance(schedule.target, Handoff) else 0,
        created_at,
        due.last_run,
    )


def _started_row(run: Run, created_at: int) -> tuple[Any, ...]:
    """A run that starts at once, in the order of the statement book."""
    assert run.lease_until is not None
    return (
        run.id,
        run.namespace,
        run.schedule_id,
        (run.planned_at - EPOCH) // MICROSECOND,
        run.source._value_,
        run.revision,
        run.priority,
        1 if run.alone else 0,
        created_at,
        run.previous,
        run.lease_id,
        run.holder,
        shared_int(run.lease_until),
    )


def _moved_row(row: Advance, new: set[str]) -> tuple[str, int, str]:
    """Where a schedule stands next; whose occurrence was there already keeps the newest run that it has."""
    newest = row.run_id if row.run_id in new else row.due.last_run
    return row.due.schedule.id, (row.following - EPOCH) // MICROSECOND, newest
