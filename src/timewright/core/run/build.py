"""Builds the rows of new runs: of occurrences of a schedule, and of work without a schedule."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from timewright.core.policies.policies import NORMAL_PRIORITY, Overlap
from timewright.core.run.needs import Needs, needs_of_schedule
from timewright.core.run.run import Run, RunState
from timewright.core.run.verdicts import Drop, Fire, Skip, Verdict
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import Schedule, queue_limit_key
from timewright.core.target import Handoff


class NewLease(Struct, frozen=True, gc=False):
    """The lease that a run is inserted with if it starts at once."""

    lease_id: str
    holder: str
    leased_at: datetime
    lease_until: datetime


def build_schedule_run(
    schedule: Schedule,
    verdict: Verdict,
    *,
    run_id: str,
    now: datetime,
    previous: str,
    lease: NewLease | None = None,
) -> Run:
    """The row of an occurrence: skipped, held, ready, or leased at once."""
    if isinstance(verdict, Skip | Drop):
        return Run(
            id=run_id,
            namespace=schedule.namespace,
            schedule_id=schedule.id,
            planned_at=verdict.planned_at,
            fire_at=verdict.planned_at,
            state=RunState.SKIPPED,
            reason=verdict.reason.value,
            source=verdict.source,
            revision=schedule.revision,
            last_of=verdict.last_of if isinstance(verdict, Drop) else None,
            dropped=verdict.count if isinstance(verdict, Drop) else 0,
            created_at=now,
            finished_at=now,
            previous=previous,
        )
    state = RunState.READY if isinstance(verdict, Fire) else RunState.HELD
    return Run(
        id=run_id,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        planned_at=verdict.planned_at,
        fire_at=verdict.fire_at,
        state=state if lease is None else RunState.LEASED,
        source=verdict.source,
        trail=verdict.trail,
        revision=schedule.revision,
        queue=schedule.queue or "",
        limit_keys=schedule.limit_keys,
        needs=needs_of_schedule(schedule),
        priority=schedule.priority,
        exclusive=schedule.overlap is not Overlap.ALLOW,
        handoff=isinstance(schedule.target, Handoff),
        missed=verdict.missed,
        fired_by=verdict.fired_by,
        created_at=now,
        previous=previous,
        fence=0 if lease is None else 1,
        lease_id="" if lease is None else lease.lease_id,
        holder="" if lease is None else lease.holder,
        leased_at=None if lease is None else lease.leased_at,
        lease_until=None if lease is None else lease.lease_until,
    )


def build_standalone_run(
    *,
    run_id: str,
    namespace: str,
    dedupe_scope: str,
    planned_at: datetime,
    fire_at: datetime,
    payload: Any,
    created_at: datetime,
    queue: str = "",
    state: RunState = RunState.READY,
    reason: str = "",
    finished_at: datetime | None = None,
    source: Source = Source.MANUAL,
    priority: int = NORMAL_PRIORITY,
    made_by: str = "",
    parent: str = "",
    needs: Needs = (),
) -> Run:
    """The row of a run without a schedule: a queue entry, a workflow run, or a step of one.

    A run in a queue is handed to an external worker, under the limit of the queue.
    """
    return Run(
        id=run_id,
        namespace=namespace,
        dedupe_scope=dedupe_scope,
        planned_at=planned_at,
        fire_at=fire_at,
        state=state,
        reason=reason,
        source=source,
        queue=queue,
        limit_keys=(queue_limit_key(namespace, queue),) if queue else (),
        needs=needs,
        priority=priority,
        exclusive=False,
        handoff=bool(queue),
        created_at=created_at,
        finished_at=finished_at,
        made_by=made_by,
        parent=parent,
        payload=payload,
    )
