"""Trying a target: once, now, and without a trace in the history of its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.moments import SECOND
from timewright.core.run import Outcome
from timewright.core.schedule import Schedule
from timewright.core.target import Handoff
from timewright.core.triggers import ZONED
from timewright.errors import InvalidInput, NotAllowed
from timewright.operations.agent_rules import check_approved
from timewright.operations.context import Context
from timewright.operations.find import find_schedule
from timewright.operations.registry import Named, Write, operations
from timewright.ports import Launch

LONGEST = timedelta(minutes=5)
SHORTEST = SECOND
NOBODY = "this process starts no targets; ask the one that does"
REHEARSED = "it was only rehearsed"


class Test(Write, frozen=True, kw_only=True):
    """Which schedule's target to try; `time_limit` ends the work, and is no longer than five minutes."""

    schedule: Named
    payload: Any = None
    time_limit: timedelta = 30 * SECOND


class Tested(Struct, frozen=True, kw_only=True):
    """Whether the target was started, and if so how that ended; if not, why."""

    schedule: str
    target: str
    tried: bool
    why: str
    outcome: Outcome | None
    took: timedelta


@operations.add("schedule", "test", Test, scope="trigger", examples=({"schedule": "nightly-report"},))
def test_schedule(context: Context, ask: Test) -> Tested:
    """Start a schedule's target once, now, and say what came of it; nothing is recorded, nothing moves."""
    if not SHORTEST <= ask.time_limit <= LONGEST:
        raise InvalidInput(
            "time_limit is out of range",
            field="time_limit",
            value=str(ask.time_limit.total_seconds()),
            rule="1s to 5m",
            fix="time_limit: 30s",
        )
    due = context.store.read(lambda tx: find_schedule(tx, context.namespace, ask.schedule))
    check_approved(due)
    schedule = due.schedule
    if isinstance(schedule.target, Handoff):
        raise NotAllowed(
            f"{schedule.name} is handed off: whoever leases it does the work",
            field="schedule",
            value=schedule.name,
            rule="a target that we start ourselves",
            fix=f"schedule run {schedule.name}, and lease it from its queue",
        )
    if context.trial is None or ask.dry_run:
        return _answer(schedule, why=NOBODY if context.trial is None else REHEARSED)
    began = context.now()
    outcome = context.trial(_launch(context, schedule, ask))
    return _answer(schedule, outcome=outcome, took=context.now() - began)


def _answer(
    schedule: Schedule, *, why: str = "", outcome: Outcome | None = None, took: timedelta = timedelta(0)
) -> Tested:
    kind = str(type(schedule.target).__struct_config__.tag)
    return Tested(
        schedule=schedule.name,
        target=kind,
        tried=outcome is not None,
        why=why,
        outcome=outcome,
        took=max(took, timedelta(0)),
    )


def _launch(context: Context, schedule: Schedule, ask: Test) -> Launch:
    """A launch like that of a run, under an id and a key that no run has."""
    now = context.now()
    made_up = context.ids.new("run", now=now)
    return Launch(
        run_id=made_up,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        target=schedule.target,
        given_key=f"test:{made_up}",
        fence=1,
        attempt=1,
        planned_at=now,
        fire_at=now,
        trigger=schedule.trigger,
        zone=schedule.trigger.zone if isinstance(schedule.trigger, ZONED) else "UTC",
        source="test",
        time_limit=min(ask.time_limit, schedule.lease.time_limit),
        grace=schedule.lease.grace,
        payload=ask.payload,
        metadata=schedule.metadata,
    )
