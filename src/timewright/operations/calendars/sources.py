"""Sources of calendar days: country holidays and iCalendar files; the libraries for them are extras."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from timewright.core.calendars import CalendarSource, Span
from timewright.core.calendars.calendar import MAX_DAY_NAME_LENGTH, join_names
from timewright.core.moments import DAY, ZERO
from timewright.core.recurrence.rrule import Rrule
from timewright.errors import InvalidInput, MissingExtra, TimewrightError

MAX_YEARS = 20
DEFAULT_YEARS_AHEAD = 2
MAX_EVENTS = 5_000
MAX_OCCURRENCES = 10_000
MAX_EVENT_LENGTH = 400 * DAY
# Occurrences and their days before overlaps are joined: 5,000 long events that repeat have billions.
MAX_EXPANDED_DAYS = 100_000

Overrides = dict[str, set[datetime]]

_YEARS = re.compile(r"([0-9]{4})(?:\s*-\s*([0-9]{4}))?")
_LANGUAGE = "en_US"


class ImportedDays(Struct, frozen=True, kw_only=True):
    """The days (with names) and spans of a source, and a description of the source."""

    days: dict[date, str]
    spans: tuple[Span, ...] = ()
    source: CalendarSource


def parse_years(text: str, *, now: datetime) -> tuple[int, int]:
    """Return the first and last year; the default is this year and the two after it."""
    if not text:
        return now.year, now.year + DEFAULT_YEARS_AHEAD
    match = _YEARS.fullmatch(text.strip())
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not (2000 <= first <= last <= 2199 and last - first < MAX_YEARS):
        raise InvalidInput(
            f"years {text[:32]!r} is not a valid range",
            field="years",
            value=text[:32],
            rule=f"a year, or two with a hyphen, from 2000 to 2199, at most {MAX_YEARS} years",
            fix=f"{now.year}-{now.year + DEFAULT_YEARS_AHEAD}",
        )
    return first, last


def read_holidays(country: str, subdivision: str, *, years: tuple[int, int], now: datetime) -> ImportedDays:
    """Return the public holidays of a country or a subdivision, with their names."""
    library = _holidays()
    code = _known_country(library, country)
    _check_subdivision(library, code, subdivision)
    # Fix the language, so that the names do not depend on the host's locale.
    languages = library.country_holidays(code).supported_languages
    found = library.country_holidays(
        code,
        subdiv=subdivision or None,
        years=range(years[0], years[1] + 1),
        language=_LANGUAGE if _LANGUAGE in languages else None,
    )
    source = CalendarSource(
        kind="holidays",
        country=code,
        subdivision=subdivision,
        first_year=years[0],
        last_year=years[1],
        library=f"holidays {library.__version__}",
        read_at=now,
    )
    return ImportedDays(days=_sort_days(found.items(), years), source=source)


def read_ical(text: str, *, zone: str, years: tuple[int, int], now: datetime) -> ImportedDays:
    """Return the events of an iCalendar file: all-day events as named days, others as spans."""
    library = _icalendar()
    days, spans = read_events(library, text, zone=zone, years=years)
    source = CalendarSource(
        kind="ical",
        first_year=years[0],
        last_year=years[1],
        library=f"icalendar {library.__version__}",
        read_at=now,
    )
    return ImportedDays(days=days, spans=tuple(spans), source=source)


def _sort_days(days: Iterable[tuple[date, str]], years: tuple[int, int]) -> dict[date, str]:
    """Return the days within the years in order, each name on one line."""
    found = sorted((day, name) for day, name in days if years[0] <= day.year <= years[1])
    return {day: name.replace("; ", " and ").replace("\n", " ")[:200] for day, name in found}


def _known_country(library: ModuleType, country: str) -> str:
    known: dict[str, Any] = library.list_supported_countries()
    code = country.strip().upper()
    if code in known:
        return code
    near = get_close_matches(code[:16], known, n=1)
    raise InvalidInput(
        f"no holidays are available for country {country[:32]!r}",
        field="holidays",
        value=country[:32],
        rule=f"a two- or three-letter country code, one of {len(known)}",
        fix=f"did you mean {near[0]}?" if near else "DE, US, GB, FR or JP",
    )


def _check_subdivision(library: ModuleType, country: str, subdivision: str) -> None:
    known: list[str] = library.list_supported_countries(include_aliases=True)[country]
    if subdivision and subdivision not in known:
        near = get_close_matches(subdivision[:32], known, n=1, cutoff=0.4)
        listed = ", ".join(known[:20]) if known else "it has none"
        raise InvalidInput(
            f"{country} has no subdivision {subdivision[:32]!r}",
            field="subdivision",
            value=subdivision[:32],
            rule=f"one of {listed}" if known else "a subdivision with its own holidays",
            fix=near[0] if near else known[0] if known else "leave it out",
        )


def _holidays() -> ModuleType:
    try:
        import holidays
    except ImportError:
        raise _missing("holidays", "holidays of countries") from None
    return holidays


def _icalendar() -> ModuleType:
    try:
        import icalendar
    except ImportError:
        raise _missing("ical", "iCalendar files") from None
    return icalendar


def _missing(field: str, what: str) -> MissingExtra:
    return MissingExtra(
        f"{what} need an extra that is not installed",
        field=field,
        rule=f"{what} need the extra `calendars`",
        fix="pip install 'timewright[calendars]'",
    )


def read_events(
    library: ModuleType, text: str, *, zone: str, years: tuple[int, int]
) -> tuple[dict[date, str], list[Span]]:
    """Return all-day events as named days and others as spans, with recurring events expanded."""
    events = [event for event in _read(library, text) if str(event.get("status", "")).upper() != "CANCELLED"]
    overrides = _find_overrides(events, zone)
    begin = datetime(years[0], 1, 1, tzinfo=ZoneInfo(zone))
    end = datetime(years[1] + 1, 1, 1, tzinfo=ZoneInfo(zone))
    days: dict[date, str] = {}
    spans: list[Span] = []
    expanded = 0
    for event in events:
        name = " ".join(str(event.get("summary", "")).split())[:MAX_DAY_NAME_LENGTH]
        all_day, length = _is_all_day(event), _duration(event)
        if length <= ZERO:
            continue
        for start in _starts(event, zone, begin=begin - length, end=end, overrides=overrides):
            expanded += length.days + 1
            _check_expanded(expanded)
            if all_day:
                for day in (start.date() + offset * DAY for offset in range(length.days)):
                    if years[0] <= day.year <= years[1]:
                        days[day] = join_names(days.get(day, ""), name)
            elif start + length > begin:
                spans.append(Span(start=start, end=start + length, name=name))
            _check_count(len(days) + len(spans))
    return dict(sorted(days.items())), spans


def _read(library: ModuleType, text: str) -> list[Any]:
    try:
        found = library.Calendar.from_ical(text, multiple=True)
        events = [event for one in found for event in one.walk("VEVENT")]
        if not found or any("dtstart" not in event for event in events):
            raise ValueError("an event has no DTSTART" if found else "there is no VCALENDAR")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise _invalid_file(f"cannot be read: {str(error)[:120]}") from None
    if len(events) > MAX_EVENTS:
        raise _invalid_file(f"has {len(events)} events", rule=f"at most {MAX_EVENTS} events")
    return events


def _find_overrides(events: list[Any], zone: str) -> Overrides:
    """Return, by event UID, the occurrences that a separate event overrides."""
    found: Overrides = {}
    for event in events:
        if event.get("recurrence-id") is not None:
            instead_of = _instant(event["recurrence-id"].dt, zone)
            found.setdefault(str(event.get("uid", "")), set()).add(instead_of)
    return found


def _starts(
    event: Any, zone: str, *, begin: datetime, end: datetime, overrides: Overrides
) -> Iterator[datetime]:
    """Return the start of each occurrence as an instant; all-day events start at midnight UTC."""
    first = _start(event, zone)
    rule = event.get("rrule")
    excluded = set(_list_times(event.get("exdate"), zone))
    if event.get("recurrence-id") is None:
        excluded |= overrides.get(str(event.get("uid", "")), set())
    found = {first, *_list_times(event.get("rdate"), zone)}
    for one in rule if isinstance(rule, list) else [rule] if rule is not None else []:
        found.update(_expand_rule(event, one.to_ical().decode(), zone, begin=begin, end=end))
        _check_count(len(found))
    return (at for at in sorted(found - excluded) if begin - DAY <= at < end + DAY)


def _expand_rule(event: Any, rule: str, zone: str, *, begin: datetime, end: datetime) -> tuple[datetime, ...]:
    start = event["dtstart"].dt
    name = "UTC" if _is_all_day(event) else _zone_of(start, zone)
    try:
        trigger = Rrule(rule, name, "vixie", _start(event, zone))
    except TimewrightError as error:
        called = str(event.get("summary", ""))[:60]
        raise _invalid_file(f"has an event {called!r} whose {error.message}", rule=error.rule or "") from None
    return trigger.between(begin - DAY, end + DAY, MAX_OCCURRENCES + 1)


def _zone_of(start: datetime, zone: str) -> str:
    if start.tzinfo is None:
        return zone
    name = getattr(start.tzinfo, "key", None) or ("UTC" if start.tzinfo is UTC else None)
    if name is None:
        raise _invalid_file(
            f"has an event that repeats in a custom zone, {str(start.tzinfo)[:40]}", rule="an IANA time zone"
        )
    return str(name)


def _start(event: Any, zone: str) -> datetime:
    return _instant(event["dtstart"].dt, zone)


def _instant(at: Any, zone: str) -> datetime:
    """Return a time as an instant; without a zone it is in the calendar's zone, a date is midnight UTC."""
    if not isinstance(at, datetime):
        return datetime(at.year, at.month, at.day, tzinfo=UTC)
    return (at if at.tzinfo is not None else at.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)


def _list_times(found: Any, zone: str) -> Iterator[datetime]:
    """Yield the times of EXDATE or RDATE; a period counts by its start."""
    for part in found if isinstance(found, list) else [found] if found is not None else []:
        for one in part.dts:
            yield _instant(one.dt[0] if isinstance(one.dt, tuple) else one.dt, zone)


def _is_all_day(event: Any) -> bool:
    return not isinstance(event["dtstart"].dt, datetime)


def _duration(event: Any) -> timedelta:
    """Return the duration of an event; without an end, one day for a date and zero for a time."""
    if event.get("duration") is not None:
        length: timedelta = event["duration"].dt
    elif event.get("dtend") is not None:
        # Read both ends in the same zone, so that floating times give the right difference.
        length = _instant(event["dtend"].dt, "UTC") - _instant(event["dtstart"].dt, "UTC")
    else:
        length = DAY if _is_all_day(event) else ZERO
    return min(length, MAX_EVENT_LENGTH)


def _check_count(count: int) -> None:
    if count > MAX_OCCURRENCES:
        raise _invalid_file(
            f"holds more than {MAX_OCCURRENCES} days and spans",
            rule=f"at most {MAX_OCCURRENCES} in these years",
        )


def _check_expanded(count: int) -> None:
    if count > MAX_EXPANDED_DAYS:
        raise _invalid_file(
            f"has events on more than {MAX_EXPANDED_DAYS} days, counting a day once for each event",
            rule=f"at most {MAX_EXPANDED_DAYS} in these years",
        )


def _invalid_file(why: str, *, rule: str = "an iCalendar file (RFC 5545) with events") -> InvalidInput:
    return InvalidInput(
        f"ical {why}",
        field="ical",
        value="the file",
        rule=rule,
        fix="use a file that begins with BEGIN:VCALENDAR, or fewer years",
    )
