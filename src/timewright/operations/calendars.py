"""Calendars: named days and hours that schedules keep to, or keep away from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.schedule import ScheduleState
from timewright.core.vocabulary import check_name, decode
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.policy import put_calendar
from timewright.ledger.shelf import CALENDAR
from timewright.operations.context import Context, together
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.ports import Page, ScheduleFilter, Stored, Transaction

MOST_USERS = 5


class Put(Write, frozen=True, kw_only=True):
    """A calendar as it shall be, whole, by its name."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("calendar", Calendar)

    calendar: dict[str, Any] = field(default_factory=dict)


class Get(Request, frozen=True, kw_only=True):
    """Which calendar."""

    calendar: Named


class Delete(Write, frozen=True, kw_only=True):
    """Which calendar to remove; one that a schedule names stays."""

    calendar: Named


class Deleted(Struct, frozen=True, kw_only=True):
    """The calendar that was removed, as it was."""

    calendar: Calendar


class Kept(Struct, frozen=True, kw_only=True):
    """A calendar, and the schedules that name it, the first few."""

    calendar: Calendar
    used_by: tuple[str, ...]


class List(Listing, frozen=True, kw_only=True):
    """Which calendars: all of the namespace."""


class Calendars(Struct, frozen=True, kw_only=True):
    """A page of calendars, by name."""

    calendars: tuple[Calendar, ...]
    cursor: str = ""


@operations.add(
    "calendar",
    "put",
    Put,
    scope="write",
    examples=(
        {"name": "holidays", "zone": "Europe/Berlin", "yearly": ["12-25", "12-26"], "dates": ["2026-04-03"]},
        {"name": "office", "weekly": [{"days": [0, 1, 2, 3, 4], "start": "09:00", "end": "17:00"}]},
    ),
)
def put_named_calendar(context: Context, ask: Put) -> Kept:
    """Create a calendar or replace all of it; schedules that name it see it at their next decision."""
    now = context.now()
    calendar = decode(ask.calendar, Calendar, base={"namespace": context.namespace})
    calendar = replace(calendar, name=check_name(calendar.name))
    _refuse_ours(context, ask.calendar, calendar)

    def work(inside: Context) -> Kept:
        put_calendar(inside.store, calendar, by=inside.because(ask.reason), now=now)
        return inside.store.read(lambda tx: _kept(tx, inside.namespace, calendar.name))

    return together(context, work)


@operations.add("calendar", "get", Get, scope="read", examples=({"calendar": "holidays"},))
def get_calendar(context: Context, ask: Get) -> Kept:
    """Show a calendar and who uses it."""
    return context.store.read(lambda tx: _kept(tx, context.namespace, ask.calendar))


@operations.add("calendar", "list", List, scope="read", examples=({},))
def list_calendars(context: Context, ask: List) -> Calendars:
    """List the calendars of the namespace."""

    def work(tx: Transaction) -> Calendars:
        rows = tx.get_objects(CALENDAR, namespace=context.namespace)

        def find(limit: int, place: str) -> Page:
            after = [row for row in rows if row.name > place]
            return Page(tuple(after[:limit]), after[limit - 1].name if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Calendars(calendars=tuple(_read(row) for row in page), cursor=cursor)

    return context.store.read(work)


@operations.add("calendar", "delete", Delete, scope="write", examples=({"calendar": "old-office"},))
def delete_calendar(context: Context, ask: Delete) -> Deleted:
    """Remove a calendar that no schedule names."""
    now = context.now()
    by = context.because(ask.reason)

    def work(tx: Transaction) -> Deleted:
        kept = _kept(tx, context.namespace, ask.calendar)
        if kept.used_by:
            raise NotAllowed(
                f"calendar {ask.calendar} is used by {', '.join(kept.used_by)}",
                field="calendar",
                value=ask.calendar,
                rule="a calendar that a schedule names stays",
                fix=f"schedule update {kept.used_by[0]} with another calendar first",
            )
        tx.delete_object(CALENDAR, namespace=context.namespace, name=ask.calendar)
        body = msgspec.json.encode(kept.calendar).decode()
        tx.add_audit(
            [
                by.entry(
                    "calendar.delete", namespace=context.namespace, subject=ask.calendar, now=now, before=body
                )
            ]
        )
        return Deleted(calendar=kept.calendar)

    return context.store.write(work)


def _refuse_ours(context: Context, given: dict[str, Any], calendar: Calendar) -> None:
    if calendar.namespace != context.namespace or "revision" in given:
        field = "revision" if "revision" in given else "namespace"
        raise InvalidInput(
            f"{field} is not set by hand",
            field=field,
            value=given.get(field),
            rule="Timewright writes it",
            fix="leave it out",
        )


def _kept(tx: Transaction, namespace: str, name: str) -> Kept:
    rows = tx.get_objects(CALENDAR, namespace=namespace, names=[name])
    if not rows:
        known = [row.name for row in tx.get_objects(CALENDAR, namespace=namespace)]
        raise no_such("calendar", name, known, lister="calendar list")
    users: list[str] = []
    for user in _users(tx, namespace, name):
        users.append(user)
        if len(users) == MOST_USERS:
            break
    return Kept(calendar=_read(rows[0]), used_by=tuple(users))


def _users(tx: Transaction, namespace: str, name: str) -> Iterator[str]:
    """The living schedules that name a calendar."""
    cursor, more = "", True
    while more:
        page = tx.find_schedules(ScheduleFilter(namespace=namespace, limit=1000, cursor=cursor))
        for due in page.rows:
            rule = due.schedule.calendar
            if rule is not None and name in rule.names and due.standing.state is not ScheduleState.ARCHIVED:
                yield due.schedule.name
        cursor, more = page.cursor, bool(page.cursor)


def _read(row: Stored) -> Calendar:
    return replace(msgspec.json.decode(row.body, type=Calendar), revision=row.revision)
