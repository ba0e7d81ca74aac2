"""Rules for who writes schedules: agents (an end, no duplicates, approval), and edits of what is owned."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import format_duration, format_instant
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Every, Manual, Once
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import Conflict, NotAllowed, OverQuota
from timewright.ledger.approvals import hold_for_approval
from timewright.ledger.records.owners import read_owned
from timewright.ledger.snapshot import read_fleet
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.access.permissions import is_agent, needs_approval
from timewright.operations.context import OperationContext
from timewright.ports import ScheduleRecord, StoredObject, Transaction

REMOVAL = "removal"
STAYS_REMOVED = timedelta(days=30)
MAX_COMPARED = 10_000

_RESTORES = {
    "app": "its next start restores the declaration",
    "file": "the next apply of the file restores it",
    "workflow": "the next version of the workflow restores it",
}


def apply_agent_end(context: OperationContext, schedule: Schedule, *, now: datetime) -> Schedule:
    """Return an agent's schedule with an end: if it has none, creation plus the longest allowed lifetime."""
    if not is_agent(context) or isinstance(schedule.trigger, Once | Manual):
        return schedule
    longest = context.quotas().agent_longest_life
    if longest is None:
        return schedule
    begins = schedule.start_at or schedule.created_at
    if schedule.end_at is None:
        return replace(schedule, end_at=max(begins, schedule.created_at) + longest)
    latest = max(begins, now) + longest
    if schedule.end_at > latest:
        raise OverQuota(
            f"end_at {format_instant(schedule.end_at)} is too far ahead",
            field="end_at",
            value=format_instant(schedule.end_at),
            rule=f"an agent's schedule lives at most {format_duration(longest)}",
            fix=f"end_at: {format_instant(latest)}, or leave it out",
        )
    return schedule


def keep_agent_end(
    context: OperationContext, before: Schedule, after: Schedule, *, now: datetime
) -> Schedule:
    """Check an agent's edit: its own schedules keep an end, and no end may be later than allowed."""
    if before.origin != AGENT_ORIGIN and before.end_at == after.end_at:
        return after
    return apply_agent_end(context, after, now=now)


def hold_for_approval_if_required(context: OperationContext, schedule: Schedule, *, now: datetime) -> None:
    """Hold an agent's new schedule for approval, if the namespace requires that."""
    if needs_approval(context):
        by = context.with_reason("created by an agent").by
        context.notify(hold_for_approval(context.store, schedule.id, by=by, now=now).facts)


def check_agent_edit(context: OperationContext, record: ScheduleRecord) -> None:
    """Reject an agent's edit of an approved schedule, if the namespace requires approval."""
    if record.progress.state is not ScheduleState.PENDING_APPROVAL and needs_approval(context):
        raise NotAllowed(
            f"schedule {record.schedule.name} is approved, and an agent may not edit it",
            field="schedule",
            value=record.schedule.name,
            rule="in this namespace, a person approves schedules created by agents",
            fix="create another schedule, which waits for approval, or ask a person to edit this one",
        )


def check_approved(record: ScheduleRecord) -> None:
    """Reject a start, also a test, of a schedule that waits for approval or is archived.

    An archived one may have been rejected, or archived by its agent while it waited.
    """
    if record.progress.state is ScheduleState.ARCHIVED:
        raise NotAllowed(
            f"schedule {record.schedule.name} is archived",
            field="state",
            value=record.progress.state.value,
            rule="a schedule that is archived or waits for approval does not run",
            fix=f"schedule create {record.schedule.name}: a new schedule",
        )
    if record.progress.state is ScheduleState.PENDING_APPROVAL:
        raise NotAllowed(
            f"schedule {record.schedule.name} waits for approval",
            field="state",
            value=record.progress.state.value,
            rule="a schedule created by an agent runs after a person approves it",
            fix=f"approval approve {record.schedule.name}",
        )


def check_hint_interval(context: OperationContext, interval: timedelta) -> None:
    """Reject an agent's hint for an interval outside the limits of the namespace."""
    if not is_agent(context):
        return
    quotas = context.quotas()
    shortest, longest = quotas.interval_for(AGENT_ORIGIN), quotas.agent_longest_hint
    if not shortest <= interval <= max(longest, shortest):
        raise OverQuota(
            f"hint.interval {format_duration(interval)} is out of the range for agents",
            field="hint.interval",
            value=format_duration(interval),
            rule=f"{format_duration(shortest)} to {format_duration(longest)} in namespace {quotas.name}",
            fix=f"interval: {format_duration(shortest if interval < shortest else longest)}",
        )


class Removal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who removed a schedule, when and why."""

    name: str
    by: str
    reason: str
    at: datetime


def check_agent_creation(
    context: OperationContext, schedule: Schedule, *, now: datetime, force: bool = False
) -> None:
    """Reject an agent's new schedule that a person removed lately, or that exists already unless `force`."""
    if is_agent(context):
        _reject_removed(context, schedule, now=now)
        if not force:
            _reject_duplicate(context, schedule)


def _reject_duplicate(context: OperationContext, schedule: Schedule) -> None:
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


def remember_removal(context: OperationContext, schedule: Schedule, *, now: datetime) -> None:
    """Remember that a person removed a schedule, by its name and by what it does and when."""
    if is_agent(context):
        return
    by = context.by
    body = msgspec.json.encode(Removal(name=schedule.name, by=by.name, reason=by.reason[:1000], at=now))
    rows = [
        StoredObject(kind=REMOVAL, namespace=context.namespace, name=key, body=body, at=now)
        for key in _removal_keys(schedule)
    ]
    context.store.write(lambda tx: tx.put_objects(rows))


def _reject_removed(context: OperationContext, schedule: Schedule, *, now: datetime) -> None:
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
                rule=f"an agent cannot create a removed schedule again for {STAYS_REMOVED.days} days",
                fix="ask a person to create it",
            )


def _removal_keys(schedule: Schedule) -> list[str]:
    """The names under which a removal is kept: of the schedule, and of its target with its trigger."""
    what = msgspec.json.encode(_target_and_trigger(schedule), order="deterministic")
    return [f"name:{schedule.name}", f"same:{hashlib.sha256(what).hexdigest()}"]


def _find_duplicate(tx: Transaction, schedule: Schedule) -> str | None:
    """Return the name of an active schedule with the same target and trigger, among the first 10,000."""
    wanted = _target_and_trigger(schedule)
    for record in islice(read_fleet(tx, schedule.namespace), MAX_COMPARED):
        if _target_and_trigger(record.schedule) == wanted:
            return record.schedule.name
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


def check_edit_by_hand(context: OperationContext, schedule: Schedule) -> tuple[str, ...]:
    """Return a warning for an edit of a schedule that has an owner; raises if the owner refuses edits."""
    if not schedule.owner:
        return ()
    owned = context.store.read(
        lambda tx: read_owned(tx, "schedule", schedule.namespace, [schedule.name])
    ).get(schedule.name)
    if owned is None:
        return ()
    if owned.edits == "refuse":
        raise NotAllowed(
            f"schedule {schedule.name} belongs to {owned.owner}, which refuses edits by hand",
            field="schedule",
            value=schedule.name,
            rule="a definition is changed where its owner declares it",
            fix=f"change the declaration in {owned.owner}; pause, resume, skip and move are allowed",
        )
    kind = owned.owner.partition(":")[0]
    return (f"{schedule.name} belongs to {owned.owner}: {_RESTORES.get(kind, 'its owner restores it')}",)
