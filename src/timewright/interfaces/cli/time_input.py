"""Parses relative times such as `tomorrow 09:00` or `in 2h`.

A date without an offset is still refused, because in a script it would depend on the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from timewright.core.moments import DAY, format_instant, parse_duration
from timewright.errors import TimewrightError
from timewright.interfaces.cli.fields import options_of
from timewright.interfaces.cli.output.times import local_zone
from timewright.operations import Operation

MAX_TEXT_LENGTH = 64

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_WORDS = re.compile(r"(?:(?P<day>[a-z]+)(?: +at +| +|$))?(?P<clock>[0-9:]*)")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_RELATIVE_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


def resolve_instants(
    operation: Operation[Any], request: Mapping[str, Any], *, now: datetime
) -> dict[str, Any]:
    """Return the request with relative times replaced by instants."""
    resolved = dict(request)
    for field in options_of(operation):
        text = resolved.get(field.key)
        # `explain` handles a time of day itself, with its precision.
        is_explain_time = operation.name == "schedule explain" and _CLOCK.match(str(text)) is not None
        if field.metavar == "INSTANT" and isinstance(text, str) and not is_explain_time:
            instant = parse_instant_words(text, now=now, zone=local_zone(now))
            resolved[field.key] = format_instant(instant) if instant is not None else text
    return resolved


def parse_instant_words(text: str, *, now: datetime, zone: tzinfo) -> datetime | None:
    """Parse a relative time; returns None for other text."""
    words = " ".join(text.lower().split()) if len(text) <= MAX_TEXT_LENGTH else ""
    return _from_now(words, now=now) or _on_a_day(words, now=now, zone=zone)


def _from_now(text: str, *, now: datetime) -> datetime | None:
    """`now`, `in 2h`, `2h ago`."""
    if text == "now":
        return now
    ahead, behind = text.startswith("in "), text.endswith(" ago")
    if ahead == behind:
        return None
    try:
        length = parse_duration(_days(text.removeprefix("in ").removesuffix(" ago")))
    except TimewrightError:
        return None
    return now + length if ahead else now - length


def _days(text: str) -> str:
    """Replace `days` and `weeks` by their units."""
    return re.sub(r"(?<=[0-9]) *(d)ays?\b|(?<=[0-9]) *(w)eeks?\b", lambda found: found[1] or found[2], text)


def _on_a_day(text: str, *, now: datetime, zone: tzinfo) -> datetime | None:
    """Parse `tomorrow 09:00`, `fri 17:30` or `tomorrow`; a time alone means today."""
    found = _WORDS.fullmatch(text) if text else None
    if found is None:
        return None
    clock = _CLOCK.fullmatch(found["clock"] or "0:00")
    day = _day(found["day"] or "today", today=now.astimezone(zone).date())
    if clock is None or day is None:
        return None
    hour, minute, second = (int(part or 0) for part in clock.groups())
    return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone).astimezone(UTC)


def _day(word: str, *, today: date) -> date | None:
    """Return the date of a day name; a weekday is the next one after today."""
    if word in _RELATIVE_DAYS:
        return today + timedelta(days=_RELATIVE_DAYS[word])
    weekday = next((i for i, name in enumerate(_WEEKDAYS) if len(word) >= 3 and name.startswith(word)), None)
    return None if weekday is None else today + DAY * ((weekday - today.weekday() - 1) % 7 + 1)
