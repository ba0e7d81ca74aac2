"""Write the next occurrences of schedules as an iCalendar feed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import DAY
from timewright.core.run.run import occurrence_key
from timewright.core.schedule.forecast import Preview
from timewright.core.schedule.schedule import Schedule
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations
from timewright.operations.schedules.upcoming import PlannedStart, UpcomingFilter, find_upcoming
from timewright.ports import Transaction

MAX_FEED_EVENTS = 1000
MAX_EVENTS_PER_SCHEDULE = 200

_WIDTH = 75


class GetScheduleFeed(OperationRequest, frozen=True, kw_only=True):
    """Which schedules: all, with a tag, or of a group; and how many days ahead."""

    tag: str | None = None
    group: str | None = None
    days: Annotated[int, Meta(ge=1, le=366)] = 30


class ScheduleFeed(Struct, frozen=True, kw_only=True):
    """The feed as text, how many events of how many schedules it has, and whether there are more."""

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
    which = UpcomingFilter(
        namespace=context.namespace,
        until=now + request.days * DAY,
        limit=MAX_FEED_EVENTS,
        limit_each=MAX_EVENTS_PER_SCHEDULE,
        tag=request.tag,
        group=request.group,
    )
    events, more = find_upcoming(tx, which, now=now)
    name = request.tag or request.group or context.namespace
    return ScheduleFeed(
        text=_to_ical(events, name=name, now=now),
        content_type="text/calendar; charset=utf-8",
        schedules=len({event.schedule.id for event in events}),
        events=len(events),
        until=which.until,
        more=more,
    )


def _to_ical(events: list[PlannedStart], *, name: str, now: datetime) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Timewright//schedule feed//EN", "METHOD:PUBLISH"]
    lines.append(f"X-WR-CALNAME:{_escape(name)}")
    for event in events:
        lines += _event(event.preview, event.schedule, now=now)
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
