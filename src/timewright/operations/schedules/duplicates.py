"""Detect duplicates: agents that forget their schedules, or their removal, tend to create them again."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import format_instant
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Every
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.sensitive_keys import redact_text
from timewright.errors import Conflict, NotAllowed
from timewright.operations.access.agent_permissions import is_agent, needs_approval
from timewright.operations.context import OperationContext
from timewright.ports import ScheduleFilter, StoredObject, Transaction

REMOVAL = "removal"
STAYS_REMOVED = timedelta(days=30)
PAGE_ROWS = 1000
MAX_PAGES = 10

_ENDED_STATES = frozenset({ScheduleState.ARCHIVED, ScheduleState.FINISHED})


class Removal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who removed a schedule, when and why."""

    name: str
    by: str
    reason: str
    at: datetime


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


def remember_removal(context: OperationContext, schedule: Schedule, *, reason: str, now: datetime) -> None:
    """Remember that a person removed a schedule, by its name and by what it does and when."""
    if is_agent(context):
        return
    body = msgspec.json.encode(
        Removal(name=schedule.name, by=context.by.name, reason=redact_text(reason)[:1000], at=now)
    )
    rows = [
        StoredObject(kind=REMOVAL, namespace=context.namespace, name=key, body=body, at=now)
        for key in _removal_keys(schedule)
    ]
    context.store.write(lambda tx: tx.put_objects(rows))


def reject_removed(context: OperationContext, schedule: Schedule, *, now: datetime) -> None:
    """Reject an agent's schedule that a person removed lately; if it waits for approval, a person decides."""
    if needs_approval(context):
        return
    rows = context.store.read(
        lambda tx: tx.get_objects(REMOVAL, namespace=context.namespace, names=_removal_keys(schedule))
    )
    for row in rows:
        removal = msgspec.json.decode(row.body, type=Removal)
        if now < removal.at + STAYS_REMOVED:
            why = f": {removal.reason}" if removal.reason else ", without a reason"
            raise NotAllowed(
                f"{removal.by or 'a person'} removed {removal.name} at {format_instant(removal.at)}{why}",
                field="name",
                value=schedule.name,
                rule=f"an agent does not make it again for {STAYS_REMOVED.days} days",
                fix="ask a person to create it",
            )


def _removal_keys(schedule: Schedule) -> list[str]:
    """The names under which a removal is kept: of the schedule, and of its target with its trigger."""
    what = msgspec.json.encode(_target_and_trigger(schedule), order="deterministic")
    return [f"name:{schedule.name}", f"same:{hashlib.sha256(what).hexdigest()}"]


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
