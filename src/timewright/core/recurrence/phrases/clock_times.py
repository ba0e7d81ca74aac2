"""Times of day and lengths of time: what their written forms mean, and when they are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from timewright.core.moments import format_duration, parse_duration
from timewright.core.recurrence.phrases.parts import ClockTime, Length
from timewright.core.recurrence.phrases.tokens import PhraseProblem, TwoReadings
from timewright.errors import TimewrightError

DAY_S = 86_400
BUSINESS_HOURS = (9 * 3600, 17 * 3600 - 1)

_SECONDS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "d": DAY_S,
    "w": 7 * DAY_S,
    "day": DAY_S,
    "week": 7 * DAY_S,
}
_CALENDAR_UNITS = {
    "day": (1, "day"),
    "week": (1, "week"),
    "fortnight": (2, "week"),
    "month": (1, "month"),
    "quarter": (1, "quarter"),
    "year": (1, "year"),
}


class Steps(NamedTuple):
    """Every `step` seconds from `first` to `last` of a day, or at these minutes of the hours in between."""

    step: int
    first: int = 0
    last: int = DAY_S - 1
    minutes: tuple[int, ...] = ()

    def times(self) -> tuple[int, ...]:
        """Return the times of day in seconds; a window that crosses midnight continues on the same days."""
        length = (self.last - self.first) % DAY_S
        if not self.minutes:
            return tuple(sorted((self.first + at) % DAY_S for at in range(0, length + 1, self.step)))
        hours = range(0, DAY_S, self.step)
        wanted = [hour + minute * 60 for hour in hours for minute in self.minutes]
        return tuple(at for at in wanted if (at - self.first) % DAY_S <= length)


# ---------------------------------------------------------------------------------------------- times of day


def read_times(clocks: Sequence[ClockTime], part: str = "") -> tuple[int, ...]:
    """Return times in seconds of the day, in order."""
    for position, clock in enumerate(clocks):
        later = [one for one in clocks[position + 1 :] if one.half == "p"]
        if clock.bare and not part and later and clock.hour < later[0].hour % 12:
            _two_halves(clock)
    return tuple(sorted({read_time(clock, part) for clock in clocks}))


def read_time(clock: ClockTime, part: str = "") -> int:
    """Return a time in seconds of the day; without am or pm it is on the 24-hour clock."""
    half = clock.half or part
    if half == "to":
        raise PhraseProblem(
            f"has {clock.written!r}, which is not a time of day",
            rule="minutes to an hour are 5, 10, 15, 20 or 25, or have the word minutes",
            fix="one time of day, such as 9:00; a window needs an interval (every hour between 9am and 5pm)",
        )
    if half == "half":
        before = (clock.hour - 1) % 12 or 12
        raise TwoReadings(
            "half an hour before or after", f"half past {clock.hour}", f"{before}:30", parts=True
        )
    if clock.minute > 59 or clock.second > 59:
        raise PhraseProblem(
            f"has the minute {clock.minute}",
            rule="minutes and seconds are 0 to 59",
            fix=f"write {clock.hour}:30 or another minute",
        )
    return (_hour(clock, half) * 60 + clock.minute) * 60 + clock.second


def _hour(clock: ClockTime, half: str) -> int:
    hour = clock.hour
    shown = f"{hour}:{clock.minute:02}"
    if half in ("a", "p"):
        if not 1 <= hour <= 12:
            raise PhraseProblem(
                f"has the time {shown}{half}m",
                rule="with am or pm the hour is 1 to 12",
                fix=f"{shown} without {half}m" if hour < 24 else "write the hour as 0 to 23",
            )
        return hour % 12 + (12 if half == "p" else 0)
    if hour > 23:
        raise PhraseProblem(
            f"has the hour {hour}",
            rule="an hour is 0 to 23",
            fix="write midnight, which is 00:00 at the start of the day"
            if hour == 24
            else "write the hour as 0 to 23",
        )
    if not half:
        return hour
    if half == "morning" and hour == 12:
        raise TwoReadings("noon or midnight", "noon", "midnight", parts=True)
    # The hours of each part of the day on the 24-hour clock.
    hours = {"morning": range(12), "afternoon": range(12, 19), "evening": range(16, 24)}.get(
        half, (*range(18, 24), *range(6))
    )
    if half == "night" and hour == 12:
        return 0
    for found in (hour, hour + 12):
        if found in hours and (hour <= 12 or found == hour):
            return found
    raise PhraseProblem(
        f"has the time {shown} in the {half}",
        rule=f"the hours of the {half} are {hours[0]} to {hours[-1]}",
        fix=f"write {shown} without the {half}",
    )


def _shown(clock: ClockTime) -> str:
    return f"{clock.hour % 12 or 12}:{clock.minute:02}" if clock.minute else str(clock.hour % 12 or 12)


def _two_halves(clock: ClockTime) -> None:
    raise TwoReadings(f"{clock.hour} can be am or pm", f"{clock.hour}am", f"{clock.hour}pm", parts=True)


def read_window(clocks: Sequence[ClockTime]) -> tuple[int, int]:
    """Return the ends of a window in seconds of the day; one that crosses midnight ends before it starts."""
    if not clocks:
        return BUSINESS_HOURS
    start, end = clocks
    if start.bare and end.half == "p" and start.hour < end.hour % 12:
        _two_halves(start)
    first, last = read_time(start), read_time(end)
    if last <= first and not end.half and start.hour <= 12 and end.hour <= 12 and start.half != "p":
        begin, finish = (_shown(clock) for clock in (start, end))
        raise TwoReadings(
            "the end is in the evening, or on the next day",
            f"between {begin}am and {finish}pm",
            f"between {begin}am and {finish}am",
            parts=True,
        )
    if last == first:
        raise PhraseProblem(
            "has an empty window", rule="a window has two different ends", fix="one time of day"
        )
    return first, last


def evenly_spread(count: int, unit: str, minutes: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return the step in seconds and the minutes past the hour of `twice an hour`."""
    size = {"hour": 3600, "minute": 60, "second": 1}[unit]
    if minutes and (unit != "hour" or count not in (1, len(minutes))):
        raise PhraseProblem(
            f"has {len(minutes)} minutes, but says {count} times",
            rule="both numbers must agree",
            fix="only one",
        )
    if not 1 <= count <= size or size % count:
        fewer = next(number for number in range(min(max(count, 1), size), 0, -1) if size % number == 0)
        raise PhraseProblem(
            f"asks for {count} times, which do not divide one {unit} evenly",
            rule=f"the times of one {unit} are equally far apart",
            fix=f"{fewer} times a{'n' if unit == 'hour' else ''} {unit}",
        )
    if unit == "hour" and (3600 // count) % 60 == 0:
        return 3600, minutes or tuple(range(0, 60, 60 // count))
    return size // count, ()


def part_without_time(part: str) -> PhraseProblem:
    """Return the refusal of a part of the day that has no time."""
    hour = {"morning": "9am", "afternoon": "3pm", "evening": "7pm", "night": "10pm"}[part]
    return PhraseProblem(
        f"does not say the time in the {part}",
        rule="a part of the day needs a time",
        fix=f"{{phrase}} at {hour}",
    )


# --------------------------------------------------------------------------------------- patterns of systemd


def _pattern_numbers(text: str, low: int, high: int) -> tuple[int, ...]:
    """Return the numbers of `*`, `5`, `1,15`, `1..5` and `0/15`; none for `*`."""
    numbers: set[int] = set()
    for item in text.split(","):
        found = re.fullmatch(r"(?:(\*)|([0-9]{1,2})(?:\.\.([0-9]{1,2}))?)(?:/([0-9]{1,2}))?", item)
        if found is None:
            raise _pattern_problem(text)
        if found[1] and not found[4]:
            return ()
        first = low if found[1] else int(found[2])
        last = int(found[3]) if found[3] else high if found[4] or found[1] else first
        if not low <= first <= last <= high or found[4] == "0":
            raise _pattern_problem(text)
        numbers |= set(range(first, last + 1, int(found[4] or 1)))
    return tuple(sorted(numbers))


def _pattern_problem(text: str) -> PhraseProblem:
    return PhraseProblem(
        f"has the pattern {text[:40]!r}",
        rule="a date as *-MONTH-DAY and a time as HOUR:MINUTE, each with *, lists, a..b or a/step",
        fix="*-01-01 09:00",
    )


def read_date_pattern(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the months and the days of `*-*-01`; empty for all."""
    fields = text.split("-")
    if len(fields) != 3 or fields[0] != "*":
        raise _pattern_problem(text)
    return _pattern_numbers(fields[1], 1, 12), _pattern_numbers(fields[2], 1, 31)


def read_time_pattern(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the hours and the minutes of `*:0/15`; empty for all."""
    hours, minutes, *seconds = text.split(":")
    if seconds and seconds[0] not in ("0", "00"):
        raise _pattern_problem(text)
    return _pattern_numbers(hours, 0, 23), _pattern_numbers(minutes, 0, 59)


# --------------------------------------------------------------------------------------------------- lengths


def calendar_unit(length: Length, *, wall_clock: bool) -> tuple[int, str] | None:
    """Return the number and unit of a calendar period; None for a length in hours, minutes or seconds."""
    if length.iso or len(length.pieces) != 1:
        return None
    number, unit = length.pieces[0]
    if unit in ("d", "w") and wall_clock:
        unit = {"d": "day", "w": "week"}[unit]
    if unit not in _CALENDAR_UNITS:
        return None
    if (number, unit) == (Fraction(1, 2), "year"):
        return 6, "month"
    if number.denominator > 1 and unit in ("day", "week"):
        return None
    size, unit = _CALENDAR_UNITS[unit]
    if number.denominator > 1 or not 1 <= number * size <= 999:
        raise PhraseProblem(
            f"repeats every {float(number):g} {unit}s",
            rule="1 to 999 whole units",
            fix=f"every {-(-number // 1)} {unit}s" if number < 999 else "a number of longer units",
        )
    count = int(number) * size
    return (3 * count, "month") if unit == "quarter" and count > 1 else (count, unit)


def fixed_length(length: Length) -> timedelta:
    """Return a length of hours, minutes and seconds; days in it are 24 hours."""
    try:
        if any(unit not in _SECONDS for _, unit in length.pieces):
            raise PhraseProblem(
                "adds months or years to other units",
                rule="months and years have no fixed length",
                fix="one unit, as in every 2 years",
            )
        sizes = [_SECONDS[unit] for _, unit in length.pieces]
        if sizes != sorted(set(sizes), reverse=True):
            raise PhraseProblem(
                "has its units in another order", rule="the largest unit first, each once", fix="1h30m"
            )
        total = sum(number * _SECONDS[unit] for number, unit in length.pieces)
        found = timedelta(microseconds=int(total * 1_000_000))
        if length.iso:
            found = parse_duration(length.iso, field="every")
        if not found:
            raise PhraseProblem("has the length zero", rule="a length of time longer than zero", fix="15m")
        return found
    except OverflowError:
        raise PhraseProblem("is too long", rule="at most 100 years", fix="a shorter time") from None
    except TimewrightError as error:
        raise PhraseProblem(
            "has a length that is not fixed",
            rule=error.rule or "ISO 8601 without years and months",
            fix="months and years in words, as in every 2 years",
        ) from None


def length_words(length: timedelta) -> str:
    """Return `15 minutes`, `hour`, `1h30m5s`."""
    if length > timedelta(hours=48):
        return format_duration(length)
    for unit, size in (("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(length, timedelta(seconds=size))
        if count and not rest:
            return unit if count == 1 else f"{count} {unit}s"
    return format_duration(length)
