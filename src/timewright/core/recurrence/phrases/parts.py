"""The values that rules build; `plan` and `instants` decide what they mean together."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

WORKING_DAYS = (0, 1, 2, 3, 4)


class Length(NamedTuple):
    """An amount of time as it was written: numbers with units."""

    pieces: tuple[tuple[Fraction, str], ...] = ()
    iso: str = ""


class PhrasePeriod(NamedTuple):
    """Every n units of the calendar or of the clock."""

    length: Length


class Counted(NamedTuple):
    """A number of times in each unit, spread evenly from its start."""

    number: int
    unit: str


class Ambiguous(NamedTuple):
    """`biweekly` and its like, or `every first day`, which have two readings."""

    unit: str
    first: bool = False


class ClockTime(NamedTuple):
    """A time of day: hour, minute, second, and am or pm if it was written."""

    hour: int
    minute: int = 0
    second: int = 0
    half: str = ""
    bare: bool = False
    written: str = ""


class Times(NamedTuple):
    """Times of day."""

    clocks: tuple[ClockTime, ...]


class PastHour(NamedTuple):
    """Minutes past each hour."""

    minutes: tuple[int, ...]


class HoursBetween(NamedTuple):
    """A window of the day; without clocks, business hours."""

    clocks: tuple[ClockTime, ...] = ()


class PartOfDay(NamedTuple):
    """Morning, afternoon, evening or night."""

    name: str


class Lead(NamedTuple):
    """`every` or `each` in front of days."""

    every: bool


class Weekly(NamedTuple):
    """Days of the week, 0 is Monday."""

    days: tuple[int, ...]
    every_other: int = 1
    every: bool = False


class Nth(NamedTuple):
    """The n-th weekday, working day or day (None) of a month; from its end if negative."""

    positions: tuple[int, ...]
    weekday: int | None = None
    working: bool = False
    every: bool = False


class Nearest(NamedTuple):
    """The working day nearest to a day of the month."""

    day: int


class DateOfYear(NamedTuple):
    """A day in a month, and the year where one is written."""

    day: int
    months: tuple[int, ...]
    year: int | None = None


class WeekdayAndDate(NamedTuple):
    """Friday the 13th: both must hold."""

    weekday: int
    day: int


class Months(NamedTuple):
    """Months of the year."""

    months: tuple[int, ...]


class Except(NamedTuple):
    """What is left out."""

    items: tuple[Any, ...]


class CalendarName(NamedTuple):
    """A calendar object by its name."""

    name: str


class Pattern(NamedTuple):
    """A date or a time as systemd writes it."""

    text: str


class Zone(NamedTuple):
    """A time zone."""

    name: str


class Short(NamedTuple):
    """What happens in a month that lacks the day: skip it, or take its last day."""

    skip: bool


class Bounded(NamedTuple):
    """A start or an end, which is a field of its own."""

    word: str


class FromNow(NamedTuple):
    """A length after now or another day, or before now."""

    length: Length
    ago: bool
    start: RelativeDay | WeekdayRef | None = None


class RelativeDay(NamedTuple):
    """A day by its distance from today."""

    days: int
    part: str = ""


class WeekdayRef(NamedTuple):
    """A weekday near now: `friday`, `next friday`, `this friday`, `last friday`."""

    weekday: int
    which: str = ""


class NextWorkingDay(NamedTuple):
    """The next day from Monday to Friday."""


class UnitRef(NamedTuple):
    """`next week`, `this month`."""

    which: str
    unit: str


class NthDate(NamedTuple):
    """A day counted within a month: this one, the next one, or a named one."""

    days: Nth
    month: int | None
    year: int | None
    next_month: bool


class WrittenDate(NamedTuple):
    """A date in digits; `kind` is the token it came from."""

    kind: str
    value: Any
