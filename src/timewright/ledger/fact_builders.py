"""Builds the facts about a row; they are sent once its transaction is committed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from timewright.core.facts import (
    Fact,
    OccurrencesDropped,
    RunAdmitted,
    RunLeased,
    RunSkipped,
    RunSucceeded,
    ScheduleChanged,
    ScheduleFinished,
    ScheduleMoved,
    ScheduleParked,
)
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ports import OnTimeStep


def run_fields(run: Run, *, now: datetime) -> dict[str, Any]:
    """The fields that all facts about a run have."""
    return {
        "at": now,
        "namespace": run.namespace,
        "run_id": run.id,
        "schedule_id": run.schedule_id,
        "queue": run.queue,
    }


def new_run_facts(run: Run, *, now: datetime) -> list[Fact]:
    """The facts of an inserted run: admitted, perhaps already leased, or skipped."""
    if run.state is RunState.SKIPPED:
        return [skipped_fact(run, now=now)]
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
    return [admitted, leased_fact(run, now=now)] if run.state is RunState.LEASED else [admitted]


def on_time_step_facts(row: OnTimeStep, *, now: datetime) -> list[Fact]:
    """The facts of an on-time step: its run was admitted, and perhaps already leased."""
    schedule, at, source = row.record.schedule, row.record.progress.next_at, row.record.progress.source
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
    return [admitted] if row.started_run is None else [admitted, leased_fact(row.started_run, now=now)]


def skipped_fact(run: Run, *, now: datetime) -> Fact:
    """The fact that an occurrence is skipped, or many of them in one row."""
    if run.last_of is None:
        return RunSkipped(planned_at=run.planned_at, reason=run.reason, **run_fields(run, now=now))
    return OccurrencesDropped(
        planned_at=run.planned_at,
        last_of=run.last_of,
        count=run.dropped,
        reason=run.reason,
        **run_fields(run, now=now),
    )


def leased_fact(run: Run, *, now: datetime) -> Fact:
    """The fact that a run was leased."""
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


def succeeded_fact(run: Run, *, fence: int, now: datetime) -> Fact:
    """The fact that a run succeeded."""
    return RunSucceeded(
        at=now,
        namespace=run.namespace,
        run_id=run.id,
        schedule_id=run.schedule_id,
        fence=fence,
        outcome_label=run.outcome_label,
        queue=run.queue,
    )


def schedule_stopped_fact(schedule: Schedule, progress: ScheduleProgress, *, now: datetime) -> Fact:
    """The fact that a schedule was parked or has finished."""
    kind = ScheduleParked if progress.state is ScheduleState.PARKED else ScheduleFinished
    return kind(at=now, namespace=schedule.namespace, schedule_id=schedule.id, reason=progress.reason)


def schedule_moved_fact(schedule: Schedule, decision: Decision, *, now: datetime) -> Fact:
    """The fact that the next time of a schedule was planned again."""
    return ScheduleMoved(
        at=now,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        next_at=decision.at,
        source=decision.source.value,
    )


def replanned_facts(
    schedule: Schedule, before: ScheduleProgress, after: ScheduleProgress, *, now: datetime
) -> list[Fact]:
    """The facts of a change of progress: the schedule finished, or its next time moved."""
    if after.state is ScheduleState.FINISHED and before.state is not ScheduleState.FINISHED:
        return [schedule_stopped_fact(schedule, after, now=now)]
    if after.next_at == before.next_at:
        return []
    return [schedule_moved_fact(schedule, Decision(after.next_at, after.source or Source.MANUAL), now=now)]


def changed_fact(schedule: Schedule, change: str, actor: str, *, now: datetime) -> Fact:
    """The fact that somebody changed a schedule."""
    return ScheduleChanged(
        at=now,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        change=change,
        actor=actor,
        revision=schedule.revision,
    )
