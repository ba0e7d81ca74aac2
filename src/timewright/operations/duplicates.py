"""The same intention twice: an agent that does not see its schedules makes them again."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.triggers import AnyOf, AnyTrigger, Every
from timewright.errors import Conflict
from timewright.operations.context import Context
from timewright.ports import ScheduleFilter, Transaction

PAGE = 1000
MOST_PAGES = 10

_OVER = frozenset({ScheduleState.ARCHIVED, ScheduleState.FINISHED})


def refuse_duplicate(context: Context, schedule: Schedule) -> None:
    """Refuse a schedule that does what another does, when that does it, and name the other."""
    found = context.store.read(lambda tx: _twin(tx, schedule))
    if found is not None:
        raise Conflict(
            f"schedule {found} does the same at the same times",
            field="target",
            value=found,
            rule="an agent does not schedule the same work twice",
            fix=f"schedule get {found}, or force: true to have it twice",
        )


def _twin(tx: Transaction, schedule: Schedule) -> str | None:
    """The name of a living schedule with the same target and trigger, among the first ten thousand."""
    wanted, cursor = _intent(schedule), ""
    for _ in range(MOST_PAGES):
        which = ScheduleFilter(namespace=schedule.namespace, limit=PAGE, cursor=cursor)
        page = tx.find_schedules(which)
        for due in page.rows:
            if due.standing.state not in _OVER and _intent(due.schedule) == wanted:
                return str(due.schedule.name)
        cursor = page.cursor
        if not cursor:
            break
    return None


def _intent(schedule: Schedule) -> tuple[Any, ...]:
    """What is done and when, leaving out where a grid happens to begin."""
    return schedule.target, _paced(schedule.trigger)


def _paced(trigger: AnyTrigger) -> Any:
    if isinstance(trigger, Every):
        return replace(trigger, anchor=None)
    if isinstance(trigger, AnyOf):
        return tuple(_paced(one) for one in trigger.triggers)
    return trigger
