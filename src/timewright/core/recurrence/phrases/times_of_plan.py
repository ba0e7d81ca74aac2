"""The plan of a recurrence, and the times of day in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

from timewright.core.recurrence.phrases import parts
from timewright.core.recurrence.phrases.clock_times import (
    DAY_S,
    Steps,
    evenly_spread,
    length_words,
    part_without_time,
    read_date_pattern,
    read_time_pattern,
    read_times,
    read_window,
)
from timewright.core.recurrence.phrases.tokens import WEEKDAY_NAMES, PhraseProblem, TwoReadings, TwoWays

T = TypeVar("T")

MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
UNIT_ORDER = ("day", "week", "month", "quarter", "year")


_ONE_HOUR = parts.Length(((Fraction(1), "hour"),))
# Times of a night before this hour belong to the day after the evening.
_NIGHT_ENDS_S = 6 * 3600


class Plan(NamedTuple):
    """What a recurrence phrase means. Empty fields are no restriction; `times` are seconds of the day."""

    interval: timedelta | None = None
    every_n: int = 1
    unit: str = "day"
    weekdays: tuple[int, ...] = ()
    nth: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    working: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()
    dates: tuple[tuple[int, int], ...] = ()
    both: bool = False
    months: tuple[int, ...] = ()
    times: tuple[int, ...] = ()
    steps: Steps | None = None
    except_weekdays: tuple[int, ...] = ()
    except_months: tuple[int, ...] = ()
    except_month_days: tuple[int, ...] = ()
    excluded: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip_short: bool = False
    zone: str | None = None

    @property
    def has_days(self) -> bool:
        """Whether certain days are named."""
        return bool(
            self.weekdays or self.nth or self.month_days or self.working or self.nearest or self.dates
        )


class Written:
    """The parts of a phrase by type."""

    def __init__(self, given_parts: Sequence[Any]) -> None:
        self.parts = given_parts
        self.days = [part for part in given_parts if isinstance(part, parts.Days)]
        self.adverbs = [part for part in given_parts if isinstance(part, parts.PhrasePeriod) and part.adverb]
        self.periods = [part.length for part in given_parts if isinstance(part, parts.PhrasePeriod)]
        self.times = self.one(parts.Times, "times of day")
        self.window = self.one(parts.HoursBetween, "windows of the day")
        self.past_hour = self.one(parts.PastHour, "lists of minutes")
        self.counted = self.one(parts.Counted, "counts")
        self.part = self.one(parts.PartOfDay, "parts of the day")
        self.months = self.one(parts.Months, "lists of months")

    def one(self, kind: type[T], name: str) -> T | None:
        """Return the part of this type; a phrase has at most one."""
        found = [part for part in self.parts if isinstance(part, kind)]
        if len(found) > 1 and len(set(found)) > 1:
            raise PhraseProblem(
                f"has {len(found)} {name}", rule="one phrase says one thing", fix="a list of several triggers"
            )
        return found[0] if found else None

    def refuse_time_of_day(self) -> None:
        """Refuse a time of day beside an interval."""
        if self.times is None and self.part is None:
            return
        clocks = self.times.clocks if self.times is not None else ()
        alone = not self.days and self.months is None
        hourly = alone and (self.counted == parts.Counted(1, "hour") or self.periods == [_ONE_HOUR])
        minutes = [f":{clock.hour:02}" for clock in clocks if hourly and clock.bare and clock.hour < 60]
        raise PhraseProblem(
            "has an interval and a time of day",
            rule="an interval may have a window of two times, not one time of day",
            fix=f"minutes of each hour: every hour at {' and '.join(minutes)}"
            if minutes and len(minutes) == len(clocks)
            else "the interval with a window (between 08:00 and 18:00), or days with a time",
        )


def with_times(plan: Plan, written: Written) -> Plan:
    """Add the times of day: those written, steps through the day, or 00:00."""
    part = written.part.name if written.part is not None else ""
    counted = written.counted
    window = read_window(written.window.clocks) if written.window is not None else None
    if written.window is not None and not written.window.clocks:
        plan = _on_business_days(plan)
    step = plan.steps.step if plan.steps is not None else None
    minutes = written.past_hour.minutes if written.past_hour is not None else ()
    if counted is not None and counted.unit in ("hour", "minute", "second"):
        step, minutes = evenly_spread(counted.number, counted.unit, minutes)
    if minutes and step is None:
        step = 3600
    if step is not None:
        return _with_steps(plan, step, minutes, window, written)
    if window is not None:
        raise PhraseProblem(
            "has a window of the day, but does not say how often in it",
            rule="a window needs an interval",
            fix="a time of day instead of the window, or an interval with it",
        )
    times = read_times(written.times.clocks, part) if written.times is not None else ()
    if counted is not None:
        times = _counted_times(counted, times, plan)
    if part and not times and (part != "night" or plan.has_days):
        raise part_without_time(part)
    if part == "night" and times and times[0] < _NIGHT_ENDS_S:
        _refuse_night_of(plan.weekdays, times[0])
    return plan._replace(times=times or (0,))


def _refuse_night_of(weekdays: Sequence[int], second: int) -> None:
    """Refuse `saturday night at 2`, which can be 02:00 of Saturday or of Sunday."""
    if weekdays and len(weekdays) < 7:
        first, second_day = (
            " and ".join(WEEKDAY_NAMES[(day + step) % 7] for day in weekdays) for step in (0, 1)
        )
        clock = f"{second // 3600:02}:{second // 60 % 60:02}"
        raise TwoReadings(
            "the night before the day, or the night after it",
            f"{first} at {clock}",
            f"{second_day} at {clock}",
        )


def _on_business_days(plan: Plan) -> Plan:
    """Restrict a plan to Monday to Friday; weekends contradict business hours."""
    if set(plan.weekdays) & {5, 6}:
        raise PhraseProblem(
            "has business hours at a weekend",
            rule="business hours are Monday to Friday from 09:00 until before 17:00",
            fix="between 09:00 and 17:00",
        )
    return plan if plan.has_days else plan._replace(weekdays=parts.WORKING_DAYS)


def _with_steps(
    plan: Plan, step: int, minutes: tuple[int, ...], window: tuple[int, int] | None, written: Written
) -> Plan:
    written.refuse_time_of_day()
    if minutes and (step % 3600 or any(not 0 <= minute <= 59 for minute in minutes)):
        raise PhraseProblem(
            "has minutes past the hour",
            rule="minutes 0 to 59 of whole hours",
            fix="minutes such as :15, with hours",
        )
    if plan.every_n > 1:
        raise TwoWays("has an interval in every second period")
    if window is None and DAY_S % step:
        longer = next(size for size in range(step, DAY_S + 1, 1 if step % 60 else 60) if DAY_S % size == 0)
        raise PhraseProblem(
            f"has an interval of {length_words(timedelta(seconds=step))} that does not divide a day",
            rule="on certain days an interval begins at 00:00, so it must divide 24 hours",
            fix=f"every {length_words(timedelta(seconds=longer))} on the same days",
        )
    first, last = window or (0, DAY_S - 1)
    if first > last and (plan.has_days or plan.months or plan.except_weekdays):
        raise PhraseProblem(
            "has a window across midnight on certain days",
            rule="a window on certain days ends on the day on which it begins",
            fix="two triggers, one before midnight and one after it",
        )
    steps = Steps(step, first, last, minutes)
    times = steps.times()
    if not times:
        raise PhraseProblem(
            "never fires", rule="the window contains a time of the interval", fix="a longer window"
        )
    if len(times) == 1:
        return plan._replace(steps=None, times=times)
    if window is not None and not minutes:
        # The last time that is reached, so that the description is exact.
        steps = steps._replace(last=(first + (last - first) % DAY_S // step * step) % DAY_S)
    return plan._replace(steps=steps, times=times)


def _counted_times(counted: parts.Counted, times: tuple[int, ...], plan: Plan) -> tuple[int, ...]:
    """Return the times of `twice a day`; in longer units the days must be named."""
    if counted.unit == "day":
        if times and len(times) != counted.number:
            raise PhraseProblem(
                f"has {len(times)} times, but says {counted.number} times a day",
                rule="both numbers must agree",
                fix="only the times",
            )
        if not times and (not 1 <= counted.number <= DAY_S // 60 or DAY_S // 60 % counted.number):
            raise PhraseProblem(
                f"spreads {counted.number} times over a day",
                rule="a number that divides the minutes of a day",
                fix="the times of day, as in at 8, 12 and 18",
            )
        return times or tuple(range(0, DAY_S, DAY_S // counted.number))
    named = len(plan.weekdays) + len(plan.nth) + len(plan.month_days) + len(plan.dates) + len(plan.working)
    found = max(named, 1) * max(len(times), 1)
    if counted.number == 1 and found > 1:
        raise PhraseProblem(
            f"says once a {counted.unit}, but names {found} times",
            rule="both numbers must agree",
            fix=f"one day and one time, or the phrase without once a {counted.unit}",
        )
    if counted.number != 1 and named * max(len(times), 1) != counted.number:
        raise PhraseProblem(
            f"does not say on which days, {counted.number} times a {counted.unit}",
            rule="name the days",
            fix={"week": "every mon and thu", "month": "on the 1st and 15th of every month"}.get(
                counted.unit, "1 jan and 1 jul"
            ),
        )
    return times


def read_pattern(text: str) -> list[Any]:
    """Read a date or a time of systemd."""
    if ":" not in text:
        months, days = read_date_pattern(text)
        found: list[Any] = [parts.Months(months)] if months else []
        return [
            *found,
            parts.Days(month_days=days)
            if days
            else parts.PhrasePeriod(parts.Length(((Fraction(1), "day"),))),
        ]
    hours, minutes = read_time_pattern(text)
    if not hours and not minutes:
        return [parts.Counted(1, "minute")]
    if not hours:
        return [parts.PastHour(minutes)]
    return [
        parts.Times(tuple(parts.ClockTime(hour, minute) for hour in hours for minute in minutes or range(60)))
    ]
