"""The text of a recurrence rule (RFC 5545) as a value; what is not kept here is refused by name."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeAlias, cast, get_args

from msgspec import Struct

from timewright.errors import InvalidInput

Frequency: TypeAlias = Literal["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]

LONGEST_RULE = 1_000
MOST_COUNT = 1_000
MOST_INTERVAL = 1_000
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

_PARTS = (
    "FREQ, INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY, BYDAY, BYHOUR, BYMINUTE, BYSECOND, "
    "BYSETPOS, WKST, SKIP"
)
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,5}")
_UNTIL = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_ELSEWHERE = {
    "SECONDLY": "every: 30s",
    "MINUTELY": "every: 15m, or cron: '*/15 * * * *'",
    "HOURLY": "every: 6h, or FREQ=DAILY;BYHOUR=0,6,12,18",
}
_INSTEAD = {
    "BYWEEKNO": "BYMONTH and BYDAY",
    "BYYEARDAY": "BYMONTH and BYMONTHDAY",
    "BYEASTER": "a calendar of dates",
    "RSCALE": "leave it out: the calendar is the Gregorian one",
    "DTSTART": "anchor: '2026-03-10T09:00:00+01:00', and the zone beside it",
}


class Weekday(Struct, frozen=True):
    """A day of the week (0 is Monday); the n-th of its month or year, from the end if below zero."""

    day: int
    nth: int = 0


class Until(Struct, frozen=True):
    """The last reading of the clock that counts; in UTC, or in the rule's zone."""

    reading: datetime
    utc: bool


class Rule(Struct, frozen=True, kw_only=True):
    """One recurrence rule, read; what is empty comes from the anchor."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: Until | None = None
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    weekdays: tuple[Weekday, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0
    clamped: bool = False


@lru_cache(maxsize=1024)
def parse_rule(text: str) -> Rule:
    """Read a rule; case and a leading `RRULE:` do not matter."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_RULE or not text.isascii():
        raise refused(str(text)[:60], "is not a rule", rule=f"ASCII, up to {LONGEST_RULE} characters")
    given = _parts(text.strip().upper().removeprefix("RRULE:"))
    rule = Rule(
        frequency=_frequency(given),
        interval=_one(given, "INTERVAL", 1, MOST_INTERVAL) or 1,
        count=_one(given, "COUNT", 1, MOST_COUNT),
        until=_until(given.get("UNTIL")),
        months=_several(given, "BYMONTH", 1, 12),
        month_days=_several(given, "BYMONTHDAY", -31, 31),
        weekdays=_weekdays(given.get("BYDAY")),
        hours=_several(given, "BYHOUR", 0, 23),
        minutes=_several(given, "BYMINUTE", 0, 59),
        seconds=_several(given, "BYSECOND", 0, 59),
        positions=_several(given, "BYSETPOS", -366, 366),
        week_start=_week_start(given.get("WKST", "MO")),
        clamped=_skip(given.get("SKIP", "OMIT")),
    )
    _check_together(rule)
    return rule


def refused(
    value: object, why: str, *, rule: str, fix: str = "FREQ=MONTHLY;BYDAY=2TU", field: str = "rule"
) -> InvalidInput:
    """A refusal of a rule or a part of one."""
    shown = str(value)[:80]
    return InvalidInput(f"{field} {shown!a} {why}", field=field, value=shown, rule=rule, fix=fix)


def _parts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.rstrip(";").split(";"):
        name, equals, value = part.strip().partition("=")
        if name in _INSTEAD or name.partition(":")[0] in _INSTEAD:
            name = name.partition(":")[0]
            raise refused(name, "is not kept here", rule=f"the parts are {_PARTS}", fix=_INSTEAD[name])
        if not equals or not value or name not in _PARTS.split(", "):
            raise refused(part, "is not a part of a rule", rule=f"NAME=VALUE, with {_PARTS}")
        if name in found:
            raise refused(name, "is there twice", rule="every part once", fix="take one of them out")
        found[name] = value
    if {"COUNT", "UNTIL"} <= set(found):
        raise refused("COUNT", "stands beside UNTIL", rule="one of the two", fix="take one of them out")
    return found


def _frequency(given: dict[str, str]) -> Frequency:
    word = given.get("FREQ", "")
    if word not in get_args(Frequency):
        listed = ", ".join(get_args(Frequency))
        fix = _ELSEWHERE.get(word, "FREQ=WEEKLY;BYDAY=MO")
        raise refused(word, "is not a frequency kept here", rule=f"FREQ is one of {listed}", fix=fix)
    return cast("Frequency", word)


def _one(given: dict[str, str], name: str, low: int, high: int) -> int | None:
    if name not in given:
        return None
    return _number(given[name], name, low, high)


def _several(given: dict[str, str], name: str, low: int, high: int) -> tuple[int, ...]:
    if name not in given:
        return ()
    return tuple(sorted({_number(text, name, low, high) for text in given[name].split(",")}))


def _number(text: str, name: str, low: int, high: int) -> int:
    found = int(text) if _NUMBER.fullmatch(text) else high + 1
    # Where numbers also count from the end, there is no zeroth.
    if not low <= found <= high or (low < 0 and found == 0):
        words = f"{name} is {low} to {high}" + (", without 0" if low < 0 else "")
        raise refused(f"{name}={text}", "is out of range", rule=words, fix=f"{name}={max(low, 1)}")
    return found


def _weekdays(text: str | None) -> tuple[Weekday, ...]:
    found: set[Weekday] = set()
    for one in text.split(",") if text is not None else ():
        match = _WEEKDAY.fullmatch(one)
        nth = int(match[1]) if match and match[1] else 0
        if match is None or (match[1] and not 1 <= abs(nth) <= 53):
            words = f"{', '.join(WEEKDAYS)}, with a number from 1 to 53 or below zero before it"
            raise refused(f"BYDAY={one}", "is not a weekday", rule=words, fix="BYDAY=MO, 2TU or -1FR")
        found.add(Weekday(WEEKDAYS.index(match[2]), nth))
    return tuple(sorted(found, key=lambda one: (one.nth, one.day)))


def _week_start(text: str) -> int:
    if text not in WEEKDAYS:
        raise refused(f"WKST={text}", "is not a weekday", rule=", ".join(WEEKDAYS), fix="WKST=MO")
    return WEEKDAYS.index(text)


def _skip(text: str) -> bool:
    if text not in ("OMIT", "BACKWARD"):
        raise refused(
            f"SKIP={text}",
            "is not kept here",
            rule="SKIP is OMIT (a day the month lacks is left out) or BACKWARD (its last day instead)",
            fix="SKIP=BACKWARD",
        )
    return text == "BACKWARD"


def _until(text: str | None) -> Until | None:
    if text is None:
        return None
    match = _UNTIL.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        # A day alone means all of it.
        reading = datetime.strptime(match[1] + (match[2] or "235959"), "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError:
        words = "UNTIL is a day or a reading of the clock; Z says that it is UTC"
        fix = "UNTIL=20261231 or UNTIL=20261231T180000Z"
        raise refused(f"UNTIL={text}", "is not a time", rule=words, fix=fix) from None
    return Until(reading, utc=bool(match[3]))


def _check_together(rule: Rule) -> None:
    """What each part may stand beside."""
    by_month = rule.frequency in ("MONTHLY", "YEARLY")
    if any(one.nth for one in rule.weekdays) and not by_month:
        raise refused("BYDAY", "has a number", rule="2TU needs FREQ=MONTHLY or YEARLY", fix="BYDAY=TU")
    if rule.month_days and rule.frequency == "WEEKLY":
        fix = "FREQ=DAILY;BYDAY=…;BYMONTHDAY=…"
        raise refused("BYMONTHDAY", "stands beside FREQ=WEEKLY", rule="a week has no such day", fix=fix)
    if rule.clamped and not by_month:
        raise refused("SKIP", "is for months", rule="SKIP needs FREQ=MONTHLY or YEARLY", fix="leave it out")
    if rule.positions:
        if not by_month or not (rule.month_days or rule.weekdays or rule.months):
            words = "BYSETPOS chooses among BYDAY, BYMONTHDAY or BYMONTH of a month or a year"
            fix = "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"
            raise refused("BYSETPOS", "has nothing to choose from", rule=words, fix=fix)
        if max(len(rule.hours), len(rule.minutes), len(rule.seconds)) > 1:
            words = "BYSETPOS chooses among days; a day has one time then"
            raise refused("BYSETPOS", "stands beside several times", rule=words, fix="BYHOUR=9;BYMINUTE=0")
