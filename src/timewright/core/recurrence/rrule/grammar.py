"""Parses recurrence rules (RFC 5545); unsupported parts are refused by name."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeAlias, cast, get_args

from msgspec import Struct

from timewright.errors import InvalidInput

Frequency: TypeAlias = Literal["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]

MAX_RULE_LENGTH = 1_000
MAX_COUNT = 1_000
MAX_INTERVAL = 1_000
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

_PARTS = (
    "FREQ, INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY, BYDAY, BYHOUR, BYMINUTE, BYSECOND, "
    "BYSETPOS, WKST, SKIP"
)
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,5}")
_UNTIL = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_FREQUENCY_ALTERNATIVES = {
    "SECONDLY": "every: 30s",
    "MINUTELY": "every: 15m, or cron: '*/15 * * * *'",
    "HOURLY": "every: 6h, or FREQ=DAILY;BYHOUR=0,6,12,18",
}
_UNSUPPORTED_PARTS = {
    "BYWEEKNO": "BYMONTH and BYDAY",
    "BYYEARDAY": "BYMONTH and BYMONTHDAY",
    "BYEASTER": "a calendar of dates",
    "RSCALE": "leave it out: the calendar is the Gregorian one",
    "DTSTART": "anchor: '2026-03-10T09:00:00+01:00', and zone",
}


class Weekday(Struct, frozen=True):
    """A weekday (0 is Monday); `nth` of its month or year, from the end if negative."""

    day: int
    nth: int = 0


class Until(Struct, frozen=True):
    """The last local time of the rule; in UTC, or in the rule's zone."""

    reading: datetime
    utc: bool


class RecurrenceRule(Struct, frozen=True, kw_only=True):
    """A parsed recurrence rule; empty fields are taken from the anchor."""

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
def parse_rule(text: str) -> RecurrenceRule:
    """Parse a rule; case and a leading `RRULE:` do not matter."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_RULE_LENGTH or not text.isascii():
        raise rule_error(str(text)[:60], "is not a rule", rule=f"ASCII, up to {MAX_RULE_LENGTH} characters")
    given = _parts(text.strip().upper().removeprefix("RRULE:"))
    rule = RecurrenceRule(
        frequency=_frequency(given),
        interval=_single_number(given, "INTERVAL", MAX_INTERVAL) or 1,
        count=_single_number(given, "COUNT", MAX_COUNT),
        until=_until(given.get("UNTIL")),
        months=_numbers(given, "BYMONTH", 1, 12),
        month_days=_numbers(given, "BYMONTHDAY", -31, 31),
        weekdays=_weekdays(given.get("BYDAY")),
        hours=_numbers(given, "BYHOUR", 0, 23),
        minutes=_numbers(given, "BYMINUTE", 0, 59),
        seconds=_numbers(given, "BYSECOND", 0, 59),
        positions=_numbers(given, "BYSETPOS", -366, 366),
        week_start=_week_start(given.get("WKST", "MO")),
        clamped=_is_clamped(given.get("SKIP", "OMIT")),
    )
    _check_combinations(rule)
    return rule


def rule_error(value: object, why: str, *, rule: str, fix: str = "FREQ=MONTHLY;BYDAY=2TU") -> InvalidInput:
    """Return the error for a rule or a part of one."""
    shown = str(value)[:80]
    return InvalidInput(f"rule {shown!a} {why}", field="rule", value=shown, rule=rule, fix=fix)


def _parts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.rstrip(";").split(";"):
        name, equals, value = part.strip().partition("=")
        if name in _UNSUPPORTED_PARTS or name.partition(":")[0] in _UNSUPPORTED_PARTS:
            name = name.partition(":")[0]
            raise rule_error(
                name, "is not supported", rule=f"the parts are {_PARTS}", fix=_UNSUPPORTED_PARTS[name]
            )
        if not equals or not value or name not in _PARTS.split(", "):
            raise rule_error(part, "is not a part of a rule", rule=f"NAME=VALUE, with {_PARTS}")
        if name in found:
            raise rule_error(name, "is given twice", rule="every part at most once", fix="remove one of them")
        found[name] = value
    if {"COUNT", "UNTIL"} <= set(found):
        raise rule_error(
            "COUNT", "cannot be combined with UNTIL", rule="only one of the two", fix="remove one of them"
        )
    return found


def _frequency(given: dict[str, str]) -> Frequency:
    word = given.get("FREQ", "")
    if word not in get_args(Frequency):
        listed = ", ".join(get_args(Frequency))
        fix = _FREQUENCY_ALTERNATIVES.get(word, "FREQ=WEEKLY;BYDAY=MO")
        raise rule_error(word, "is not a supported frequency", rule=f"FREQ is one of {listed}", fix=fix)
    return cast("Frequency", word)


def _single_number(given: dict[str, str], name: str, high: int) -> int | None:
    return _number(given[name], name, 1, high) if name in given else None


def _numbers(given: dict[str, str], name: str, low: int, high: int) -> tuple[int, ...]:
    texts = given[name].split(",") if name in given else ()
    return tuple(sorted({_number(text, name, low, high) for text in texts}))


def _number(text: str, name: str, low: int, high: int) -> int:
    found = int(text) if _NUMBER.fullmatch(text) else high + 1
    # Where negative numbers count from the end, 0 is invalid.
    if not low <= found <= high or (low < 0 and found == 0):
        rule_text = f"{name} is {low} to {high}" + (", without 0" if low < 0 else "")
        raise rule_error(f"{name}={text}", "is out of range", rule=rule_text, fix=f"{name}={max(low, 1)}")
    return found


def _weekdays(text: str | None) -> tuple[Weekday, ...]:
    found: set[Weekday] = set()
    for one in text.split(",") if text is not None else ():
        match = _WEEKDAY.fullmatch(one)
        nth = int(match[1]) if match and match[1] else 0
        if match is None or (match[1] and not 1 <= abs(nth) <= 53):
            rule_text = f"{', '.join(WEEKDAYS)}, with an optional number from 1 to 53 or -53 to -1 before it"
            raise rule_error(f"BYDAY={one}", "is not a weekday", rule=rule_text, fix="BYDAY=MO, 2TU or -1FR")
        found.add(Weekday(WEEKDAYS.index(match[2]), nth))
    return tuple(sorted(found, key=lambda one: (one.nth, one.day)))


def _week_start(text: str) -> int:
    if text not in WEEKDAYS:
        raise rule_error(f"WKST={text}", "is not a weekday", rule=", ".join(WEEKDAYS), fix="WKST=MO")
    return WEEKDAYS.index(text)


def _is_clamped(text: str) -> bool:
    if text not in ("OMIT", "BACKWARD"):
        raise rule_error(
            f"SKIP={text}",
            "is not supported",
            rule="SKIP is OMIT (drop a day that the month lacks) or BACKWARD (use the last day)",
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
        # A date without a time includes the whole day.
        reading = datetime.strptime(match[1] + (match[2] or "235959"), "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError:
        rule_text = "UNTIL is a date or a local time; a trailing Z means UTC"
        fix = "UNTIL=20261231 or UNTIL=20261231T180000Z"
        raise rule_error(f"UNTIL={text}", "is not a time", rule=rule_text, fix=fix) from None
    return Until(reading, utc=bool(match[3]))


def _check_combinations(rule: RecurrenceRule) -> None:
    """Refuse parts that cannot be combined."""
    by_month = rule.frequency in ("MONTHLY", "YEARLY")
    if any(one.nth for one in rule.weekdays) and not by_month:
        raise rule_error("BYDAY", "has a number", rule="2TU needs FREQ=MONTHLY or YEARLY", fix="BYDAY=TU")
    if rule.month_days and rule.frequency == "WEEKLY":
        fix = "FREQ=DAILY;BYDAY=…;BYMONTHDAY=…"
        raise rule_error(
            "BYMONTHDAY",
            "cannot be combined with FREQ=WEEKLY",
            rule="BYMONTHDAY needs another frequency",
            fix=fix,
        )
    if rule.clamped and not by_month:
        raise rule_error("SKIP", "needs months", rule="SKIP needs FREQ=MONTHLY or YEARLY", fix="leave it out")
    if rule.positions:
        if not by_month or not (rule.month_days or rule.weekdays or rule.months):
            rule_text = "BYSETPOS selects from BYDAY, BYMONTHDAY or BYMONTH of a month or a year"
            fix = "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"
            raise rule_error("BYSETPOS", "has nothing to select from", rule=rule_text, fix=fix)
        if max(len(rule.hours), len(rule.minutes), len(rule.seconds)) > 1:
            rule_text = "BYSETPOS selects days; it allows one time per day"
            raise rule_error(
                "BYSETPOS", "cannot be combined with several times", rule=rule_text, fix="BYHOUR=9;BYMINUTE=0"
            )
