"""Parses calendar phrases into recurrence rules: `2 weeks on mon at 09:00 Europe/Berlin`."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from timewright.core.recurrence.rrule.grammar import WEEKDAYS, rule_error
from timewright.errors import InvalidInput

MAX_PHRASE_LENGTH = 200

_PHRASE_START = re.compile(r"\s*(?:[0-9]{1,4}\s*|other\s+)?(?:day|week|month|year)s?(?![\w/])", re.IGNORECASE)
# Weekday names alone mean every week: `every mon, fri at 09:00`.
_WEEKDAY_PHRASE = re.compile(
    r"\s*(?P<days>(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:days?)?(?:\s*,\s*|\s+and\s+|(?![a-z])))+"
    r"|weekdays?(?![a-z])|weekends?(?![a-z]))(?P<rest>.*)",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"\s*(?P<many>[0-9]{1,4}|other)?\s*(?P<unit>day|week|month|year)s?"
    r"(?:\s+on\s+(?P<on>[a-z0-9 ,]+?))?"
    r"(?:\s+at\s+(?P<at>[0-9:, amp]+?))?"
    r"(?:\s+or\s+(?P<short>skip|(?:the\s+)?last\s+day))?"
    r"(?:\s+(?:in\s+)?(?P<zone>utc|[a-z_]+/[a-z0-9_+/-]+))?\s*",
    re.IGNORECASE,
)
_FREQUENCIES = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ORDINALS = {
    **dict.fromkeys(("1st", "first"), 1),
    **dict.fromkeys(("2nd", "second"), 2),
    **dict.fromkeys(("3rd", "third"), 3),
    **dict.fromkeys(("4th", "fourth"), 4),
    **dict.fromkeys(("5th", "fifth"), 5),
    "last": -1,
}
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_HALF_DAY = re.compile(r"(0?[1-9]|1[0-2])(?::([0-5][0-9]))? ?([ap])m(?![a-z])", re.IGNORECASE)
_RULE = "N days, weeks, months or years; then: on DAYS, at TIMES, or skip, ZONE"
_FIX = "2 weeks on mon at 09:00 Europe/Berlin, or 3 months on 31 at 18:00"


def is_calendar_phrase(text: str) -> bool:
    """Whether a text is a calendar phrase (days, weeks, months or years) rather than a duration."""
    return len(text) <= MAX_PHRASE_LENGTH and _PHRASE_START.match(_expand_weekdays(text)) is not None


def parse_calendar_phrase(text: str) -> dict[str, Any]:
    """Return the fields of the recurrence rule that a calendar phrase means."""
    found = _PHRASE.fullmatch(_expand_weekdays(text))
    if found is None:
        raise _phrase_error(text, "is not a calendar interval", rule=_RULE, fix=_FIX)
    unit, many = found["unit"].lower(), (found["many"] or "1").lower()
    parts = [f"FREQ={_FREQUENCIES[unit]}"]
    if many not in ("1", "01"):
        parts.append(f"INTERVAL={2 if many == 'other' else many}")
    days = _days(found["on"] or "", text)
    parts += [f"{name}={','.join(values)}" for name, values in days.items() if values]
    parts += _times(found["at"], text)
    skips = (found["short"] or "").lower() == "skip"
    longest = max((int(day) for day in days["BYMONTHDAY"]), default=0)
    if unit in ("month", "year") and longest > 28 and not skips:
        # The 31st of every month means the last day in shorter months.
        parts.append("SKIP=BACKWARD")
    zone = found["zone"] if (found["zone"] or "").lower() != "utc" else "UTC"
    return {"rule": ";".join(parts), **({"zone": zone} if zone else {})}


def _expand_weekdays(text: str) -> str:
    """Rewrite `mon, fri at 09:00` as `week on mon, fri at 09:00`; return other text unchanged."""
    named = _WEEKDAY_PHRASE.fullmatch(text) if len(text) <= MAX_PHRASE_LENGTH else None
    if named is None:
        return text
    days = named["days"].strip().lower()
    if days.startswith("week"):
        days = "sat, sun" if days.startswith("weekend") else "mon, tue, wed, thu, fri"
    short = re.sub(r"([a-z]{3})[a-z]*", lambda day: "and" if day[0] == "and" else day[1], days)
    return f"week on {short.rstrip(', ')}{named['rest'] and ' '}{named['rest'].lstrip()}"


def _days(text: str, phrase: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"BYMONTH": [], "BYMONTHDAY": [], "BYDAY": []}
    ordinal: int | None = None
    for word in text.lower().replace(",", " ").split():
        if word in ("and", "the", "day"):
            if word == "day" and ordinal is not None:
                found["BYMONTHDAY"].append(str(ordinal))
                ordinal = None
        elif word in _ORDINALS and ordinal is None:
            ordinal = _ORDINALS[word]
        elif (weekday := _name_index(word, _DAY_NAMES)) is not None:
            found["BYDAY"].append(f"{'' if ordinal is None else ordinal}{WEEKDAYS[weekday]}")
            ordinal = None
        elif ordinal is None and (month := _name_index(word, _MONTH_NAMES)) is not None:
            found["BYMONTH"].append(str(month + 1))
        elif ordinal is None and word.isascii() and word.isdigit() and 1 <= int(word[:3]) <= 31:
            found["BYMONTHDAY"].append(str(int(word)))
        else:
            rule = "weekdays (mon), days of the month (31), last day, 2nd tue, or a month (25 dec)"
            raise _phrase_error(phrase, f"has {word!r} among its days", rule=rule, fix=_FIX)
    if ordinal is not None:
        raise _phrase_error(phrase, "ends before its day", rule="2nd tue, last fri, last day", fix=_FIX)
    return found


def _name_index(word: str, names: tuple[str, ...]) -> int | None:
    """Return the index of a day or month by its name or its first three letters, or None."""
    near = [i for i, name in enumerate(names) if len(word) >= 3 and word[:3] == name[:3]]
    return near[0] if near and (len(word) == 3 or names is _MONTH_NAMES or word == names[near[0]]) else None


def _times(text: str | None, phrase: str) -> list[str]:
    if text is None:
        return []
    in_24_hours = _HALF_DAY.sub(_to_24_hours, text)
    found = [_CLOCK.fullmatch(one) for one in in_24_hours.replace(",", " ").split()]
    if not found or not all(found):
        raise _phrase_error(phrase, "has an invalid time", rule="HH:MM, HH:MM:SS or 9am", fix="at 09:00")
    times = {tuple(int(part or 0) for part in one.groups()) for one in found if one is not None}
    each = [sorted({time[at] for time in times}) for at in range(3)]
    if len(times) != len(list(product(*each))):
        rule = "several times a day must have the same minutes, or the same hours"
        raise _phrase_error(
            phrase, "has times that one rule cannot express", rule=rule, fix="a list of two triggers"
        )
    names = ("BYHOUR", "BYMINUTE", "BYSECOND")
    return [f"{name}={','.join(map(str, values))}" for name, values in zip(names, each, strict=True)]


def _to_24_hours(time: re.Match[str]) -> str:
    """Convert `9am` to `9:00`, `12:30am` to `0:30`."""
    return f"{int(time[1]) % 12 + (12 if time[3].lower() == 'p' else 0)}:{time[2] or '00'}"


def _phrase_error(text: str, why: str, *, rule: str, fix: str) -> InvalidInput:
    return rule_error(text, why, rule=rule, fix=fix, field="every")
