"""Test a schedule's target: start it once, without recording a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.moments import SECOND
from timewright.core.recurrence.triggers import ZONED_TRIGGERS
from timewright.core.run.run import Outcome
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Handoff
from timewright.errors import InvalidInput, NotAllowed
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.operations.schedules.agent_rules import check_approved
from timewright.ports import Launch

MAX_TIME_LIMIT = timedelta(minutes=5)
MIN_TIME_LIMIT = SECOND
NO_TARGETS_HERE = "this process does not run targets; send the request to one that does"
DRY_RUN_REASON = "this was a dry run"


class TryTarget(WriteRequest, frozen=True, kw_only=True):
    """Which schedule's target to start; `time_limit` is at most five minutes."""

    schedule: ObjectName
    payload: Any = None
    time_limit: timedelta = 30 * SECOND


class TargetTestResult(Struct, frozen=True, kw_only=True):
    """Whether the target was started and how it ended; if not started, `why`."""

    schedule: str
    target: str
    tried: bool
    why: str
    outcome: Outcome | None
    took: timedelta


@operations.add("schedule test", scope="trigger", examples=({"schedule": "nightly-report"},))
def try_target(context: OperationContext, request: TryTarget) -> TargetTestResult:
    """Start a schedule's target once and show the result; nothing is recorded."""
    if not MIN_TIME_LIMIT <= request.time_limit <= MAX_TIME_LIMIT:
        raise InvalidInput(
            "time_limit is out of range",
            field="time_limit",
            value=str(request.time_limit.total_seconds()),
            rule="1s to 5m",
            fix="time_limit: 30s",
        )
    record = context.store.read(lambda tx: find_schedule(tx, context.namespace, request.schedule))
    check_approved(record)
    schedule = record.schedule
    if isinstance(schedule.target, Handoff):
        raise NotAllowed(
            f"{schedule.name} has a handoff target, which an external worker runs",
            field="schedule",
            value=schedule.name,
            rule="only a target that Timewright starts itself can be tested",
            fix=f"schedule run {schedule.name}, then lease the run from its queue",
        )
    if context.run_target_test is None or request.dry_run:
        return _answer(schedule, why=NO_TARGETS_HERE if context.run_target_test is None else DRY_RUN_REASON)
    started_at = context.now()
    outcome = context.run_target_test(_launch(context, schedule, request), context.on_test_started)
    return _answer(schedule, outcome=outcome, took=context.now() - started_at)


def _answer(
    schedule: Schedule, *, why: str = "", outcome: Outcome | None = None, took: timedelta = timedelta(0)
) -> TargetTestResult:
    kind = str(type(schedule.target).__struct_config__.tag)
    return TargetTestResult(
        schedule=schedule.name,
        target=kind,
        tried=outcome is not None,
        why=why,
        outcome=outcome,
        took=max(took, timedelta(0)),
    )


def _launch(context: OperationContext, schedule: Schedule, request: TryTarget) -> Launch:
    """Build a launch with a run id and a key that no run has."""
    now = context.now()
    test_id = context.ids.new("run", now=now)
    return Launch(
        run_id=test_id,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        target=schedule.target,
        given_key=f"test:{test_id}",
        fence=1,
        attempt=1,
        planned_at=now,
        fire_at=now,
        trigger=schedule.trigger,
        zone=schedule.trigger.zone if isinstance(schedule.trigger, ZONED_TRIGGERS) else "UTC",
        source="test",
        time_limit=min(request.time_limit, schedule.lease.time_limit or MAX_TIME_LIMIT),
        grace=schedule.lease.grace,
        payload=request.payload,
        metadata=schedule.metadata,
    )
