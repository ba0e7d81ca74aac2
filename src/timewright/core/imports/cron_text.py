"""Rewrites times of other schedulers as cron expressions: cron fields, and calendar events of systemd."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import timedelta

from timewright.core.imports.report import Entry
from timewright.core.recurrence import words
from timewright.core.recurrence.cron import Cron
from timewright.core.zones import check_zone
from timewright.errors import TimewrightError

_SINGLE_WITH_STEP = re.compile(r"(\d+)/(\d+)")
# The last value of minute, hour, day, month and weekday.
_LAST = (59, 23, 31, 12, 6)
# Monday is 0.
WEEKDAYS = tuple(name[:3].lower() for name in words.WEEKDAYS)
SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "biannually": "*-01,07-01 00:00:00",
    "bi-annually": "*-01,07-01 00:00:00",
    "semi-annually": "*-01,07-01 00:00:00",
}
_DAY_NAMES = frozenset({*WEEKDAYS, *(name.lower() for name in words.WEEKDAYS)})
_WEEKDAYS = re.compile(r"[a-z]+(?:(?:,|\.\.|-)[a-z]+)*,?", re.IGNORECASE)
_PART = re.compile(r"(\*|\d+(?:\.\d+)?)(?:\.\.(\d+(?:\.\d+)?))?(?:/(\d+(?:\.\d+)?))?")
_DATE = re.compile(r"(?:([^-~]+)-)?([^-~]+)([-~])([^-~]+)")
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµμ]*)", re.IGNORECASE)
# Units as systemd reads them; a month and a year have their mean length.
_UNITS = {
    ("", "s", "sec", "second", "seconds"): 1.0,
    ("us", "usec", "µs", "μs"): 1e-6,
    ("ms", "msec"): 1e-3,
    ("m", "min", "minute", "minutes"): 60.0,
    ("h", "hr", "hour", "hours"): 3600.0,
    ("d", "day", "days"): 86_400.0,
    ("w", "week", "weeks"): 604_800.0,
    ("month", "months"): 2_629_800.0,
    ("y", "year", "years"): 31_557_600.0,
}


def normalize_fields(fields: Sequence[str], *, and_days: bool) -> tuple[str, list[str]]:
    """Return five cron fields as an expression of ours, and notes on what was rewritten.

    `and_days`: both day fields must match where both are restricted; ours match if either does.
    """
    notes: list[str] = []
    found = []
    for text, last in zip(fields, _LAST, strict=True):
        plain = text.replace("?", "*") if text == "?" else text
        ranged = ",".join(_with_end(part, last) for part in plain.split(","))
        if ranged != plain:
            notes.append(f"{text} means {ranged}")
        hashed = _hash_ranges(ranged)
        if hashed != ranged:
            notes.append(f"{text} is random; {hashed} is a fixed choice in the same range")
        found.append(hashed)
    if and_days and found[2] != "*" and found[4] != "*":
        found[4] = f"+{found[4]}"
        notes.append("both day fields must match, which a leading + in the weekday says")
    return " ".join(found), notes


def add_cron(entry: Entry, field: str, text: str, *, zone: str, and_days: bool, dst: str = "") -> str:
    """Add a cron trigger to an entry; return why the text is invalid, "" if it is valid.

    With a text that cron accepts, but that never fires, the entry is lost.
    """
    fields = text.split()
    expression, notes = normalize_fields(fields, and_days=and_days) if len(fields) == 5 else (text, [])
    problem = cron_problem(expression, zone=zone)
    if problem.endswith("never fires"):
        entry.drop_entry(field, text, problem)
        return ""
    if not problem:
        trigger = {"kind": "cron", "expression": expression, "zone": zone} | ({"dst": dst} if dst else {})
        report = entry.add_translated if notes else entry.add_kept
        report(field, text, "; ".join(notes), trigger=trigger)
    return problem


def weekday_names(numbers: Collection[int]) -> str:
    """Return weekdays as a cron field; Monday is 0."""
    days = sorted(set(numbers))
    if len(days) == 7:
        return "*"
    names = [WEEKDAYS[day].upper() for day in days]
    is_range = len(days) > 2 and days[-1] - days[0] == len(days) - 1 and days[-1] < 6
    return f"{names[0]}-{names[-1]}" if is_range else ",".join(names)


def cron_problem(expression: str, *, zone: str = "UTC") -> str:
    """Return why an expression or zone is invalid; "" if it is valid."""
    try:
        Cron(expression, zone=zone, key="import")
    except TimewrightError as error:
        return error.message
    return ""


def _with_end(part: str, last: int) -> str:
    """Write `5/10` as `5-59/10`."""
    match = _SINGLE_WITH_STEP.fullmatch(part)
    return f"{match[1]}-{last}/{match[2]}" if match else part


def _hash_ranges(text: str) -> str:
    """Write the random range `a~b` of cronie as `H(a-b)`; a bare `~` as `H`."""
    return ",".join(
        ("H" if part == "~" else f"H({part.replace('~', '-')})") if "~" in part else part
        for part in text.split(",")
    )


class NotTranslatable(ValueError):
    """An expression that is wrong, or that no cron expression can say."""


def calendar_to_cron(text: str) -> tuple[str, str | None]:
    """Return a calendar event as a cron expression with seconds and year, and the zone it names."""
    words = text.split()
    zone = None
    if (len(words) > 1 and not re.search(r"\d|\*", words[-1]) and not _is_weekdays(words[-1])) or (
        len(words) > 1 and "/" in words[-1] and words[-1][0].isalpha()
    ):
        zone = words.pop()
    if zone is not None:
        try:
            check_zone(zone)
        except TimewrightError:
            raise NotTranslatable(f"{zone} is not a time zone") from None
    if len(words) == 1 and words[0].lower() in SHORTHANDS:
        words = SHORTHANDS[words[0].lower()].split()
    weekdays = _weekdays(words.pop(0)) if words and _is_weekdays(words[0]) else "*"
    if len(words) > 2 or not (words or weekdays != "*"):
        raise NotTranslatable("not a weekday, a date and a time")
    date = words.pop(0) if words and ":" not in words[0] else "*-*-*"
    year, month, day = _date(date)
    hour, minute, second = _time(words.pop(0) if words else "00:00:00")
    if words:
        raise NotTranslatable("not a weekday, a date and a time")
    both = day != "*" and weekdays != "*"
    fields = [second, minute, hour, day, month, f"+{weekdays}" if both else weekdays]
    return " ".join([*fields, year] if year != "*" else fields if second != "0" else fields[1:]), zone


def span_seconds(text: str) -> float | None:
    """Return a time span such as `1h 30min` in seconds; None for `infinity`."""
    if text.strip() == "infinity":
        return None
    position, total = 0, 0.0
    while position < len(text.rstrip()):
        match = _SPAN.match(text, position)
        unit = match[2] if match is not None else ""
        # `M` alone is a month, `m` a minute.
        scale = 2_629_800.0 if unit == "M" else _scale(unit)
        if match is None or scale is None:
            raise NotTranslatable(f"{text!r} is not a time span")
        total += float(match[1]) * scale
        position = match.end()
    if not text.strip() or timedelta(seconds=total) > timedelta(days=36_500):
        raise NotTranslatable(f"{text!r} is not a time span")
    return total


def _scale(unit: str) -> float | None:
    return next((scale for names, scale in _UNITS.items() if unit.lower() in names), None)


def _is_weekdays(word: str) -> bool:
    names = re.split(r",|\.\.|-", word.lower().rstrip(","))
    return _WEEKDAYS.fullmatch(word) is not None and all(name in _DAY_NAMES for name in names)


def _weekdays(word: str) -> str:
    days: set[int] = set()
    for part in word.lower().rstrip(",").split(","):
        ends = [WEEKDAYS.index(name[:3]) for name in re.split(r"\.\.|-", part)]
        days |= {(ends[0] + step) % 7 for step in range((ends[-1] - ends[0]) % 7 + 1)}
    return weekday_names(days)


def _date(text: str) -> tuple[str, str, str]:
    match = _DATE.fullmatch(text)
    if match is None:
        raise NotTranslatable(f"{text} is not a date")
    year, month, mark, day = match.groups()
    if mark == "~":
        return _numbers(year or "*", 2200), _numbers(month, 12), _from_end(day)
    return _numbers(year or "*", 2200), _numbers(month, 12), _numbers(day, 31)


def _from_end(text: str) -> str:
    """Return days counted from the end of the month: `~01` is the last, `~07/1` each of the last seven."""
    days: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or match[1] == "*":
            raise NotTranslatable(f"~{text} is not a day from the end of the month")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 0)
        days |= set(range(first, 0, -step)) if step else set(range(min(first, last), max(first, last) + 1))
    return ",".join("L" if day == 1 else f"L-{day - 1}" for day in sorted(days, reverse=True))


def _time(text: str) -> tuple[str, str, str]:
    parts = text.split(":")
    if not 2 <= len(parts) <= 3:
        raise NotTranslatable(f"{text} is not a time")
    second = parts[2] if len(parts) == 3 else "0"
    return _numbers(parts[0], 23), _numbers(parts[1], 59), _numbers(second, 59)


def _numbers(text: str, last: int) -> str:
    """Return one component as a cron field: `0/15` becomes `0-59/15`, `1..5` becomes `1-5`."""
    found = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise NotTranslatable(f"{text} is not a number, a range or *")
        if "." in part.replace("..", ""):
            raise NotTranslatable("fractions of a second have no cron expression")
        first = match[1] if match[1] == "*" else str(int(match[1]))
        end, step = match[2], match[3]
        if step and not end:
            first = "*" if first == "*" or (first == "0" and last < 100) else f"{first}-{last}"
        found.append(f"{first}{f'-{int(end)}' if end else ''}{f'/{int(step)}' if step else ''}")
    return "*" if "*" in found else ",".join(found)
