"""Reads a cron expression: five fields, six with seconds first, seven with the year last.

    field    * · value · a-b · */n · a-b/n · lists of these · names of months and weekdays
    day      L · L-n · LW · nW · ? alone                     weekday  n#k · nL · ? alone · + in front: AND
    hashed   H · H/n · H(a-b) · H(a-b)/n, spread by a stable key, in every field but the year

The text is cut, never searched: the work is linear in at most 256 bytes.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from timewright.core.cron.days import DayRule, MonthDays, WeekDays, matching_days
from timewright.core.cron.fields import (
    DAY,
    FIELDS,
    LONGEST,
    MONTH,
    NICKNAMES,
    WEEKDAY,
    YEAR,
    Field,
    Unfit,
    number,
    stepped,
    value,
)
from timewright.core.cron.refusals import refusal

# Hashed days stay within what every month has.
_LAST_HASHED_DAY = 28


class Expression(NamedTuple):
    """A cron expression as sets of values, with the seven field texts it was read from."""

    fields: tuple[str, ...]
    seconds: int
    minutes: int
    hours: int
    rule: DayRule
    years: int | None
    cadence: bool

    @property
    def every_day(self) -> bool:
        """Whether no field restricts the day."""
        rule = self.rule
        unset = rule.month_days is None and rule.week_days is None and self.years is None
        return unset and rule.months == MONTH.every

    @property
    def can_fire(self) -> bool:
        """Whether at least one day of the calendar matches."""
        return self.every_day or bool(matching_days(self.rule, self.years).years)


def parse(text: str, key: str | None = None) -> Expression:
    """The meaning of an expression; a text outside the grammar is refused with a correction."""
    try:
        return _read(text, key)
    except Unfit as unfit:
        raise refusal(text, unfit, key=key, reads=lambda other: reads(other, key or "any")) from None


def reads(text: str, key: str | None = None) -> bool:
    """Whether a text is an expression of this grammar that fires at least once."""
    try:
        return _read(text, key).can_fire
    except Unfit:
        return False


def needs_key(text: str) -> bool:
    """Whether a text uses `H`, and so wants a stable key such as the id of its schedule."""
    return not reads(text) and reads(text, "any")


@lru_cache(maxsize=1024)
def _read(text: str, key: str | None) -> Expression:
    fields = _split(text)
    second, minute, hour, day, month, weekday, year = fields
    seconds, minutes, hours = _set(0, second, key), _set(1, minute, key), _set(2, hour, key)
    rule = DayRule(
        months=_set(4, month, key),
        month_days=None if day in ("*", "?") else _month_days(day, key),
        week_days=None if weekday in ("*", "?", "+*") else _week_days(weekday.removeprefix("+"), key),
        both=weekday.startswith("+"),
    )
    return Expression(
        fields=fields,
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        rule=rule,
        years=None if year == "*" else _set(6, year, key),
        cadence=_beats(0, second, seconds) or _beats(1, minute, minutes) or _beats(2, hour, hours),
    )


def _split(text: str) -> tuple[str, ...]:
    """The seven fields: seconds are 0 and the year is `*` where they are not written."""
    if len(text) > LONGEST:
        raise Unfit
    plain = text.replace("\t", " ")
    if not plain.isascii() or not plain.isprintable():
        raise Unfit
    written = tuple(plain.upper().split())
    if len(written) == 1:
        written = tuple(NICKNAMES.get(written[0], "").split())
    if not 5 <= len(written) <= 7:
        raise Unfit
    seconds = ("0",) if len(written) == 5 else ()
    year = ("*",) if len(written) < 7 else ()
    return seconds + written + year


def _beats(position: int, text: str, bits: int) -> bool:
    """Whether a time field makes a schedule a cadence: a wildcard in front, or every value of it."""
    return text.startswith(("*", "H/")) or bits == FIELDS[position].every


def _set(position: int, text: str, key: str | None) -> int:
    bits = 0
    for item in text.split(","):
        found = _values(FIELDS[position], item, key)
        if not found:
            raise Unfit(position, item)
        bits |= found
    return bits


def _month_days(text: str, key: str | None) -> MonthDays:
    found = MonthDays()
    for item in text.split(","):
        days, back, near = _values(DAY, item, key), _before_last(item), _nearest(item)
        if not (days or back or near or item == "LW"):
            raise Unfit(3, item)
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
            raise Unfit(5, item)
        found = WeekDays(found.weekdays | weekdays, found.nth | nth, found.last | last)
    return found


# Each of the readers below gives the set an item means, or the empty set when it is not of that form.


def _values(field: Field, item: str, key: str | None) -> int:
    """`*`, `a`, `a-b`, `H`, and steps of all but `a`."""
    head, slash, tail = item.partition("/")
    step = number(tail) if slash else 1
    if step < 1:
        return 0
    if head == "*":
        return stepped(field.low, field.high, step)
    if head[:1] == "H":
        return _hashed(field, head, step if slash else None, key)
    if "-" in head:
        low, high = _ends(field, head)
        return _folded(field, stepped(low, high, step)) if 0 <= low <= high else 0
    return 0 if slash else _one(field, head)


def _one(field: Field, text: str) -> int:
    """A single value or name."""
    found = value(field, text)
    return _folded(field, 1 << found) if found >= 0 else 0


def _ends(field: Field, text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    low, high = value(field, first), value(field, last)
    # A week may end on Sunday: MON-SUN is 1-7.
    return low, 7 if field is WEEKDAY and last == "SUN" and low > 0 else high


def _hashed(field: Field, head: str, step: int | None, key: str | None) -> int:
    """`H` and `H(a-b)`, one value or every step-th, where a digest of key and field says."""
    if key is None or field is YEAR:
        return 0
    low, high = field.low, _LAST_HASHED_DAY if field is DAY else field.high
    if head != "H":
        low, high = _ends(field, head[2:-1]) if head[1:2] == "(" and head[-1:] == ")" else (-1, -1)
    if not 0 <= low <= high or (step or 1) > high - low + 1:
        return 0
    digest = blake2b(f"{key}\0{field.name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    share = int.from_bytes(digest, "big")
    if step is None:
        return _folded(field, 1 << low + share % (high - low + 1))
    return _folded(field, stepped(low + share % step, high, step))


def _before_last(item: str) -> int:
    """`L` and `L-n`."""
    if item == "L":
        return 1
    back = number(item[2:]) if item[:2] == "L-" else 0
    return 1 << back if 1 <= back <= 30 else 0


def _nearest(item: str) -> int:
    """`nW`."""
    return _one(DAY, item[:-1]) if item[-1:] == "W" else 0


def _nth(item: str) -> int:
    """`n#k`, as bit 7k + n."""
    weekday, _, which = item.partition("#")
    nth = number(which)
    return _one(WEEKDAY, weekday) << 7 * nth if 1 <= nth <= 5 else 0


def _last(item: str) -> int:
    """`nL`."""
    return _one(WEEKDAY, item[:-1]) if item[-1:] == "L" else 0


def _folded(field: Field, bits: int) -> int:
    """Sunday is 0 and may be written 7."""
    return (bits | bits >> 7) & 0b1111111 if field is WEEKDAY else bits
