"""Calendars: named sets of days and hours that schedules include or exclude."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.input.decode import decode
from timewright.core.input.input_errors import check_name
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, parts_of
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import InvalidInput, InvalidZone, NotAllowed
from timewright.ledger.lookups import CALENDAR
from timewright.ledger.queues.policies import delete_calendar as remove_calendar
from timewright.ledger.queues.policies import put_calendar
from timewright.ledger.snapshot import all_schedules
from timewright.operations.calendars.sources import ImportedDays, parse_years, read_holidays, read_ical
from timewright.operations.context import OperationContext
from timewright.operations.explain.idle import fully_excluded_warning
from timewright.operations.lookup import find_object
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import ListRequest, ObjectName, OperationRequest, WriteRequest, operations
from timewright.ports import ScheduleRecord, StoredObject, Transaction
from timewright.settings import Settings

MAX_USERS_SHOWN = 5
MAX_FILE_CHARS = 1_000_000

Code = Annotated[str, Meta(max_length=32)]


class PutCalendar(WriteRequest, frozen=True, kw_only=True):
    """A complete calendar, by its name; optionally with a country's holidays or an iCalendar file."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("calendar", Calendar)

    calendar: dict[str, Any] = field(default_factory=dict)
    holidays: Code = ""
    subdivision: Code = ""
    years: Code = ""
    ical: Annotated[str, Meta(max_length=MAX_FILE_CHARS)] = ""


class RefreshCalendar(WriteRequest, frozen=True, kw_only=True):
    """Which calendar to reload from its source, for the same years or for others."""

    calendar: ObjectName
    years: Code = ""


class RefreshedCalendar(Struct, frozen=True, kw_only=True):
    """The refreshed calendar, the schedules that use it, and the days that were added and removed."""

    calendar: Calendar
    used_by: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class GetCalendar(OperationRequest, frozen=True, kw_only=True):
    """Which calendar."""

    calendar: ObjectName


class DeleteCalendar(WriteRequest, frozen=True, kw_only=True):
    """Which calendar to remove; one that a schedule uses cannot be removed."""

    calendar: ObjectName


class DeletedCalendar(Struct, frozen=True, kw_only=True):
    """The calendar that was removed."""

    calendar: Calendar


class CalendarDetail(Struct, frozen=True, kw_only=True):
    """A calendar, the first few schedules that use it, and warnings for those it excludes completely."""

    calendar: Calendar
    used_by: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class ListCalendars(ListRequest, frozen=True, kw_only=True):
    """List the calendars of the namespace."""


class CalendarList(Struct, frozen=True, kw_only=True):
    """A page of calendars, by name."""

    calendars: tuple[Calendar, ...]
    cursor: str = ""


@operations.write(
    "calendar put",
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
def put_named_calendar(context: OperationContext, tx: Transaction, request: PutCalendar) -> CalendarDetail:
    """Create a calendar or replace it completely; schedules that use it apply it at their next decision."""
    now = context.now()
    calendar = decode(request.calendar, Calendar, base={"namespace": context.namespace})
    calendar = replace(calendar, name=check_name(calendar.name))
    _reject_server_fields(context, request.calendar, calendar)
    check_zones_allowed(context.settings, [calendar.zone], field="zone")
    calendar = _with_sources(calendar, request, now=now)
    rows = tx.get_objects(CALENDAR, namespace=context.namespace, names=[calendar.name])
    if not rows or replace(_decode(rows[0]), revision=calendar.revision) != calendar:
        put_calendar(context.store, calendar, by=context.by, now=now)
    return _read_detail(tx, context.namespace, calendar.name)


@operations.write(
    "calendar refresh",
    scope="write",
    examples=({"calendar": "germany"}, {"calendar": "germany", "years": "2026-2030"}),
)
def refresh_calendar(
    context: OperationContext, tx: Transaction, request: RefreshCalendar
) -> RefreshedCalendar:
    """Reload the holidays of a calendar; a new revision is written only if they changed."""
    now = context.now()
    detail = _read_detail(tx, context.namespace, request.calendar)
    before = detail.calendar
    after = _reload(before, years=request.years, now=now)
    if after != before:
        put_calendar(context.store, after, by=context.by, now=now)
        detail = _read_detail(tx, context.namespace, request.calendar)
    old, new = set(before.dates), set(after.dates)
    return RefreshedCalendar(
        calendar=detail.calendar,
        used_by=detail.used_by,
        added=tuple(map(str, sorted(new - old))),
        removed=tuple(map(str, sorted(old - new))),
        warnings=detail.warnings,
    )


@operations.read("calendar get", scope="read", examples=({"calendar": "holidays"},))
def get_calendar(context: OperationContext, tx: Transaction, request: GetCalendar) -> CalendarDetail:
    """Show a calendar and the schedules that use it."""
    return _read_detail(tx, context.namespace, request.calendar)


@operations.read("calendar list", scope="read", examples=({},))
def list_calendars(context: OperationContext, tx: Transaction, request: ListCalendars) -> CalendarList:
    """List the calendars of the namespace."""
    rows = tx.get_objects(CALENDAR, namespace=context.namespace)
    page, cursor = paginate_rows(context, request, rows, key=attrgetter("name"))
    return CalendarList(calendars=tuple(_decode(row) for row in page), cursor=cursor)


@operations.write("calendar delete", scope="write", examples=({"calendar": "old-office"},))
def delete_calendar(context: OperationContext, tx: Transaction, request: DeleteCalendar) -> DeletedCalendar:
    """Remove a calendar that no schedule uses."""
    now = context.now()
    detail = _read_detail(tx, context.namespace, request.calendar)
    if detail.used_by:
        raise NotAllowed(
            f"calendar {request.calendar} is used by {', '.join(detail.used_by)}",
            field="calendar",
            value=request.calendar,
            rule="a calendar that a schedule uses cannot be removed",
            fix=f"schedule update {detail.used_by[0]} with another calendar first",
        )
    remove_calendar(tx, detail.calendar, by=context.by, now=now)
    return DeletedCalendar(calendar=detail.calendar)


def _with_sources(calendar: Calendar, request: PutCalendar, *, now: datetime) -> Calendar:
    """Return the calendar with the days of a country or a file added."""
    if not (request.holidays or request.ical):
        stray = "subdivision" if request.subdivision else "years" if request.years else ""
        if stray:
            raise InvalidInput(
                f"{stray} needs holidays or ical",
                field=stray,
                value=getattr(request, stray),
                rule="it is only used together with holidays or ical",
                fix="holidays: DE",
            )
        return calendar
    if request.holidays and (request.ical or calendar.names):
        other = "ical" if request.ical else "names"
        raise InvalidInput(
            f"holidays and {other} are both given",
            field=other,
            value="",
            rule="a calendar takes the names of its days from one source",
            fix="create two calendars; a schedule may use both",
        )
    years = parse_years(request.years, now=now)
    if request.holidays:
        return _with_imported_days(
            calendar, read_holidays(request.holidays, request.subdivision, years=years, now=now)
        )
    return _with_imported_days(calendar, read_ical(request.ical, zone=calendar.zone, years=years, now=now))


def _with_imported_days(calendar: Calendar, found: ImportedDays) -> Calendar:
    names = {str(day): name for day, name in found.days.items() if name}
    return replace(
        calendar,
        dates=(*calendar.dates, *found.days),
        spans=(*calendar.spans, *found.spans),
        names={**calendar.names, **names},
        source=found.source,
    )


def _reload(calendar: Calendar, *, years: str, now: datetime) -> Calendar:
    source = calendar.source
    if source is None or source.kind != "holidays":
        raise NotAllowed(
            f"calendar {calendar.name} has no country as its source",
            field="calendar",
            value=calendar.name,
            rule="only country holidays can be refreshed; a file must be put again",
            fix=f"calendar put {calendar.name} with ical",
        )
    within = parse_years(years or source.years, now=now)
    found = read_holidays(source.country, source.subdivision, years=within, now=now)
    # Every named day came from the source; days without a name were added manually and stay.
    manual_days = tuple(day for day in calendar.dates if str(day) not in calendar.names)
    reloaded = _with_imported_days(replace(calendar, dates=manual_days, names={}), found)
    unchanged = replace(reloaded, source=source)
    changed = found.source.library != source.library or found.source.years != source.years
    return reloaded if changed or unchanged != calendar else calendar


def _reject_server_fields(context: OperationContext, given: dict[str, Any], calendar: Calendar) -> None:
    if calendar.namespace != context.namespace or {"revision", "source"} & set(given):
        field = next((name for name in ("revision", "source") if name in given), "namespace")
        raise InvalidInput(
            f"{field} cannot be set",
            field=field,
            value=given.get(field),
            rule="Timewright writes it",
            fix="leave it out",
        )


def _read_detail(tx: Transaction, namespace: str, name: str) -> CalendarDetail:
    row = find_object(tx, CALENDAR, namespace, name)
    users = list(islice(_users(tx, namespace, name), MAX_USERS_SHOWN))
    return CalendarDetail(
        calendar=_decode(row),
        used_by=tuple(record.schedule.name for record in users),
        warnings=tuple(warning for record in users for warning in fully_excluded_warning(tx, record)),
    )


def _users(tx: Transaction, namespace: str, name: str) -> Iterator[ScheduleRecord]:
    """Yield the schedules, archived ones excluded, that use a calendar."""
    for record in all_schedules(tx, namespace):
        rule = record.schedule.calendar
        is_archived = record.progress.state is ScheduleState.ARCHIVED
        if rule is not None and name in rule.names and not is_archived:
            yield record


def _decode(row: StoredObject) -> Calendar:
    return replace(msgspec.json.decode(row.body, type=Calendar), revision=row.revision)


def check_schedule_zones(settings: Settings, schedule: Schedule) -> None:
    """Reject a schedule whose triggers use a zone that is not allowed."""
    zones = (one.zone for one in parts_of(schedule.trigger) if isinstance(one, ZONED_TRIGGERS))
    check_zones_allowed(settings, zones, field="trigger.zone")


def check_zones_allowed(settings: Settings, zones: Iterable[str], *, field: str) -> None:
    """Reject a zone that is not in the settings' list; an empty list allows all."""
    for zone in zones:
        if settings.allowed_zones and zone not in settings.allowed_zones:
            raise InvalidZone(
                f"zone {zone} is not allowed here",
                field=field,
                value=zone,
                rule=f"one of: {', '.join(settings.allowed_zones[:20])}",
                fix=settings.allowed_zones[0],
            )
