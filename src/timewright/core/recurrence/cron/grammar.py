"""Parses cron expressions: five fields, six with seconds first, seven with the year last.

    field    * · value · a-b · */n · a-b/n · lists of these · names of months and weekdays
    day      L · L-n · LW · nW · ? alone                     weekday  n#k · nL · ? alone · + in front: AND
    hashed   H · H/n · H(a-b) · H(a-b)/n, spread by a stable key, in every field but the year

Parsing only splits the text, so it takes linear time in at most 256 characters.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from timewright.core.recurrence.cron.days import DayRule, MonthDays, WeekDays, matching_days
from timewright.core.recurrence.cron.fields import (
    DAY,
    FIELDS,
    MAX_EXPRESSION_LENGTH,
    MONTH,
    NICKNAMES,
    WEEKDAY,
    YEAR,
    CronField,
    UnparsedItem,
    parse_number,
    parse_value,
    step_bits,
)
from timewright.core.recurrence.cron.parse_errors import parse_error

# `H` in the day field uses only days that every month has.
_LAST_HASHED_DAY = 28


class CronExpression(NamedTuple):
    """A parsed cron expression: sets of values, and the text of the seven fields."""

    fields: tuple[str, ...]
    seconds: int
    minutes: int
    hours: int
    rule: DayRule
    years: int | None
    is_interval: bool

    @property
    def every_day(self) -> bool:
        """Whether the expression matches every day."""
        rule = self.rule
        unset = rule.month_days is None and rule.week_days is None and self.years is None
        return unset and rule.months == MONTH.every

    @property
    def is_wall_clock(self) -> bool:
        """Whether the hour or the day matters, so that the zone does too."""
        return not self.every_day or self.hours != FIELDS[2].every

    @property
    def can_fire(self) -> bool:
        """Whether at least one day from 1970 to 9999 matches."""
        return self.every_day or bool(matching_days(self.rule, self.years).years)


def parse(text: str, key: str | None = None) -> CronExpression:
    """Parse an expression, or raise InvalidCron with a correction."""
    try:
        return _read(text, key)
    except UnparsedItem as unparsed:
        raise parse_error(
            text, unparsed, key=key, is_valid=lambda other: is_valid(other, key or "any")
        ) from None


def is_valid(text: str, key: str | None = None) -> bool:
    """Whether a text is a valid expression that fires at least once."""
    try:
        return _read(text, key).can_fire
    except UnparsedItem:
        return False


def needs_key(text: str) -> bool:
    """Whether a text uses `H`, which needs a stable key such as the schedule id."""
    return not is_valid(text) and is_valid(text, "any")


@lru_cache(maxsize=1024)
def _read(text: str, key: str | None) -> CronExpression:
    fields = _split(text)
    second, minute, hour, day, month, weekday, year = fields
    seconds, minutes, hours = _set(0, second, key), _set(1, minute, key), _set(2, hour, key)
    rule = DayRule(
        months=_set(4, month, key),
        month_days=None if day in ("*", "?") else _month_days(day, key),
        week_days=None if weekday in ("*", "?", "+*") else _week_days(weekday.removeprefix("+"), key),
        both=weekday.startswith("+"),
    )
    return CronExpression(
        fields=fields,
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        rule=rule,
        years=None if year == "*" else _set(6, year, key),
        is_interval=_is_interval_field(0, second, seconds)
        or _is_interval_field(1, minute, minutes)
        or _is_interval_field(2, hour, hours),
    )


def _split(text: str) -> tuple[str, ...]:
    """Split into seven fields; missing seconds are 0 and a missing year is `*`."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise UnparsedItem
    plain = text.replace("\t", " ")
    if not plain.isascii() or not plain.isprintable():
        raise UnparsedItem
    written = tuple(plain.upper().split())
    if len(written) == 1:
        written = tuple(NICKNAMES.get(written[0], "").split())
    if not 5 <= len(written) <= 7:
        raise UnparsedItem
    seconds = ("0",) if len(written) == 5 else ()
    year = ("*",) if len(written) < 7 else ()
    return seconds + written + year


def _is_interval_field(position: int, text: str, bits: int) -> bool:
    """Whether a time field makes the expression an interval: it begins with a wildcard or has every value."""
    return text.startswith(("*", "H/")) or bits == FIELDS[position].every


def _set(position: int, text: str, key: str | None) -> int:
    bits = 0
    for item in text.split(","):
        found = _values(FIELDS[position], item, key)
        if not found:
            raise UnparsedItem(position, item)
        bits |= found
    return bits


def _month_days(text: str, key: str | None) -> MonthDays:
    found = MonthDays()
    for item in text.split(","):
        days, back, near = _values(DAY, item, key), _before_last(item), _nearest(item)
        if not (days or back or near or item == "LW"):
            raise UnparsedItem(3, item)
        found = MonthDays(
            found.days | days,
            found.before_last | back,
            found.nearest | near,
            found.last_working or item == "LW",
        )
    return found


def _week_days(text: str, key: str | None) -> WeekDays:
    found = WeekDays()
    for item in text.split(","):
        weekdays, nth, last = _values(WEEKDAY, item, key), _nth(item), _last(item)
        if not (weekdays or nth or last):
            raise UnparsedItem(5, item)
        found = WeekDays(found.weekdays | weekdays, found.nth | nth, found.last | last)
    return found


# Each function below returns the set of values of an item, or the empty set if the item has another form.


def _values(field: CronField, item: str, key: str | None) -> int:
    """Parse `*`, `a`, `a-b`, `H`, and steps of all but `a`."""
    head, slash, tail = item.partition("/")
    step = parse_number(tail) if slash else 1
    if step < 1:
        return 0
    if head == "*":
        return step_bits(field.low, field.high, step)
    if head[:1] == "H":
        return _hashed(field, head, step if slash else None, key)
    if "-" in head:
        low, high = _range_ends(field, head)
        return _fold_sunday(field, step_bits(low, high, step)) if 0 <= low <= high else 0
    return 0 if slash else _one(field, head)


def _one(field: CronField, text: str) -> int:
    """Parse a single value or name."""
    found = parse_value(field, text)
    return _fold_sunday(field, 1 << found) if found >= 0 else 0


def _range_ends(field: CronField, text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    low, high = parse_value(field, first), parse_value(field, last)
    # A week may end on Sunday: MON-SUN is 1-7.
    return low, 7 if field is WEEKDAY and last == "SUN" and low > 0 else high


def _hashed(field: CronField, head: str, step: int | None, key: str | None) -> int:
    """Parse `H` and `H(a-b)`: one value or every step-th, chosen by a hash of key and field."""
    if key is None or field is YEAR:
        return 0
    low, high = field.low, _LAST_HASHED_DAY if field is DAY else field.high
    if head != "H":
        low, high = _range_ends(field, head[2:-1]) if head[1:2] == "(" and head[-1:] == ")" else (-1, -1)
    if not 0 <= low <= high or (step or 1) > high - low + 1:
        return 0
    digest = blake2b(f"{key}\0{field.name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    hash_value = int.from_bytes(digest, "big")
    if step is None:
        return _fold_sunday(field, 1 << low + hash_value % (high - low + 1))
    return _fold_sunday(field, step_bits(low + hash_value % step, high, step))


def _before_last(item: str) -> int:
    """Parse `L` and `L-n`."""
    if item == "L":
        return 1
    back = parse_number(item[2:]) if item[:2] == "L-" else 0
    return 1 << back if 1 <= back <= 30 else 0


def _nearest(item: str) -> int:
    """Parse `nW`."""
    return _one(DAY, item[:-1]) if item[-1:] == "W" else 0


def _nth(item: str) -> int:
    """Parse `n#k`, as bit 7k + n."""
    weekday, _, which = item.partition("#")
    nth = parse_number(which)
    return _one(WEEKDAY, weekday) << 7 * nth if 1 <= nth <= 5 else 0


def _last(item: str) -> int:
    """Parse `nL`."""
    return _one(WEEKDAY, item[:-1]) if item[-1:] == "L" else 0


def _fold_sunday(field: CronField, bits: int) -> int:
    """Map weekday 7 to 0: both are Sunday."""
    return (bits | bits >> 7) & 0b1111111 if field is WEEKDAY else bits
