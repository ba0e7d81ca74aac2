"""Reminders: a text at a time, once or repeatedly; stored as schedules with a note target."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.moments import MINUTE, check_duration, format_instant
from timewright.core.recurrence.triggers import Once
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.target import Note
from timewright.errors import InvalidInput
from timewright.operations.alerts.channels import find_channel
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule, not_found
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ObjectName, ScheduleAction, WriteRequest, operations
from timewright.operations.schedules.manual_runs import RunSchedule, run_schedule
from timewright.operations.schedules.pause_archive import archive_schedule
from timewright.operations.schedules.queries import has_metadata
from timewright.operations.schedules.writes import (
    CreateSchedule,
    UpdateSchedule,
    create_schedule,
    update_schedule,
)
from timewright.ports import Page, ScheduleFilter, ScheduleRecord, Transaction
from timewright.ports.schedules import SchedulesNamed

REMINDER_GROUP = "reminders"
REMINDER_METADATA = {"reminder": True}
MAX_NAME_CHARS = 40
MAX_SAME_NAMES = 1000

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class SetReminder(WriteRequest, frozen=True, kw_only=True):
    """The text, and when: at an instant, after a delay, at an interval, by cron or by a recurrence rule.

    It comes at most `max_runs` times, and not after `end_at`. With `channel` the text is sent there;
    otherwise it is only the result of a run.
    """

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    at: datetime | None = None
    after: timedelta | None = None
    every: Annotated[str, Meta(max_length=256)] = ""
    cron: Annotated[str, Meta(max_length=256)] = ""
    rrule: Annotated[str, Meta(max_length=256)] = ""
    end_at: datetime | None = None
    max_runs: Annotated[int, Meta(ge=1)] | None = None
    zone: Annotated[str, Meta(max_length=64)] = ""
    name: Annotated[str, Meta(max_length=255)] = ""
    channel: Annotated[str, Meta(max_length=255)] = ""
    force: bool = False


class ListReminders(ListRequest, frozen=True, kw_only=True):
    """List reminders; `finished` includes those that will not come again."""

    finished: bool = False


class CancelReminder(WriteRequest, frozen=True, kw_only=True):
    """Which reminder, by its name or id."""

    reminder: ObjectName


class SnoozeReminder(WriteRequest, frozen=True, kw_only=True):
    """Which reminder, by its name or id, and the delay from now until it comes."""

    reminder: ObjectName
    after: timedelta = 10 * MINUTE


class Reminder(Struct, frozen=True, kw_only=True):
    """A reminder: its text, a description of its trigger, and its next time; None when it has finished."""

    id: str
    name: str
    text: str
    when: str
    next_at: datetime | None
    state: ScheduleState


class ReminderList(Struct, frozen=True, kw_only=True):
    """A page of reminders, by name."""

    reminders: tuple[Reminder, ...]
    cursor: str = ""


class SnoozedReminder(Struct, frozen=True, kw_only=True):
    """A reminder, the instant at which it comes, and the run for it if it comes once more."""

    reminder: Reminder
    at: datetime
    run: str


class CancelledReminder(Struct, frozen=True, kw_only=True):
    """A reminder that was cancelled."""

    reminder: Reminder


@operations.add(
    "reminder set",
    scope="write",
    examples=(
        {"text": "call the bank", "at": "2026-03-11T09:00:00Z", "name": "bank"},
        {"text": "stretch", "every": "2h"},
        {"text": "water the plants", "every": "monday at 9", "zone": "Europe/Berlin", "max_runs": 3},
    ),
)
def set_reminder(context: OperationContext, request: SetReminder) -> Reminder:
    """Set a reminder; when it is due, a run has its text as the result."""
    now = context.now()
    if request.channel:
        context.store.read(lambda tx: find_channel(tx, context.namespace, request.channel))
    name = request.name or context.store.read(lambda tx: _free_name(tx, context.namespace, request.text))
    draft = {
        "name": name,
        "target": {"kind": "note", "text": request.text, "channel": request.channel},
        "group": REMINDER_GROUP,
        "metadata": REMINDER_METADATA,
        "end_at": request.end_at,
        "max_runs": request.max_runs,
        **_when(request, now=now),
    }
    created = create_schedule(
        context, CreateSchedule(draft=draft, reason=request.reason, force=request.force)
    )
    return _to_reminder(created.schedule, created.progress)


@operations.read("reminder list", scope="read", examples=({}, {"finished": True}))
def list_reminders(context: OperationContext, tx: Transaction, request: ListReminders) -> ReminderList:
    """List reminders by name."""

    def find(limit: int, place: str) -> Page:
        which = ScheduleFilter(namespace=context.namespace, group=REMINDER_GROUP, limit=limit, cursor=place)
        return tx.find(which)

    rows, cursor = paginate(
        context, request, find, matches=lambda found: [_matches(record, request) for record in found]
    )
    return ReminderList(
        reminders=tuple(_to_reminder(record.schedule, record.progress) for record in rows), cursor=cursor
    )


@operations.add("reminder cancel", scope="write", examples=({"reminder": "tea"},))
def cancel_reminder(context: OperationContext, request: CancelReminder) -> CancelledReminder:
    """Cancel a reminder; its history stays."""
    record = _find(context, request.reminder)
    archived = archive_schedule(context, ScheduleAction(schedule=record.schedule.id, reason=request.reason))
    return CancelledReminder(reminder=_to_reminder(archived.schedule, archived.progress))


@operations.add(
    "reminder snooze",
    scope="write",
    examples=({"reminder": "tea"}, {"reminder": "tea", "after": "1h", "reason": "in a meeting"}),
)
def snooze_reminder(context: OperationContext, request: SnoozeReminder) -> SnoozedReminder:
    """Move a reminder that comes once; one that has come, or comes often, comes once more after the delay."""
    record, now = _find(context, request.reminder), context.now()
    at = now + check_duration(request.after, field="after")
    if _is_pending(record, now=now):
        change = UpdateSchedule(
            schedule=record.schedule.id, changes={"once": at}, reason=request.reason or "snoozed"
        )
        moved = update_schedule(context, change)
        return SnoozedReminder(reminder=_to_reminder(moved.schedule, moved.progress), at=at, run="")
    created = run_schedule(
        context, RunSchedule(schedule=record.schedule.id, at=at, reason=request.reason or "snoozed")
    )
    return SnoozedReminder(reminder=_to_reminder(record.schedule, record.progress), at=at, run=created.run.id)


def _find(context: OperationContext, name: str) -> ScheduleRecord:
    record = context.store.read(lambda tx: find_schedule(tx, context.namespace, name))
    if not _is_reminder(record):
        raise not_found("reminder", name, (), list_command="reminder list", field="reminder")
    return record


def _is_pending(record: ScheduleRecord, *, now: datetime) -> bool:
    """Whether a reminder comes once and has not come yet."""
    progress = record.progress
    is_ahead = progress.next_at is not None and progress.next_at > now
    return isinstance(record.schedule.trigger, Once) and progress.state is ScheduleState.ACTIVE and is_ahead


def _when(request: SetReminder, *, now: datetime) -> dict[str, Any]:
    """Return the one trigger that the request gives."""
    options: dict[str, Any] = {
        "once": request.at,
        "after": request.after,
        "every": request.every or None,
        "cron": request.cron or None,
        "rrule": request.rrule or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) != 1 or (request.zone and request.after is not None):
        raise InvalidInput(
            "give exactly one time for the reminder",
            field="at",
            rule="exactly one of at, after, every, cron and rrule; a zone goes with all but after",
            fix="at: 2026-12-24T18:00:00+01:00, or after: 20m, or every: 2h",
        )
    if request.after is not None:
        return {"once": format_instant(now + check_duration(request.after, field="after"))}
    # An instant was read in the zone already.
    return given | ({"zone": request.zone} if request.zone and request.at is None else {})


def _free_name(tx: Transaction, namespace: str, text: str) -> str:
    """Return an unused name, made from the first words of the text."""
    words = _NOT_IN_NAMES.sub("-", text.lower()).strip("-")[:MAX_NAME_CHARS].strip("-") or "reminder"
    names = (words, *(f"{words}-{number}" for number in range(2, MAX_SAME_NAMES)))
    return next((name for name in names if not tx.select(SchedulesNamed(namespace, [name]))), words)


def _matches(record: ScheduleRecord, request: ListReminders) -> bool:
    ended = record.progress.state in (ScheduleState.FINISHED, ScheduleState.ARCHIVED)
    return _is_reminder(record) and (request.finished or not ended)


def _is_reminder(record: ScheduleRecord) -> bool:
    return isinstance(record.schedule.target, Note) and has_metadata(
        record.schedule.metadata, REMINDER_METADATA
    )


def _to_reminder(schedule: Schedule, progress: ScheduleProgress) -> Reminder:
    assert isinstance(schedule.target, Note)
    return Reminder(
        id=schedule.id,
        name=schedule.name,
        text=schedule.target.text,
        when=schedule.trigger.describe(),
        next_at=progress.next_at,
        state=progress.state,
    )
