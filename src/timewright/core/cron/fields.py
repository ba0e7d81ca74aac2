"""The seven fields of a cron expression, and sets of numbers as bits.

A set of values is an integer: bit 5 is set when 5 is in it. Union is `|`, the smallest value at or
above n comes from a shift, and a whole day of minutes or eight thousand years fit in one number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

FIRST_YEAR, LAST_YEAR = 1970, 9999

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class Field(NamedTuple):
    """One field: what it is called, what it may hold, and the names of its values."""

    name: str
    low: int
    high: int
    names: Mapping[str, int]

    @property
    def every(self) -> int:
        """The set of all its values."""
        return stepped(self.low, self.high)


SECOND = Field("second", 0, 59, {})
MINUTE = Field("minute", 0, 59, {})
HOUR = Field("hour", 0, 23, {})
DAY = Field("day of month", 1, 31, {})
MONTH = Field("month", 1, 12, {name[:3].upper(): n for n, name in enumerate(MONTHS, 1)})
WEEKDAY = Field("weekday", 0, 6, {name[:3].upper(): n for n, name in enumerate(WEEKDAYS)})
YEAR = Field("year", FIRST_YEAR, LAST_YEAR, {})

FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR)

LONGEST = 256
MOST_DIGITS = 4
SHOWN = 60

NICKNAMES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}


class Unfit(Exception):
    """An item that has no place in its field, or a text that has no fields; never leaves this package."""

    def __init__(self, position: int | None = None, item: str = "") -> None:
        super().__init__(position, item)
        self.position = position
        self.item = item


class Mistake(NamedTuple):
    """What is wrong, the rule it breaks, texts to put in its place, and what to say beside them."""

    why: str
    rule: str
    instead: tuple[str, ...] = ()
    note: str = ""


def stepped(low: int, high: int, step: int = 1) -> int:
    """The set low, low + step, … up to high."""
    count = (high - low) // step + 1
    # A number of `count` ones in base 2^step, moved up to `low`.
    return ((1 << step * count) - 1) // ((1 << step) - 1) << low


def values(bits: int) -> Iterator[int]:
    """The values of a set, smallest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def number(text: str) -> int:
    """A whole number of at most four digits, or -1."""
    return int(text) if len(text) <= MOST_DIGITS and text.isdigit() else -1


def value(field: Field, text: str) -> int:
    """A number the field may hold or a name of one, or -1; a weekday may be 7."""
    if text in field.names:
        return field.names[text]
    found = number(text)
    return found if field.low <= found <= field.high + (field is WEEKDAY) else -1


def shown(text: str) -> str:
    """A text in quotes, printable and not too long."""
    return ascii(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")
