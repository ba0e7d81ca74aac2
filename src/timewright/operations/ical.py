"""The events of an iCalendar file as days and spans, within some years and never more than fit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

from timewright.core.calendars import Span
from timewright.core.calendars.calendar import LONGEST_NAME, joined_names
from timewright.core.moments import DAY, ZERO
from timewright.core.recurrence import Rrule
from timewright.errors import InvalidInput, TimewrightError

MOST_EVENTS = 5_000
MOST_FOUND = 10_000
LONGEST_EVENT = 400 * DAY

Overrides = dict[str, set[datetime]]


def events_of(
    library: ModuleType, text: str, *, zone: str, years: tuple[int, int]
) -> tuple[dict[date, str], list[Span]]:
    """Whole days by name, and spans; what repeats is followed through the years and no further."""
    events = [event for event in _read(library, text) if str(event.get("status", "")).upper() != "CANCELLED"]
    changed = _changed(events, zone)
    begin = datetime(years[0], 1, 1, tzinfo=ZoneInfo(zone))
    end = datetime(years[1] + 1, 1, 1, tzinfo=ZoneInfo(zone))
    days: dict[date, str] = {}
    spans: list[Span] = []
    for event in events:
        name = " ".join(str(event.get("summary", "")).split())[:LONGEST_NAME]
        whole, length = _whole(event), _length(event)
        if length <= ZERO:
            continue
        for start in _starts(event, zone, begin=begin - length, end=end, changed=changed):
            if whole:
                for day in (start.date() + away * DAY for away in range(length.days)):
                    if years[0] <= day.year <= years[1]:
                        days[day] = joined_names(days.get(day, ""), name)
            elif start + length > begin:
                spans.append(Span(start=start, end=start + length, name=name))
            _check_most(len(days) + len(spans))
    return dict(sorted(days.items())), spans


def _read(library: ModuleType, text: str) -> list[Any]:
    try:
        found = library.Calendar.from_ical(text, multiple=True)
        events = [event for one in found for event in one.walk("VEVENT")]
        if not found or any("dtstart" not in event for event in events):
            raise ValueError("an event has no DTSTART" if found else "there is no VCALENDAR")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise _refused(f"cannot be read: {str(error)[:120]}") from None
    if len(events) > MOST_EVENTS:
        raise _refused(f"has {len(events)} events", rule=f"at most {MOST_EVENTS} events")
    return events


def _changed(events: list[Any], zone: str) -> Overrides:
    """For each event that repeats, the times that an event of their own stands for."""
    found: Overrides = {}
    for event in events:
        if event.get("recurrence-id") is not None:
            instead_of = _instant(event["recurrence-id"].dt, zone)
            found.setdefault(str(event.get("uid", "")), set()).add(instead_of)
    return found


def _starts(
    event: Any, zone: str, *, begin: datetime, end: datetime, changed: Overrides
) -> Iterator[datetime]:
    """When an event begins, each time, as instants; whole days begin at midnight in UTC."""
    first = _start(event, zone)
    rule = event.get("rrule")
    apart = set(_listed(event.get("exdate"), zone))
    if event.get("recurrence-id") is None:
        apart |= changed.get(str(event.get("uid", "")), set())
    found = {first, *_listed(event.get("rdate"), zone)}
    for one in rule if isinstance(rule, list) else [rule] if rule is not None else []:
        found.update(_repeated(event, one.to_ical().decode(), zone, begin=begin, end=end))
        _check_most(len(found))
    return (at for at in sorted(found - apart) if begin - DAY <= at < end + DAY)


def _repeated(event: Any, rule: str, zone: str, *, begin: datetime, end: datetime) -> tuple[datetime, ...]:
    start = event["dtstart"].dt
    name = "UTC" if _whole(event) else _zone_of(start, zone)
    try:
        trigger = Rrule(rule, name, "vixie", _start(event, zone))
    except TimewrightError as error:
        called = str(event.get("summary", ""))[:60]
        raise _refused(f"has an event {called!r} whose {error.message}", rule=error.rule or "") from None
    return trigger.between(begin - DAY, end + DAY, MOST_FOUND + 1)


def _zone_of(start: datetime, zone: str) -> str:
    if start.tzinfo is None:
        return zone
    name = getattr(start.tzinfo, "key", None) or ("UTC" if start.tzinfo is UTC else None)
    if name is None:
        raise _refused(
            f"repeats in a zone of its own, {str(start.tzinfo)[:40]}", rule="a zone that IANA has a name for"
        )
    return str(name)


def _start(event: Any, zone: str) -> datetime:
    return _instant(event["dtstart"].dt, zone)


def _instant(at: Any, zone: str) -> datetime:
    """A time of a file as an instant; one without a zone is read in the calendar's, a day at midnight UTC."""
    if not isinstance(at, datetime):
        return datetime(at.year, at.month, at.day, tzinfo=UTC)
    return (at if at.tzinfo is not None else at.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)


def _listed(found: Any, zone: str) -> Iterator[datetime]:
    """The times of EXDATE or RDATE; a period there counts by its beginning."""
    for part in found if isinstance(found, list) else [found] if found is not None else []:
        for one in part.dts:
            yield _instant(one.dt[0] if isinstance(one.dt, tuple) else one.dt, zone)


def _whole(event: Any) -> bool:
    return not isinstance(event["dtstart"].dt, datetime)


def _length(event: Any) -> timedelta:
    """How long an event lasts; a day without an end is one day, a time without one is nothing."""
    if event.get("duration") is not None:
        length: timedelta = event["duration"].dt
    elif event.get("dtend") is not None:
        # Both ends are read the same way, so that their difference needs no zone but their own.
        length = _instant(event["dtend"].dt, "UTC") - _instant(event["dtstart"].dt, "UTC")
    else:
        length = DAY if _whole(event) else ZERO
    return min(length, LONGEST_EVENT)


def _check_most(count: int) -> None:
    if count > MOST_FOUND:
        raise _refused(
            f"holds more than {MOST_FOUND} days and spans", rule=f"at most {MOST_FOUND} in these years"
        )


def _refused(why: str, *, rule: str = "an iCalendar file (RFC 5545) with events") -> InvalidInput:
    return InvalidInput(
        f"ical {why}",
        field="ical",
        value="the file",
        rule=rule,
        fix="a file that begins with BEGIN:VCALENDAR, or fewer years",
    )
