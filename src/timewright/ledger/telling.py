"""What a row has to tell: the facts that are true once it is written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from timewright.core.decision import Decision
from timewright.core.facts import (
    Fact,
    OccurrencesDropped,
    RunAdmitted,
    RunLeased,
    RunSkipped,
    RunSucceeded,
    ScheduleFinished,
    ScheduleMoved,
    ScheduleParked,
)
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.ports import Advance


def about(run: Run, *, now: datetime) -> dict[str, Any]:
    """What every fact about a run begins with."""
    return {
        "at": now,
        "namespace": run.namespace,
        "run_id": run.id,
        "schedule_id": run.schedule_id,
        "queue": run.queue,
    }


def new_run(run: Run, *, now: datetime) -> list[Fact]:
    """What a row that was just inserted tells: admitted, perhaps already leased, or not run and why."""
    if run.state is RunState.SKIPPED:
        return [skipped(run, now=now)]
    admitted = RunAdmitted(
        at=now,
        namespace=run.namespace,
        run_id=run.id,
        schedule_id=run.schedule_id,
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        source=run.source._value_,
        held=run.state is RunState.HELD,
        queue=run.queue,
    )
    return [admitted, leased(run, now=now)] if run.state is RunState.LEASED else [admitted]


def advanced(row: Advance, *, now: datetime) -> list[Fact]:
    """What the run of an ordinary step tells: admitted, and perhaps already leased."""
    schedule, at, source = row.due.schedule, row.due.standing.next_at, row.due.standing.source
    assert at is not None
    assert source is not None
    admitted = RunAdmitted(
        at=now,
        namespace=schedule.namespace,
        run_id=row.run_id,
        schedule_id=schedule.id,
        planned_at=at,
        fire_at=at,
        source=source._value_,
        queue=schedule.queue or "",
    )
    return [admitted] if row.started is None else [admitted, leased(row.started, now=now)]


def skipped(run: Run, *, now: datetime) -> Fact:
    """An occurrence that does not run, or many of them in one row."""
    if run.last_of is None:
        return RunSkipped(planned_at=run.planned_at, reason=run.reason, **about(run, now=now))
    return OccurrencesDropped(
        planned_at=run.planned_at,
        last_of=run.last_of,
        count=run.dropped,
        reason=run.reason,
        **about(run, now=now),
    )


def leased(run: Run, *, now: datetime) -> Fact:
    """A run that was handed out."""
    assert run.lease_until is not None
    return RunLeased(
        at=now,
        namespace=run.namespace,
        run_id=run.id,
        schedule_id=run.schedule_id,
        holder=run.holder,
        fence=run.fence,
        lease_until=run.lease_until,
        queue=run.queue,
    )


def succeeded(run: Run, *, fence: int, now: datetime) -> Fact:
    """A run that did its work."""
    return RunSucceeded(
        at=now,
        namespace=run.namespace,
        run_id=run.id,
        schedule_id=run.schedule_id,
        fence=fence,
        word=run.word,
        queue=run.queue,
    )


def schedule_stopped(schedule: Schedule, standing: Standing, *, now: datetime) -> Fact:
    """A schedule that stopped by itself: parked for a person, or finished."""
    kind = ScheduleParked if standing.state is ScheduleState.PARKED else ScheduleFinished
    return kind(at=now, namespace=schedule.namespace, schedule_id=schedule.id, reason=standing.reason)


def schedule_moved(schedule: Schedule, decision: Decision, *, now: datetime) -> Fact:
    """A schedule whose next time was decided again."""
    return ScheduleMoved(
        at=now,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        next_at=decision.at,
        source=decision.source.value,
    )
