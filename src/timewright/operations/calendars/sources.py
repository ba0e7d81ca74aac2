"""Sources of calendar days: country holidays and iCalendar files; the libraries for them are extras."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from msgspec import Struct

from timewright.core.calendars import CalendarSource, Span
from timewright.errors import InvalidInput, MissingExtra
from timewright.operations.calendars.ical_import import read_events

MAX_YEARS = 20
DEFAULT_YEARS_AHEAD = 2

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
