"""Reminders: a text at a time, or again and again; a small verb over schedules that carry a note."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.moments import MINUTE, bounded, spell_instant
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.target import Note
from timewright.errors import InvalidInput
from timewright.operations.by_hand import RunNow, run_schedule
from timewright.operations.context import Context
from timewright.operations.drafts import Create, create_schedule
from timewright.operations.find import find_schedule, no_such
from timewright.operations.pages import paged
from timewright.operations.pauses import Ask, archive_schedule
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.operations.schedules import has_metadata
from timewright.ports import Due, Page, ScheduleFilter, Transaction

GROUP = "reminders"
MARK = {"reminder": True}
LONGEST_WORDS = 40
MOST_ALIKE = 1000

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class Set(Write, frozen=True, kw_only=True):
    """What to be reminded of, and when: at an instant, after a while, every so often, or by cron."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    at: datetime | None = None
    after: timedelta | None = None
    every: timedelta | None = None
    cron: Annotated[str, Meta(max_length=256)] = ""
    zone: Annotated[str, Meta(max_length=64)] = ""
    name: Annotated[str, Meta(max_length=255)] = ""
    force: bool = False


class List(Listing, frozen=True, kw_only=True):
    """Which reminders: those still to come, or also those that are over."""

    over: bool = False


class Cancel(Write, frozen=True, kw_only=True):
    """Which reminder, by its name or id."""

    reminder: Named


class Snooze(Write, frozen=True, kw_only=True):
    """Which reminder, by its name or id, and after how long it comes once more."""

    reminder: Named
    after: timedelta = 10 * MINUTE


class Reminder(Struct, frozen=True, kw_only=True):
    """A reminder: its text, when in words, and its next time; none when it is over."""

    id: str
    name: str
    text: str
    when: str
    next_at: datetime | None
    state: ScheduleState


class Reminders(Struct, frozen=True, kw_only=True):
    """A page of reminders, by name."""

    reminders: tuple[Reminder, ...]
    cursor: str = ""


class Snoozed(Struct, frozen=True, kw_only=True):
    """A reminder, the instant at which it comes once more, and the run that will be."""

    reminder: Reminder
    at: datetime
    run: str


class Cancelled(Struct, frozen=True, kw_only=True):
    """A reminder that will not come any more."""

    reminder: Reminder


@operations.add(
    "reminder",
    "set",
    Set,
    scope="write",
    examples=(
        {"text": "call the bank", "at": "2026-03-11T09:00:00Z", "name": "bank"},
        {"text": "stretch", "every": "2h"},
    ),
)
def set_reminder(context: Context, ask: Set) -> Reminder:
    """Set a reminder; when it is due its text is the result of a run."""
    now = context.now()
    name = ask.name or context.store.read(lambda tx: _free_name(tx, context.namespace, ask.text))
    draft = {"name": name, "note": ask.text, "group": GROUP, "metadata": MARK, **_when(ask, now=now)}
    made = create_schedule(context, Create(draft=draft, reason=ask.reason, force=ask.force))
    return _shown(made.schedule, made.standing)


@operations.add("reminder", "list", List, scope="read", examples=({}, {"over": True}))
def list_reminders(context: Context, ask: List) -> Reminders:
    """List reminders by name."""

    def work(tx: Transaction) -> Reminders:
        def find(limit: int, place: str) -> Page:
            which = ScheduleFilter(namespace=context.namespace, group=GROUP, limit=limit, cursor=place)
            return tx.find_schedules(which)

        rows, cursor = paged(context, ask, find, fits=lambda found: [_fits(due, ask) for due in found])
        return Reminders(reminders=tuple(_shown(due.schedule, due.standing) for due in rows), cursor=cursor)

    return context.store.read(work)


@operations.add("reminder", "cancel", Cancel, scope="write", examples=({"reminder": "tea"},))
def cancel_reminder(context: Context, ask: Cancel) -> Cancelled:
    """Let a reminder not come any more; what it has said stays in the history."""
    due = _find(context, ask.reminder)
    gone = archive_schedule(context, Ask(schedule=due.schedule.id, reason=ask.reason))
    return Cancelled(reminder=_shown(gone.schedule, gone.standing))


@operations.add(
    "reminder",
    "snooze",
    Snooze,
    scope="write",
    examples=({"reminder": "tea"}, {"reminder": "tea", "after": "1h", "reason": "in a meeting"}),
)
def snooze_reminder(context: Context, ask: Snooze) -> Snoozed:
    """Let a reminder come once more after a while, also one that is over; its other times stay."""
    due = _find(context, ask.reminder)
    at = context.now() + bounded(ask.after, field="after")
    made = run_schedule(context, RunNow(schedule=due.schedule.id, at=at, reason=ask.reason or "snoozed"))
    return Snoozed(reminder=_shown(due.schedule, due.standing), at=at, run=made.run.id)


def _find(context: Context, name: str) -> Due:
    due = context.store.read(lambda tx: find_schedule(tx, context.namespace, name))
    if not _is_reminder(due):
        raise no_such("reminder", name, (), lister="reminder list", field="reminder")
    return due


def _when(ask: Set, *, now: datetime) -> dict[str, Any]:
    """The one trigger that was asked for."""
    said: dict[str, Any] = {
        "once": ask.at,
        "after": ask.after,
        "every": ask.every,
        "cron": ask.cron or None,
    }
    given = {name: value for name, value in said.items() if value is not None}
    if len(given) != 1 or (ask.zone and not ask.cron):
        raise InvalidInput(
            "when shall it come?",
            field="at",
            rule="exactly one of at, after, every and cron; a zone goes with cron",
            fix="at: 2026-12-24T18:00:00+01:00, or after: 20m, or every: 2h",
        )
    if ask.after is not None:
        return {"once": spell_instant(now + bounded(ask.after, field="after"))}
    return given | ({"zone": ask.zone} if ask.zone else {})


def _free_name(tx: Transaction, namespace: str, text: str) -> str:
    """A name from the first words of the text that nothing has yet."""
    words = _NOT_IN_NAMES.sub("-", text.lower()).strip("-")[:LONGEST_WORDS].strip("-") or "reminder"
    names = (words, *(f"{words}-{number}" for number in range(2, MOST_ALIKE)))
    return next((name for name in names if tx.find_schedule(namespace, name) is None), words)


def _fits(due: Due, ask: List) -> bool:
    ended = due.standing.state in (ScheduleState.FINISHED, ScheduleState.ARCHIVED)
    return _is_reminder(due) and (ask.over or not ended)


def _is_reminder(due: Due) -> bool:
    return isinstance(due.schedule.target, Note) and has_metadata(due.schedule.metadata, MARK)


def _shown(schedule: Schedule, standing: Standing) -> Reminder:
    assert isinstance(schedule.target, Note)
    return Reminder(
        id=schedule.id,
        name=schedule.name,
        text=schedule.target.text,
        when=schedule.trigger.describe(),
        next_at=standing.next_at,
        state=standing.state,
    )
