"""Parses phrases for calendars: `except holidays` as a rule, `mon-fri 09:00-17:00` as weekly hours."""

from __future__ import annotations

import re
from typing import Any

from timewright.core.input.input_errors import input_error

_RULE = re.compile(r"(only|except|without)\s+(\S.*)", re.IGNORECASE)
MAX_RULE_LENGTH = 1_024
MAX_HOURS_LENGTH = 200
_TIME = "[0-9]{1,2}:[0-9]{2}"
_HOURS = re.compile(
    rf"\s*(?P<days>[a-z][a-z, -]*?)(?:\s+(?P<start>{_TIME})\s*(?:-|to)\s*(?P<end>{_TIME}))?\s*", re.IGNORECASE
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SETS = {"daily": (0, 6), "weekdays": (0, 4), "weekday": (0, 4), "weekend": (5, 6), "weekends": (5, 6)}


def parse_rule_phrase(text: str, path: str) -> dict[str, Any]:
    """Parse a calendar rule: `only office` or `except holidays, quiet`."""
    found = _RULE.fullmatch(text.strip()) if len(text) <= MAX_RULE_LENGTH else None
    if found is None:
        rule = (
            f"only or except, and the names of calendars, at most {MAX_RULE_LENGTH} characters; or a mapping"
        )
        raise input_error(
            path, text, "is not a calendar rule", rule=rule, fix="except holidays, or {except: [holidays]}"
        )
    word = "only" if found[1].lower() == "only" else "except"
    return {word: [name.strip() for name in found[2].split(",") if name.strip()]}


def parse_hours_phrase(text: str, path: str) -> dict[str, Any]:
    """Parse weekly hours: `mon-fri 09:00-17:00`; without hours, the whole day."""
    found = _HOURS.fullmatch(text) if len(text) <= MAX_HOURS_LENGTH else None
    days = _days(found["days"].lower()) if found is not None else None
    if found is None or not days:
        rule = "days, then start-end; days are mon, mon-fri, sat, sun, weekdays, weekend or daily"
        raise input_error(
            path, text, "is not a phrase for weekly hours", rule=rule, fix="mon-fri 09:00-17:00"
        )
    hours = {"start": f"{found['start']:0>5}", "end": f"{found['end']:0>5}"} if found["start"] else {}
    return {"days": days, **hours}


def _days(text: str) -> list[int] | None:
    days: list[int] = []
    for part in filter(None, re.split(r"[\s,]+", re.sub(r"\s*-\s*", "-", text))):
        first, _, last = part.partition("-")
        begins, ends = _day(first), _day(last or first)
        if part in _SETS:
            begins, ends = _SETS[part]
        if begins is None or ends is None:
            return None
        days += [(begins + step) % 7 for step in range((ends - begins) % 7 + 1)]
    return days


def _day(word: str) -> int | None:
    return next((i for i, name in enumerate(_DAYS) if word in (name, name[:3])), None)
