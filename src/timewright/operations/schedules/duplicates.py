"""Detect duplicates: agents that forget their schedules tend to create them again."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Every
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import Conflict
from timewright.operations.context import OperationContext
from timewright.ports import ScheduleFilter, Transaction

PAGE_ROWS = 1000
MAX_PAGES = 10

_ENDED_STATES = frozenset({ScheduleState.ARCHIVED, ScheduleState.FINISHED})


def reject_duplicate(context: OperationContext, schedule: Schedule) -> None:
    """Raise Conflict if another schedule has the same target and trigger, and name it."""
    found = context.store.read(lambda tx: _find_duplicate(tx, schedule))
    if found is not None:
        raise Conflict(
            f"schedule {found} has the same target and trigger",
            field="target",
            value=found,
            rule="agents may not create the same schedule twice",
            fix=f"schedule get {found}, or force: true to create it anyway",
        )


def _find_duplicate(tx: Transaction, schedule: Schedule) -> str | None:
    """Return the name of an active schedule with the same target and trigger, among the first 10,000."""
    wanted, cursor = _target_and_trigger(schedule), ""
    for _ in range(MAX_PAGES):
        which = ScheduleFilter(namespace=schedule.namespace, limit=PAGE_ROWS, cursor=cursor)
        page = tx.find_schedules(which)
        for record in page.rows:
            if record.progress.state not in _ENDED_STATES and _target_and_trigger(record.schedule) == wanted:
                return str(record.schedule.name)
        cursor = page.cursor
        if not cursor:
            break
    return None


def _target_and_trigger(schedule: Schedule) -> tuple[Any, ...]:
    """Return the target and trigger, without the anchor of an interval."""
    return schedule.target, _without_anchor(schedule.trigger)


def _without_anchor(trigger: AnyTrigger) -> Any:
    if isinstance(trigger, Every):
        return replace(trigger, anchor=None)
    if isinstance(trigger, AnyOf):
        return tuple(_without_anchor(one) for one in trigger.triggers)
    return trigger
