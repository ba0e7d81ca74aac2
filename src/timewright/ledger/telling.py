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
    ScheduleFinished,
    ScheduleMoved,
    ScheduleParked,
)
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing


def about(run: Run, *, now: datetime) -> dict[str, Any]:
    """What every fact about a run begins with."""
    return {"at": now, "namespace": run.namespace, "run_id": run.id, "schedule_id": run.schedule_id}


def new_run(run: Run, *, now: datetime) -> list[Fact]:
    """What a row that was just inserted tells: admitted, perhaps already leased, or not run and why."""
    if run.state is RunState.SKIPPED:
        return [skipped(run, now=now)]
    admitted = RunAdmitted(
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        source=run.source.value,
        held=run.state is RunState.HELD,
        **about(run, now=now),
    )
    return [admitted, leased(run, now=now)] if run.state is RunState.LEASED else [admitted]


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
    return RunLeased(holder=run.holder, fence=run.fence, lease_until=run.lease_until, **about(run, now=now))


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
