"""The next occurrences as an iCalendar (RFC 5545) feed for calendar programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import DAY
from timewright.core.run.run import occurrence_key
from timewright.core.schedule.forecast import Preview, forecast
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.ledger.lookups import load_calendars
from timewright.operations.context import OperationContext
from timewright.operations.explain.upcoming import add_manual_runs_and_notes
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import ScheduleFilter, ScheduleRecord, Transaction

MAX_SCHEDULES = 1000
MAX_EVENTS = 1000
MAX_EVENTS_PER_SCHEDULE = 200

_WIDTH = 75


class GetScheduleFeed(OperationRequest, frozen=True, kw_only=True):
    """Which schedules: all, with a tag, or of a group; and how many days ahead."""

    tag: str | None = None
    group: str | None = None
    days: Annotated[int, Meta(ge=1, le=366)] = 30


class ScheduleFeed(Struct, frozen=True, kw_only=True):
    """The feed as text, the number of schedules and events, and whether there are more."""

    text: str
    content_type: str
    schedules: int
    events: int
    until: datetime
    more: bool


@operations.read("schedule feed", scope="read", examples=({"tag": "daily", "days": 7},))
def schedule_feed(context: OperationContext, tx: Transaction, request: GetScheduleFeed) -> ScheduleFeed:
    """Return the next occurrences of schedules as an iCalendar text, for calendar programs."""
    now = context.now()
    until = now + request.days * DAY
    which = ScheduleFilter(
        namespace=context.namespace, state=ScheduleState.ACTIVE, group=request.group, limit=MAX_SCHEDULES
    )
    page = tx.find_schedules(which)
    wanted = [record for record in page.rows if request.tag is None or request.tag in record.schedule.tags]
    each = {record.schedule.id: _upcoming(tx, record, now=now, until=until) for record in wanted}
    events = sorted(
        (
            (one, record.schedule)
            for record in wanted
            for one in each[record.schedule.id][:MAX_EVENTS_PER_SCHEDULE]
        ),
        key=lambda event: (event[0].planned_at, event[1].name),
    )
    return ScheduleFeed(
        text=_to_ical(events[:MAX_EVENTS], name=request.tag or request.group or context.namespace, now=now),
        content_type="text/calendar; charset=utf-8",
        schedules=len(wanted),
        events=min(len(events), MAX_EVENTS),
        until=until,
        more=bool(page.cursor)
        or len(events) > MAX_EVENTS
        or any(len(found) > MAX_EVENTS_PER_SCHEDULE for found in each.values()),
    )


def _upcoming(tx: Transaction, record: ScheduleRecord, *, now: datetime, until: datetime) -> list[Preview]:
    """Return the occurrences that will start, without those known to be skipped."""
    calendars = load_calendars(tx, [record.schedule]).for_schedule(record.schedule)
    count = MAX_EVENTS_PER_SCHEDULE + 1
    found = forecast(record.schedule, record.progress, now=now, count=count, until=until, calendars=calendars)
    found = add_manual_runs_and_notes(tx, record.schedule, found, now=now, count=count, until=until)
    return [one for one in found if one.fire_at is not None and one.planned_at <= until]


def _to_ical(events: list[tuple[Preview, Schedule]], *, name: str, now: datetime) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Timewright//schedule feed//EN", "METHOD:PUBLISH"]
    lines.append(f"X-WR-CALNAME:{_escape(name)}")
    for event, schedule in events:
        lines += _event(event, schedule, now=now)
    lines.append("END:VCALENDAR")
    # Lines end with \n here; the HTTP interface converts them to \r\n.
    return "".join(f"{part}\n" for line in lines for part in _fold(line))


def _event(event: Preview, schedule: Schedule, *, now: datetime) -> Iterator[str]:
    yield "BEGIN:VEVENT"
    # The key of an occurrence never changes, so a calendar program recognises it.
    yield f"UID:{occurrence_key(schedule.id, event.planned_at)}@timewright"
    yield f"DTSTAMP:{_stamp(now)}"
    yield f"DTSTART:{_stamp(event.fire_at or event.planned_at)}"
    yield f"DURATION:PT{max(int(_shown_duration(schedule).total_seconds()) // 60, 1)}M"
    yield f"SUMMARY:{_escape(schedule.name)}"
    parts = (event.note, schedule.trigger.describe(), schedule.description)
    description = "\n".join(part for part in parts if part)
    yield f"DESCRIPTION:{_escape(description)}"
    if schedule.tags:
        yield f"CATEGORIES:{','.join(map(_escape, schedule.tags))}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _shown_duration(schedule: Schedule) -> timedelta:
    """Return the displayed duration: the time limit, else 5 minutes, as the real one is unknown."""
    return min(schedule.lease.time_limit or timedelta(minutes=5), timedelta(minutes=15))


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}"


def _escape(text: str) -> str:
    plain = "".join(c for c in text if c == "\n" or c >= " ")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace(",", "\\,").replace(";", "\\;")


def _fold(line: str) -> Iterator[str]:
    """Fold a line into pieces of at most 75 bytes, without splitting a character."""
    piece = ""
    for letter in line:
        if len((piece + letter).encode()) > _WIDTH:
            yield piece
            piece = " "
        piece += letter
    yield piece
