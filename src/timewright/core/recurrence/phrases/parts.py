"""The values that rules build, and their builders; `plan` decides what they mean together.

A builder makes one value from what a rule matched. It only collects what was written, because the parser also
tries rules that do not fit in the end.
"""

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
    adverb: bool = False


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


class Days(NamedTuple):
    """Days of the week (0 is Monday), of a month, or of the year; of a month from its end if negative.

    `nth` are n-th weekdays of a month as (n, weekday), `working` its n-th working days, `nearest` the working
    days nearest to its days, and `dates` (month, day). With `both`, weekday and day hold: friday the 13th.
    """

    weekdays: tuple[int, ...] = ()
    nth: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    working: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()
    dates: tuple[tuple[int, int], ...] = ()
    both: bool = False
    every: bool = False
    every_other: int = 1
    edge: bool = False

    @property
    def weekly(self) -> bool:
        """Whether they are days of every week."""
        return bool(self.weekdays) and not self.both

    @property
    def numbered(self) -> bool:
        """Whether they are counted in a month or a year, without weekdays."""
        return bool(self.dates or self.working or (self.month_days and not self.both))


# The fields of days that a plan has too.
DAY_FIELDS = ("weekdays", "nth", "month_days", "working", "nearest", "dates")


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


class Apart(NamedTuple):
    """Days in two places of a phrase, with nothing that says how they belong together."""


class Bounded(NamedTuple):
    """A start or an end, which is a field of its own."""

    word: str


def build_length(values: list[Any]) -> Length:
    return Length(iso=values[0]) if isinstance(values[0], str) else Length(tuple(values))


def build_clock(values: list[Any]) -> ClockTime:
    part = next((value.name for value in values if isinstance(value, PartOfDay)), "")
    half = next((value for value in values if value in ("a", "p")), "")
    number = values[0]
    hour, minute, second = (*number, 0, 0)[:3] if isinstance(number, tuple) else (number, 0, 0)
    if isinstance(number, Fraction):
        # 9.30 is 09:30; other decimals are refused later by their impossible minute.
        hundredths = number * 100 % 100
        hour, minute = int(number), int(hundredths) if hundredths.denominator == 1 else 99
    bare = not half and not part and not isinstance(number, tuple)
    return ClockTime(hour, minute, second, half or part, bare=bare and not isinstance(number, Fraction))


def build_spoken(values: list[Any]) -> ClockTime:
    """Build `half past nine`, `quarter to ten`, `5 past 9`: minutes, direction, hour, am or pm."""
    if values[0] == "half":
        values = ["half", "past", *values[1:]]
    minutes = {"half": 30, "quarter": 15}.get(values[0], values[0])
    hour = values[2].hour if isinstance(values[2], ClockTime) else values[2]
    half = next((value for value in values[3:] if isinstance(value, str)), "")
    part = next((value.name for value in values[3:] if isinstance(value, PartOfDay)), "")
    if values[1] in ("past", "after"):
        return ClockTime(hour, minutes, half=half or part)
    return ClockTime(12 if hour == 1 and half else (hour - 1) % 24, 60 - minutes, half=half or part)


def build_spoken_number(values: list[Any]) -> ClockTime:
    """Build `10 to 9`; `9 to 5` is a time only with the word minutes, otherwise people mean two times."""
    clock = build_spoken(values)
    if values[0] % 5 and values[1] in ("to", "till"):
        return clock._replace(half="to", written=f"{values[0]} {values[1]} {(clock.hour + 1) % 24}")
    return clock


def build_past(values: list[Any]) -> int:
    minutes = {"half": 30, "quarter": 15, "to": 45} | dict.fromkeys(("hour", "top", "start", "beginning"), 0)
    return minutes[values[0]] if values[0] in minutes else int(values[0])


def build_weekly(values: list[Any]) -> Days:
    if isinstance(values[0], tuple):
        return Days(values[0])
    if isinstance(values[0], str):
        return Days((5, 6) if values[0] == "weekend" else WORKING_DAYS)
    first, last = values[0], values[-1]
    return Days(tuple((first + step) % 7 for step in range((last - first) % 7 + 1)))


def build_month_range(values: list[Any]) -> Months:
    first, last = values[0], values[-1]
    return Months(tuple((first - 1 + step) % 12 + 1 for step in range((last - first) % 12 + 1)))


def build_months(values: list[Any]) -> Months:
    return Months(tuple(sorted({month for one in values for month in one.months})))


def build_nth(values: list[Any]) -> int:
    if "penultimate" in values:
        return -2
    if "last" in values or "final" in values:
        return -values[0] if isinstance(values[0], int) else -1
    return int(values[0])


def build_nth_range(values: list[Any]) -> tuple[int, ...]:
    first, last = values[0], values[-1]
    if len(values) == 1:
        return (first,)
    return tuple(range(first, last + 1)) if 0 < first <= last <= 31 else (first, last)


def build_first_days(values: list[Any]) -> tuple[int, ...]:
    first, number = values
    return tuple(range(1, min(number, 31) + 1)) if first == "first" else tuple(range(-min(number, 31), 0))


def build_nth_days(values: list[Any]) -> Days:
    noun = values[-1] if isinstance(values[-1], Days) else Days()
    places = tuple(place for one in values if not isinstance(one, Days | str) for place in one)
    if len(noun.weekdays) > 1:
        return Days(working=places)
    return (
        Days(nth=tuple((place, day) for place in places for day in noun.weekdays))
        if noun.weekdays
        else Days(month_days=places)
    )


def build_numbered(values: list[Any]) -> list[Days]:
    return [value if isinstance(value, Days) else Days(month_days=value) for value in values]


def build_days(values: list[Any]) -> list[Days]:
    """Build days, each with whether `every` is written in front of it."""
    days: list[Days] = []
    every = False
    for value in values:
        if isinstance(value, Days):
            days.append(value._replace(every=every))
        else:
            every = value != "on"
    return days


def build_every_other(values: list[Any]) -> Days:
    count = next((value for value in values if isinstance(value, int)), 2)
    days = tuple(day for value in values if isinstance(value, Days) for day in value.weekdays)
    return Days(days, every_other=count)


def build_dates(values: list[Any]) -> Days:
    days = [value for value in values if isinstance(value, int)]
    months = [month for value in values if isinstance(value, Months) for month in value.months]
    return Days(dates=tuple((month, day) for day in days for month in months))


def build_counted(values: list[Any]) -> Counted:
    words = {"once": 1, "twice": 2, "thrice": 3}
    unit = values[1][1] if isinstance(values[1], tuple) else values[1]
    return Counted(words.get(values[0], values[0]), unit)


def build_adverb(values: list[Any]) -> list[Any]:
    count, unit = values[0]
    if unit in ("hour", "minute"):
        return [Counted(1, unit)]
    period = PhrasePeriod(Length(((Fraction(count), "day" if unit == "night" else unit),)), adverb=True)
    return [period, PartOfDay("night")] if unit == "night" else [period]


def build_other_period(values: list[Any]) -> PhrasePeriod | Ambiguous:
    number = values[0] if isinstance(values[0], int) else 2
    if number == 1:
        return Ambiguous(values[-1], first=True)
    return PhrasePeriod(Length(((Fraction(number), values[-1]),)))


def build_flat(values: list[Any]) -> list[Any]:
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def build_recurrence(values: list[Any]) -> list[Any]:
    """Build all parts; `mondays at 9 on the 15th` and `mondays on the 15th` have days that stand apart."""
    groups = [value if isinstance(value, list) else [value] for value in values]
    found = [[one for one in group if isinstance(one, Days)] for group in groups]
    days = [at for at, group in enumerate(found) if group]
    weekly = {at for at in days if any(one.weekly for one in found[at])}
    numbered = {at for at in days if any(one.numbered for one in found[at])}
    between = groups[days[0] : days[-1]] if days else []
    apart = any(isinstance(one, Times) for group in between for one in group) or (
        weekly and numbered and not weekly & numbered
    )
    return [*(one for group in groups for one in group), *([Apart()] if apart else [])]


def build_fixed_period(values: list[Any]) -> PhrasePeriod:
    """Build AWS's rate(1 day): its days are 24 hours."""
    fixed = {"day": "d", "week": "w"}
    length = values[0]
    return PhrasePeriod(
        length._replace(pieces=tuple((number, fixed.get(unit, unit)) for number, unit in length.pieces))
    )
