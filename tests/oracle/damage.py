"""Ways to damage the stored history of one schedule, each of which `verify` must find."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tests.oracle.model import HOUR, SECOND
from timewright.verification import History
from timewright.verification.rows import RunRow, ScheduleRow

# No time of a story has a fraction, so that a moved one never becomes another time of the story.
ODD = SECOND + 234_567
RUN_STATES = ("ready", "held", "leased", "succeeded", "failed", "parked", "skipped", "cancelled")
SCHEDULE_STATES = ("active", "paused", "parked", "finished", "archived")
# A lease that timed out leaves the same state and the same charge as one that failed.
OUTCOMES = ("succeeded", "failed", "lost")
LEFT_OUT = "left out"

T = TypeVar("T", bound=Struct)
Trial = tuple[str, History]


def history_of_schedule(history: History, schedule_id: str) -> History:
    """The rows of one schedule."""
    runs = tuple(run for run in history.runs if run.schedule_id == schedule_id)
    ids = {run.id for run in runs}
    return replace(
        history,
        schedules=tuple(row for row in history.schedules if row.id == schedule_id),
        revisions=tuple(row for row in history.revisions if row.schedule_id == schedule_id),
        runs=runs,
        attempts=tuple(row for row in history.attempts if row.run_id in ids),
        audit=tuple(row for row in history.audit if row.subject in (schedule_id, *ids)),
        adjustments=tuple(row for row in history.adjustments if row.schedule_id == schedule_id),
    )


def trials(history: History, rng: random.Random) -> Iterator[Trial]:
    """The history of one schedule with one row lost, doubled or altered, for each kind of damage."""
    rows = [run for run in history.runs if not run.dedupe_scope]
    kinds = {
        "a run": [run for run in rows if run.state != "skipped"],
        "a skipped row": [run for run in rows if run.state == "skipped"],
        "a run by hand": [run for run in history.runs if run.dedupe_scope],
    }
    for name, found in kinds.items():
        if found:
            yield from _run_trials(history, name, rng, found)
    yield from _cursor_trials(history)
    yield from _next_time_trials(history)
    (schedule,) = history.schedules
    for state in SCHEDULE_STATES:
        if state != schedule.state:
            yield f"a schedule {state}", _with_schedule(history, state=state)
    if history.attempts:
        yield from _attempt_trials(history, rng)


def _run_trials(history: History, name: str, rng: random.Random, found: Sequence[RunRow]) -> Iterator[Trial]:
    lost, doubled, moved, changed = (rng.choice(found) for _ in range(4))
    yield f"{name} deleted", replace(history, runs=_without(history.runs, lost))
    for state in RUN_STATES:
        if state != changed.state:
            yield f"{name} {state}", _with_run(history, changed, state=state)
    if name != "a run by hand":
        yield f"{name} {LEFT_OUT}", without_row(history, lost)
        yield f"{name} doubled", replace(history, runs=(*history.runs, replace(doubled, id=doubled.id + "x")))
        by = rng.choice((ODD, -ODD))
        yield f"{name} moved", _with_run(history, moved, planned_at=moved.planned_at + by)


def _cursor_trials(history: History) -> Iterator[Trial]:
    (schedule,) = history.schedules
    for by in (-HOUR - ODD, -ODD, ODD, HOUR + ODD):
        yield "a cursor moved", _with_schedule(history, cursor=schedule.cursor + by)
    if schedule.next_at is not None:
        yield "a cursor at the next time", _with_schedule(history, cursor=schedule.next_at)


def _next_time_trials(history: History) -> Iterator[Trial]:
    (schedule,) = history.schedules
    if schedule.next_at is None:
        return
    yield "no next time", _with_schedule(history, next_at=None, wake_at=None)
    yield "a wake-up lost", _with_schedule(history, wake_at=None)
    for by in (-ODD, ODD, HOUR + ODD):
        at, wake_at = schedule.next_at + by, schedule.wake_at
        wake_at = at if wake_at is None or wake_at == schedule.next_at else wake_at
        yield "a next time moved", _with_schedule(history, next_at=at, wake_at=wake_at)


def _attempt_trials(history: History, rng: random.Random) -> Iterator[Trial]:
    lost, changed = rng.choice(history.attempts), rng.choice(history.attempts)
    yield "an attempt deleted", replace(history, attempts=_without(history.attempts, lost))
    for outcome in OUTCOMES:
        if outcome != changed.outcome and not (outcome == "failed" and changed.outcome == "timed_out"):
            altered = replace(changed, outcome=outcome)
            attempts = (*_without(history.attempts, changed), altered)
            yield f"an attempt {outcome}", replace(history, attempts=attempts)


def without_row(history: History, lost: RunRow) -> History:
    """A history as if an occurrence had never been decided: nothing that a run writes points at it.

    What a person or an agent asked for is another row, and stays.
    """
    counted = lost.state != "skipped" or lost.reason in ("superseded", "deadline")
    return replace(
        history,
        runs=tuple(
            replace(run, previous=lost.previous) if run.previous == lost.id else run
            for run in _without(history.runs, lost)
        ),
        attempts=tuple(attempt for attempt in history.attempts if attempt.run_id != lost.id),
        schedules=tuple(
            _without_run(row, lost, counted=counted) if row.id == lost.schedule_id else row
            for row in history.schedules
        ),
        adjustments=tuple(
            row
            for row in history.adjustments
            if row.kind not in ("failing", "recovered")
            or (row.schedule_id, row.planned_at) != (lost.schedule_id, lost.planned_at)
        ),
    )


def _without_run(row: ScheduleRow, lost: RunRow, *, counted: bool) -> ScheduleRow:
    last_run = lost.previous if row.last_run == lost.id else row.last_run
    return replace(row, runs=row.runs - counted, last_run=last_run)


def _without(rows: tuple[T, ...], lost: T) -> tuple[T, ...]:
    return tuple(row for row in rows if row is not lost)


def _with_run(history: History, changed: RunRow, **fields: Any) -> History:
    altered = replace(changed, **fields)
    return replace(history, runs=tuple(altered if run is changed else run for run in history.runs))


def _with_schedule(history: History, **fields: Any) -> History:
    (schedule,) = history.schedules
    return replace(history, schedules=(replace(schedule, **fields),))
