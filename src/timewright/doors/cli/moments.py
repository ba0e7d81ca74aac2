"""Instants as people say them, `tomorrow 09:00` or `in 2h`; what is sent on says its offset.

A date without an offset stays refused, as everywhere: in a script it would mean something else on another
machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from timewright.core.moments import DAY, parse_duration, spell_instant
from timewright.doors.cli.fields import options_of
from timewright.doors.cli.times import local_zone
from timewright.errors import TimewrightError
from timewright.operations import Operation

LONGEST = 64

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_WORDS = re.compile(r"(?:(?P<day>[a-z]+)(?: +at +| +|$))?(?P<clock>[0-9:]*)")
_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NEAR = {"yesterday": -1, "today": 0, "tomorrow": 1}


def instants_said(operation: Operation[Any], request: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
    """The same request with every instant that was said in words as the operations read it."""
    read = dict(request)
    for field in options_of(operation):
        text = read.get(field.key)
        # A time of day alone is looked up by explain itself, as finely as it was said.
        of_explain = operation.name == "schedule explain" and _CLOCK.match(str(text)) is not None
        if field.metavar == "INSTANT" and isinstance(text, str) and not of_explain:
            said = instant_said(text, now=now, zone=local_zone(now))
            read[field.key] = spell_instant(said) if said is not None else text
    return read


def instant_said(text: str, *, now: datetime, zone: tzinfo) -> datetime | None:
    """What words mean here and now; nothing if they are no such words."""
    plain = " ".join(text.lower().split()) if len(text) <= LONGEST else ""
    return _from_now(plain, now=now) or _on_a_day(plain, now=now, zone=zone)


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
    """Days and weeks written out, which from now on are as long as any."""
    return re.sub(r"(?<=[0-9]) *(d)ays?\b|(?<=[0-9]) *(w)eeks?\b", lambda found: found[1] or found[2], text)


def _on_a_day(text: str, *, now: datetime, zone: tzinfo) -> datetime | None:
    """`tomorrow 09:00`, `fri 17:30`, `tomorrow`; a time alone is today's."""
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
    """The day that is meant; a weekday is the next one, and never today."""
    if word in _NEAR:
        return today + timedelta(days=_NEAR[word])
    weekday = next((i for i, name in enumerate(_NAMES) if len(word) >= 3 and name.startswith(word)), None)
    return None if weekday is None else today + DAY * ((weekday - today.weekday() - 1) % 7 + 1)
