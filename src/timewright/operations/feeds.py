"""What is planned as a calendar that others can show: text in the form of RFC 5545, only to be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.forecast import Preview, forecast
from timewright.core.moments import DAY
from timewright.core.run import occurrence_key
from timewright.core.schedule import Schedule, ScheduleState
from timewright.ledger.shelf import calendars_for
from timewright.operations.ahead import with_additions
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations
from timewright.ports import Due, ScheduleFilter, Transaction

MOST_SCHEDULES = 1000
MOST_EVENTS = 1000
MOST_OF_ONE = 200

_WIDTH = 75


class Ask(Request, frozen=True, kw_only=True):
    """Of which schedules: all, those with a tag, or those of a group; and how many days ahead."""

    tag: str | None = None
    group: str | None = None
    days: Annotated[int, Meta(ge=1, le=366)] = 30


class Feed(Struct, frozen=True, kw_only=True):
    """A calendar as text, how many schedules and occurrences it holds, and whether there would be more."""

    text: str
    content_type: str
    schedules: int
    events: int
    until: datetime
    more: bool


@operations.add(
    "schedule",
    "feed",
    Ask,
    scope="read",
    examples=({"tag": "daily", "days": 7},),
)
def schedule_feed(context: Context, ask: Ask) -> Feed:
    """Write the next occurrences of some schedules as an iCalendar text, for others to show."""
    now = context.now()
    until = now + ask.days * DAY

    def work(tx: Transaction) -> Feed:
        which = ScheduleFilter(
            namespace=context.namespace, state=ScheduleState.ACTIVE, group=ask.group, limit=MOST_SCHEDULES
        )
        page = tx.find_schedules(which)
        wanted = [due for due in page.rows if ask.tag is None or ask.tag in due.schedule.tags]
        each = {due.schedule.id: _ahead(tx, due, now=now, until=until) for due in wanted}
        events = sorted(
            ((one, due.schedule) for due in wanted for one in each[due.schedule.id][:MOST_OF_ONE]),
            key=lambda event: (event[0].planned_at, event[1].name),
        )
        return Feed(
            text=_written(events[:MOST_EVENTS], name=ask.tag or ask.group or context.namespace, now=now),
            content_type="text/calendar; charset=utf-8",
            schedules=len(wanted),
            events=min(len(events), MOST_EVENTS),
            until=until,
            more=bool(page.cursor)
            or len(events) > MOST_EVENTS
            or any(len(found) > MOST_OF_ONE for found in each.values()),
        )

    return context.store.read(work)


def _ahead(tx: Transaction, due: Due, *, now: datetime, until: datetime) -> list[Preview]:
    """What will start, without what is known to be skipped."""
    calendars = calendars_for(tx, [due.schedule]).of(due.schedule)
    count = MOST_OF_ONE + 1
    found = forecast(due.schedule, due.standing, now=now, count=count, until=until, calendars=calendars)
    found = with_additions(tx, due.schedule, found, now=now, count=count, until=until)
    return [one for one in found if one.fire_at is not None and one.planned_at <= until]


def _written(events: list[tuple[Preview, Schedule]], *, name: str, now: datetime) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Timewright//schedule feed//EN", "METHOD:PUBLISH"]
    lines.append(f"X-WR-CALNAME:{_escaped(name)}")
    for event, schedule in events:
        lines += _event(event, schedule, now=now)
    lines.append("END:VCALENDAR")
    # As plain data the lines end as lines do; who serves the text ends them as its form wants.
    return "".join(f"{part}\n" for line in lines for part in _folded(line))


def _event(event: Preview, schedule: Schedule, *, now: datetime) -> Iterator[str]:
    yield "BEGIN:VEVENT"
    # The key of an occurrence never changes, so that a calendar knows it again.
    yield f"UID:{occurrence_key(schedule.id, event.planned_at)}@timewright"
    yield f"DTSTAMP:{_stamp(now)}"
    yield f"DTSTART:{_stamp(event.fire_at or event.planned_at)}"
    yield f"DURATION:PT{max(int(_shown(schedule).total_seconds()) // 60, 1)}M"
    yield f"SUMMARY:{_escaped(schedule.name)}"
    said = (event.note, schedule.trigger.describe(), schedule.description)
    words = "\n".join(part for part in said if part)
    yield f"DESCRIPTION:{_escaped(words)}"
    if schedule.tags:
        yield f"CATEGORIES:{','.join(map(_escaped, schedule.tags))}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _shown(schedule: Schedule) -> timedelta:
    """How long an event is drawn: nobody knows how long a run takes, so never longer than a quarter hour."""
    return min(schedule.lease.time_limit, timedelta(minutes=15))


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    plain = "".join(c for c in text if c == "\n" or c >= " ")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace(",", "\\,").replace(";", "\\;")


def _folded(line: str) -> Iterator[str]:
    """A line in pieces of at most 75 bytes, none of which cuts a character."""
    piece = ""
    for letter in line:
        if len((piece + letter).encode()) > _WIDTH:
            yield piece
            piece = " "
        piece += letter
    yield piece
