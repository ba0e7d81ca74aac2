"""The seven fields of a cron expression, and sets of values as bit masks.

A set is an integer: bit 5 is set if 5 is in it. Union is `|`, and the smallest value at or above n comes from
a shift. All minutes of a day, or 8000 years, fit in one integer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from timewright.core.recurrence import words

FIRST_YEAR, LAST_YEAR = 1970, 9999

WEEKDAYS = (words.WEEKDAYS[-1], *words.WEEKDAYS[:-1])


class CronField(NamedTuple):
    """One field: its name, its range, and the names of its values."""

    name: str
    low: int
    high: int
    names: Mapping[str, int]

    @property
    def every(self) -> int:
        """The set of all values."""
        return step_bits(self.low, self.high)


SECOND = CronField("second", 0, 59, {})
MINUTE = CronField("minute", 0, 59, {})
HOUR = CronField("hour", 0, 23, {})
DAY = CronField("day of month", 1, 31, {})
MONTH = CronField("month", 1, 12, {name[:3].upper(): n for n, name in enumerate(words.MONTHS, 1)})
WEEKDAY = CronField("weekday", 0, 6, {name[:3].upper(): n for n, name in enumerate(WEEKDAYS)})
YEAR = CronField("year", FIRST_YEAR, LAST_YEAR, {})

FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR)

MAX_EXPRESSION_LENGTH = 256
MAX_DIGITS = 4
MAX_SHOWN = 60

NICKNAMES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}


class UnparsedItem(Exception):
    """Internal: an item that its field does not accept, or a text without the right number of fields."""

    def __init__(self, position: int | None = None, item: str = "") -> None:
        super().__init__(position, item)
        self.position = position
        self.item = item


def step_bits(low: int, high: int, step: int = 1) -> int:
    """Return the set low, low + step, … up to high."""
    count = (high - low) // step + 1
    # `count` ones in base 2^step, shifted to `low`.
    return ((1 << step * count) - 1) // ((1 << step) - 1) << low


def bit_values(bits: int) -> Iterator[int]:
    """Yield the values of a set, smallest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def parse_number(text: str) -> int:
    """Parse an integer of at most four digits; -1 if it is not one."""
    return int(text) if len(text) <= MAX_DIGITS and text.isdigit() else -1


def parse_value(field: CronField, text: str) -> int:
    """Parse a number in the field's range or a name; -1 if it is neither. A weekday may be 7."""
    if text in field.names:
        return field.names[text]
    found = parse_number(text)
    return found if field.low <= found <= field.high + (field is WEEKDAY) else -1


def quote_shortened(text: str) -> str:
    """Return a text in quotes, printable and shortened."""
    return ascii(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "...")
