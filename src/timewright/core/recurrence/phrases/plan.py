"""Combines the parts of a recurrence phrase into one plan, or refuses what does not fit together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from timewright.core.recurrence.phrases import clock_times, parts
from timewright.core.recurrence.phrases.times_of_plan import (
    MONTH_LENGTHS,
    UNIT_ORDER,
    Plan,
    Written,
    read_pattern,
    with_times,
)
from timewright.core.recurrence.phrases.tokens import WEEKDAY_NAMES, PhraseProblem, TwoReadings, TwoWays
from timewright.core.recurrence.words import ordinal

T = TypeVar("T", int, tuple[int, int])


def make_plan(given: Sequence[Any]) -> Plan:
    """Return the plan of a parsed recurrence, or raise PhraseProblem."""
    bounded = [part for part in given if isinstance(part, parts.Bounded)]
    if bounded:
        raise PhraseProblem(
            f"has a start or an end ({bounded[0].word} …)",
            rule="a start, an end and a number of runs have their own fields",
            fix="the phrase without it, and start_at, end_at or max_runs",
        )
    if any(isinstance(part, parts.Apart) for part in given):
        raise PhraseProblem(
            "names days in two places",
            rule="days that share a time stand together, joined with and; others are a clause with a time",
            fix="mondays and the 15th at 9 for either, friday the 13th for both, or a clause for each: "
            "mondays at 9 and fridays at 10",
        )
    read_parts = [
        one
        for part in given
        for one in (read_pattern(part.text) if isinstance(part, parts.Pattern) else [part])
    ]
    written = Written(read_parts)
    plan = _with_days(_exceptions(read_parts), written.days)
    if written.months is not None:
        plan = plan._replace(months=written.months.months)
    if any(isinstance(part, parts.Pattern) for part in given) and plan.weekdays and plan.month_days:
        # systemd joins weekday and date with "and".
        plan = plan._replace(both=True)
    plan = _with_period(plan, written)
    if plan.interval is None:
        plan = with_times(plan, written)
    return _checked(plan)


# -------------------------------------------------------------------------------------------------- the days


def _exceptions(given_parts: Sequence[Any]) -> Plan:
    plan = Plan(
        only=tuple(dict.fromkeys(part.name for part in given_parts if isinstance(part, parts.CalendarName)))
    )
    for item in (item for part in given_parts if isinstance(part, parts.Except) for item in part.items):
        if isinstance(item, parts.CalendarName):
            plan = plan._replace(excluded=(*plan.excluded, item.name))
        elif isinstance(item, parts.Months):
            plan = plan._replace(except_months=_merged(plan.except_months, item.months))
        elif not (item.nth or item.working) and min(item.month_days, default=1) > 0:
            plan = plan._replace(
                except_weekdays=_merged(plan.except_weekdays, item.weekdays),
                except_month_days=_merged(plan.except_month_days, _in_month(item.month_days)),
            )
        else:
            raise PhraseProblem(
                "excludes days that a phrase cannot exclude",
                rule="except weekdays, months, days of the month (the 1st), holidays or calendar NAME",
                fix="a calendar of these dates, and except calendar NAME",
            )
    short = [part for part in given_parts if isinstance(part, parts.Short)]
    zones = [part.name for part in given_parts if isinstance(part, parts.Zone)]
    if len(set(zones)) > 1:
        raise PhraseProblem(f"has {len(zones)} time zones", rule="one zone", fix=f"only {zones[0]}")
    return plan._replace(skip_short=bool(short) and short[0].skip, zone=zones[0] if zones else None)


def _with_days(plan: Plan, days: Sequence[parts.Days]) -> Plan:
    for day in days:
        if day.both and len(days) > 1:
            raise PhraseProblem(
                "joins a weekday with a date, and other days",
                rule="such a day alone",
                fix="friday the 13th",
            )
        _check_places(day.working, 23, "working days")
        _check_places([place for place, _ in day.nth], 5, "of the same weekday")
        _in_month(day.month_days + day.nearest)
        merged: dict[str, Any] = {
            name: _merged(getattr(plan, name), getattr(day, name)) for name in parts.DAY_FIELDS
        }
        plan = plan._replace(**merged, both=day.both)
    for month, number in plan.dates:
        if not 1 <= number <= MONTH_LENGTHS[month - 1]:
            raise PhraseProblem(
                f"has a day {number} that this month does not have",
                rule=f"the month has {MONTH_LENGTHS[month - 1]} days at most",
                fix="another day, or last day of the month",
            )
    return plan


def _check_places(places: Sequence[int], largest: int, what: str) -> None:
    if any(not 1 <= abs(place) <= largest for place in places):
        raise PhraseProblem(
            f"asks for number {max(places, key=abs)} of a month",
            rule=f"a month has at most {largest} {what}",
            fix="the last one: last monday of the month",
        )


def _in_month(days: Sequence[int]) -> tuple[int, ...]:
    if any(not 1 <= abs(day) <= 31 for day in days):
        raise PhraseProblem(
            f"has the day {max(days, key=abs)}",
            rule="a day of the month is 1 to 31",
            fix="write a day from 1 to 31",
        )
    return tuple(days)


def _merged(before: tuple[T, ...], more: Sequence[T]) -> tuple[T, ...]:
    return tuple(sorted(set(before).union(more)))


# ------------------------------------------------------------------------------------------------ the period


def _with_period(plan: Plan, written: Written) -> Plan:
    """Add what repeats: an interval, steps within the day, or a calendar unit."""
    weekly_every = [day.every_other for day in written.days if day.every_other > 1]
    wall_clock = bool(
        written.times or written.window or written.past_hour or written.part or plan.has_days or plan.months
    )
    fixed: list[timedelta] = []
    units: list[tuple[int, str]] = [(every, "week") for every in weekly_every]
    for length in written.periods:
        found = clock_times.calendar_unit(length, wall_clock=wall_clock)
        if found is None:
            fixed.append(clock_times.fixed_length(length))
        else:
            units.append(found)
    counted = written.counted
    if counted is not None and counted.number == 1 and counted.unit in UNIT_ORDER:
        units.append((1, counted.unit))
    two = [part for part in written.parts if isinstance(part, parts.Ambiguous)]
    if two:
        units.append(_two_readings(two[0], plan))
    if len(fixed) == 2 and max(fixed) == timedelta(hours=1):
        # `every minute of every hour` begins at minute 0.
        fixed, units = [min(fixed)], [*units, (1, "day")]
    if len(fixed) > 1 or (fixed and counted is not None):
        raise PhraseProblem(
            "has two intervals", rule="one phrase has one interval", fix="a list of two triggers"
        )
    unit = _one_unit(units)
    if weekly_every and len(plan.weekdays) == len(parts.WORKING_DAYS):
        every = weekly_every[0]
        # Five weekdays are a week, so that the proposal does not fire more often.
        days = f"every {every // 5} weeks on mon" if every % 5 == 0 else f"every {-(-every * 7 // 5)} days"
        some = "every mon, wed and fri" if every == 2 else days.replace("every 1 weeks", "every week")
        raise TwoReadings("days or weeks can be counted", some, f"every {every} weeks on weekdays")
    if written.months is None:
        _check_every_nth(written.days, unit)
    adverbs = [clock_times.calendar_unit(part.length, wall_clock=True) for part in written.adverbs]
    if any(found is not None and found != unit for found in adverbs) and len(set(units)) > 1:
        raise TwoWays("repeats in two ways")
    if unit is not None and unit[0] > 1 and any(day.weekly and day.every for day in written.days):
        why = f"repeats some days every {unit[0]} {unit[1]}s and others every week"
        raise TwoWays(why, fix="a list of two triggers")
    if fixed:
        return _with_interval(plan, written, fixed[0], unit)
    return _with_unit(plan, unit, written)


def _two_readings(part: parts.Ambiguous, plan: Plan) -> tuple[int, str]:
    """The interval that `biweekly` and its like mean, if the rest of the phrase decides it; else raises."""
    unit = part.unit
    if part.first:
        raise TwoReadings(
            f"every {unit}, or only the first one", f"every {unit}", f"1st {unit} of every month"
        )
    named = len(plan.weekdays) + len(plan.nth) + len(plan.month_days) + len(plan.dates)
    if unit == "year" and len(plan.dates) == 2:
        return 1, unit
    if unit != "year" and named == 1:
        return 2, unit
    day = {"week": "mon", "month": "the 1st", "year": "1 january"}[unit]
    twice = {
        "week": "every mon and thu",
        "month": "on the 1st and 15th of every month",
        "year": "1 jan and 1 jul",
    }
    raise TwoReadings(f"every 2 {unit}s, or twice a {unit}", f"every 2 {unit}s on {day}", twice[unit])


def _one_unit(units: list[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the calendar unit of a phrase; of `every day of the month` it is the day."""
    found = sorted(set(units), key=lambda one: (UNIT_ORDER.index(one[1]), one[0]))
    if len(found) > 1 and any(count > 1 for count, _ in found):
        shown = " and ".join(
            f"every {count} {unit}s" if count > 1 else f"every {unit}" for count, unit in found
        )
        raise TwoWays(f"repeats twice: {shown}")
    return found[0] if found else None


def _check_every_nth(days: Sequence[parts.Days], unit: tuple[int, str] | None) -> None:
    for day in days:
        if day.every and unit is None and len(day.nth) == 1 and day.nth[0][0] > 1:
            place, weekday = day.nth[0]
            name = WEEKDAY_NAMES[weekday][:3]
            raise TwoReadings(
                "weeks or months can be counted",
                f"every {place} weeks on {name}",
                f"{ordinal(place)} {name} of every month",
            )


def _with_interval(plan: Plan, written: Written, every: timedelta, unit: tuple[int, str] | None) -> Plan:
    """Read `every 15 minutes`: an interval, or steps of the day where certain days or hours are named."""
    written.refuse_time_of_day()
    if any(day.edge for day in written.days):
        raise PhraseProblem(
            "has the start or the end of an interval",
            rule="a month, a quarter and a year have a first and a last day",
            fix="minutes of each hour: every hour at :00",
        )
    bound = (
        plan.has_days or plan.months or plan.except_weekdays or plan.except_months or plan.except_month_days
    )
    if not (bound or written.window or written.past_hour or unit):
        return plan._replace(interval=every)
    if unit is not None and unit != (1, "day") and not plan.has_days:
        raise TwoWays("has an interval and a calendar period")
    seconds = every // timedelta(seconds=1)
    if every % timedelta(seconds=1) or not 0 < seconds < clock_times.DAY_S:
        raise PhraseProblem(
            "has an interval that does not fit into a day",
            rule="on certain days or hours an interval is 1 second to 24 hours, in whole seconds",
            fix="the interval without days or hours",
        )
    return _with_unit(plan._replace(steps=clock_times.Steps(seconds)), unit, written)


def _with_unit(plan: Plan, unit: tuple[int, str] | None, written: Written) -> Plan:
    """Add the calendar unit, and the days that it means when none are named."""
    count, name = unit or (1, "")
    has_nth = bool(plan.nth or plan.month_days or plan.working or plan.nearest)
    plain = plan.weekdays and not plan.both and not all(day.every for day in written.days if day.weekly)
    wrong = {
        "day": has_nth or plan.dates or (plan.weekdays and count > 1),
        "week": has_nth or plan.dates,
        "month": plan.dates or plain,
        "quarter": plan.dates or plain,
        "year": plain,
    }
    if wrong.get(name):
        raise PhraseProblem(
            f"has days that do not fit every {name}",
            rule="weeks have weekdays; months have days (the 15th) and counted weekdays (the first monday)",
            fix={
                "month": "first monday of every month, or the 15th of every month",
                "quarter": "first monday of every quarter",
                "year": "every year on 25 december",
                "week": "the 15th of every month, or every monday",
            }.get(name, "the days without `every day`"),
        )
    if name == "quarter":
        return _in_quarters(plan)
    if name == "year" and count == 1:
        return _in_year(plan)
    if not plan.has_days and count == 1:
        if name == "week":
            plan = plan._replace(weekdays=(0,))
        elif name == "month" or (not name and plan.months and not plan.steps):
            plan = plan._replace(month_days=(1,))
    if name or plan.has_days or plan.steps:
        return plan._replace(every_n=count, unit=name or "day")
    if not (written.times or written.past_hour or written.counted or written.part or plan.months):
        raise PhraseProblem(
            "does not say how often",
            rule="an interval, days or times of day",
            fix="the phrase with its period",
        )
    return plan


def _in_quarters(plan: Plan) -> Plan:
    """Days of a quarter: counted from its start in its first month, from its end in its last month."""
    places = [*plan.month_days, *plan.working, *plan.nearest, *(place for place, _ in plan.nth)] or [1]
    if plan.months or len({place > 0 for place in places}) > 1:
        raise PhraseProblem(
            "has several days of a quarter", rule="one day of each quarter", fix="every quarter"
        )
    if not plan.has_days:
        plan = plan._replace(month_days=(1,))
    return plan._replace(months=(1, 4, 7, 10) if places[0] > 0 else (3, 6, 9, 12), unit="day")


def _in_year(plan: Plan) -> Plan:
    """Days of a year: a date, a day of a named month, or the first and last of the year."""
    if not plan.has_days:
        return plan._replace(month_days=(1,), months=plan.months or (1,), unit="day")
    places = [*plan.month_days, *plan.working, *(place for place, _ in plan.nth)]
    if not plan.dates and not plan.months:
        if set(places) not in ({1}, {-1}):
            raise PhraseProblem(
                "does not name the month", rule="a date has a month", fix="every year on 25 december"
            )
        plan = plan._replace(months=(1,) if places[0] > 0 else (12,))
    return plan._replace(unit="day")


def _checked(plan: Plan) -> Plan:
    """Refuse a plan that never fires, and join equal dates."""
    days = set(plan.weekdays or range(7)) - set(plan.except_weekdays)
    months = set(plan.months or range(1, 13)) - set(plan.except_months)
    if not days or not months or set(plan.excluded) & set(plan.only):
        raise PhraseProblem(
            "excludes every day", rule="the exceptions leave at least one day", fix="fewer exceptions"
        )
    if plan.months and any(
        day > max(MONTH_LENGTHS[month - 1] for month in plan.months) for day in plan.month_days
    ):
        raise PhraseProblem(
            "has a day that these months do not have", rule="a day of the calendar", fix="write another day"
        )
    if plan.dates and plan.months:
        raise PhraseProblem("has dates and other months", rule="a date names its month", fix="only the dates")
    numbers = {day for _, day in plan.dates}
    if len(numbers) == 1 and not (
        plan.month_days or plan.weekdays or plan.nth or plan.working or plan.nearest
    ):
        return plan._replace(
            dates=(), months=tuple(month for month, _ in plan.dates), month_days=tuple(numbers)
        )
    return plan
