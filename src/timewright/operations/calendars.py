"""Calendars: named days and hours that schedules keep to, or keep away from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.schedule import ScheduleState
from timewright.core.vocabulary import check_name, decode
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.policy import delete_calendar as remove_calendar
from timewright.ledger.policy import put_calendar
from timewright.ledger.shelf import CALENDAR
from timewright.operations.ahead import nothing_left
from timewright.operations.allowed_zones import check_allowed
from timewright.operations.calendar_sources import Found, holidays_of, ical_of, years_in
from timewright.operations.context import Context, together
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.ports import Due, Page, ScheduleFilter, Stored, Transaction

MOST_USERS = 5
LONGEST_FILE = 1_000_000

Code = Annotated[str, Meta(max_length=32)]


class Put(Write, frozen=True, kw_only=True):
    """A calendar as it shall be, whole, by its name; also with the holidays of a country or of a file."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("calendar", Calendar)

    calendar: dict[str, Any] = field(default_factory=dict)
    holidays: Code = ""
    subdivision: Code = ""
    years: Code = ""
    ical: Annotated[str, Meta(max_length=LONGEST_FILE)] = ""


class Refresh(Write, frozen=True, kw_only=True):
    """Which calendar to read again from where it came, for the same years or for others."""

    calendar: Named
    years: Code = ""


class Refreshed(Struct, frozen=True, kw_only=True):
    """The calendar as it is now, who uses it, and the days that came and went."""

    calendar: Calendar
    used_by: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    warnings: tuple[str, ...] = ()


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
    """A calendar, the first few schedules that name it, and which of them have nothing left to run."""

    calendar: Calendar
    used_by: tuple[str, ...]
    warnings: tuple[str, ...] = ()


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
        {
            "name": "berlin",
            "zone": "Europe/Berlin",
            "holidays": "DE",
            "subdivision": "BE",
            "years": "2026-2028",
        },
    ),
)
def put_named_calendar(context: Context, ask: Put) -> Kept:
    """Create a calendar or replace all of it; schedules that name it see it at their next decision."""
    now = context.now()
    calendar = decode(ask.calendar, Calendar, base={"namespace": context.namespace})
    calendar = replace(calendar, name=check_name(calendar.name))
    _refuse_ours(context, ask.calendar, calendar)
    check_allowed(context.settings, [calendar.zone], field="zone")
    calendar = _with_sources(calendar, ask, now=now)

    def work(inside: Context) -> Kept:
        put_calendar(inside.store, calendar, by=inside.because(ask.reason), now=now)
        return inside.store.read(lambda tx: _kept(tx, inside.namespace, calendar.name))

    return together(context, work)


@operations.add(
    "calendar",
    "refresh",
    Refresh,
    scope="write",
    examples=({"calendar": "germany"}, {"calendar": "germany", "years": "2026-2030"}),
)
def refresh_calendar(context: Context, ask: Refresh) -> Refreshed:
    """Read the holidays of a calendar again; what changed is a new revision, and nothing else is."""
    now = context.now()

    def work(inside: Context) -> Refreshed:
        kept = inside.store.read(lambda tx: _kept(tx, inside.namespace, ask.calendar))
        before = kept.calendar
        after = _read_again(before, years=ask.years, now=now)
        if after != before:
            put_calendar(inside.store, after, by=inside.because(ask.reason), now=now)
            kept = inside.store.read(lambda tx: _kept(tx, inside.namespace, ask.calendar))
        old, new = set(before.dates), set(after.dates)
        return Refreshed(
            calendar=kept.calendar,
            used_by=kept.used_by,
            added=tuple(map(str, sorted(new - old))),
            removed=tuple(map(str, sorted(old - new))),
            warnings=kept.warnings,
        )

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
        remove_calendar(tx, kept.calendar, by=by, now=now)
        return Deleted(calendar=kept.calendar)

    return context.store.write(work)


def _with_sources(calendar: Calendar, ask: Put, *, now: datetime) -> Calendar:
    """The calendar with the days of a country or of a file beside its own."""
    if not (ask.holidays or ask.ical):
        stray = "subdivision" if ask.subdivision else "years" if ask.years else ""
        if stray:
            raise InvalidInput(
                f"{stray} says nothing alone",
                field=stray,
                value=getattr(ask, stray),
                rule="it goes with holidays or ical",
                fix="holidays: DE",
            )
        return calendar
    if ask.holidays and (ask.ical or calendar.names):
        other = "ical" if ask.ical else "names"
        raise InvalidInput(
            f"holidays beside {other}",
            field=other,
            value="",
            rule="the days of one calendar are named by one source",
            fix="two calendars; a schedule may name both",
        )
    years = years_in(ask.years, now=now)
    if ask.holidays:
        return _with(calendar, holidays_of(ask.holidays, ask.subdivision, years=years, now=now))
    return _with(calendar, ical_of(ask.ical, zone=calendar.zone, years=years, now=now))


def _with(calendar: Calendar, found: Found) -> Calendar:
    names = {str(day): name for day, name in found.days.items() if name}
    return replace(
        calendar,
        dates=(*calendar.dates, *found.days),
        spans=(*calendar.spans, *found.spans),
        names={**calendar.names, **names},
        source=found.source,
    )


def _read_again(calendar: Calendar, *, years: str, now: datetime) -> Calendar:
    source = calendar.source
    if source is None or source.kind != "holidays":
        raise NotAllowed(
            f"calendar {calendar.name} was not read from a country",
            field="calendar",
            value=calendar.name,
            rule="only holidays of a country are read again; a file is handed over again",
            fix=f"calendar put {calendar.name} with ical",
        )
    within = years_in(years or source.years, now=now)
    found = holidays_of(source.country, source.subdivision, years=within, now=now)
    # Every day that has a name came from the source; those put in by hand stay.
    own = tuple(day for day in calendar.dates if str(day) not in calendar.names)
    again = _with(replace(calendar, dates=own, names={}), found)
    same = replace(again, source=source)
    changed = found.source.library != source.library or found.source.years != source.years
    return again if changed or same != calendar else calendar


def _refuse_ours(context: Context, given: dict[str, Any], calendar: Calendar) -> None:
    if calendar.namespace != context.namespace or {"revision", "source"} & set(given):
        field = next((name for name in ("revision", "source") if name in given), "namespace")
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
    users = list(islice(_users(tx, namespace, name), MOST_USERS))
    return Kept(
        calendar=_read(rows[0]),
        used_by=tuple(due.schedule.name for due in users),
        warnings=tuple(warning for due in users for warning in nothing_left(tx, due)),
    )


def _users(tx: Transaction, namespace: str, name: str) -> Iterator[Due]:
    """The living schedules that name a calendar."""
    cursor, more = "", True
    while more:
        page = tx.find_schedules(ScheduleFilter(namespace=namespace, limit=1000, cursor=cursor))
        for due in page.rows:
            rule = due.schedule.calendar
            if rule is not None and name in rule.names and due.standing.state is not ScheduleState.ARCHIVED:
                yield due
        cursor, more = page.cursor, bool(page.cursor)


def _read(row: Stored) -> Calendar:
    return replace(msgspec.json.decode(row.body, type=Calendar), revision=row.revision)
