"""Turns a plan into triggers, and into the sentence that repeats how a phrase was read.

The sentence is itself a phrase, and reading it gives the same triggers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from timewright.core.moments import format_duration
from timewright.core.recurrence.phrases.clock_times import DAY_S, Steps, length_words
from timewright.core.recurrence.phrases.parts import WORKING_DAYS
from timewright.core.recurrence.phrases.times_of_plan import MONTH_LENGTHS, Plan
from timewright.core.recurrence.phrases.tokens import PhraseProblem
from timewright.core.recurrence.words import (
    MONTHS,
    WEEKDAYS,
    group_consecutive,
    join_words,
    ordinal,
    position_word,
)

# A schedule has at most this many triggers.
MAX_TRIGGERS = 20

_RRULE_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_FREQUENCIES = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}


class TriggerSpec(NamedTuple):
    """A trigger as text: a cron expression, an interval or a recurrence rule, with its zone if known."""

    kind: Literal["cron", "every", "rrule"]
    text: str
    zone: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the trigger in the long form that every interface decodes."""
        name = {"cron": "expression", "every": "interval", "rrule": "rule"}[self.kind]
        zone = {"zone": self.zone} if self.zone is not None and self.kind != "every" else {}
        return {"kind": self.kind, name: self.text, **zone}


class _Block(NamedTuple):
    """Times of day that one trigger can say: every combination of these hours, minutes and seconds."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]


def make_triggers(plan: Plan, zone: str | None) -> tuple[TriggerSpec, ...]:
    """Return the triggers of a plan, one where one can say it."""
    if plan.interval is not None:
        return (TriggerSpec("every", format_duration(plan.interval)),)
    blocks = _blocks(plan.times)
    triggers: list[TriggerSpec] = []
    for part in _split_days(plan):
        make = _rrule if _needs_rrule(part) else _cron
        triggers += [make(part, block)._replace(zone=zone) for block in blocks]
    if len(triggers) > MAX_TRIGGERS:
        raise PhraseProblem(
            f"needs {len(triggers)} triggers",
            rule=f"at most {MAX_TRIGGERS} triggers",
            fix="fewer times of day, or times at the same minute of each hour",
        )
    return tuple(triggers)


def _blocks(times: Sequence[int]) -> list[_Block]:
    """Group times of day: hours with the same minutes, and in them minutes with the same seconds."""
    return [
        _Block(hours, minutes, seconds)
        for hours, in_hour in _group(times, 3600)
        for minutes, seconds in _group(in_hour, 60)
    ]


def _group(times: Sequence[int], unit: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the hours (or minutes) that have the same times in them, and these times."""
    times_in: dict[int, list[int]] = {}
    for at in times:
        times_in.setdefault(at // unit, []).append(at % unit)
    numbers_with: dict[tuple[int, ...], list[int]] = {}
    for number, found in times_in.items():
        numbers_with.setdefault(tuple(found), []).append(number)
    return [(tuple(numbers), found) for found, numbers in numbers_with.items()]


# -------------------------------------------------------------------------------------------------- the days


def _split_days(plan: Plan) -> list[Plan]:
    """Return a plan for each trigger: days that one trigger can say stay together."""
    months = _without(plan.months, plan.except_months, range(1, 13))
    weekdays, month_days, both = plan.weekdays, plan.month_days, plan.both
    if plan.except_weekdays and (weekdays or not plan.has_days):
        weekdays = _without(weekdays, plan.except_weekdays, range(7))
    if plan.except_month_days and (month_days or not plan.has_days):
        month_days = _without(month_days, plan.except_month_days, range(1, 32))
    elif plan.except_month_days and weekdays:
        month_days, both = _without((), plan.except_month_days, range(1, 32)), True
    found = plan._replace(months=months, weekdays=weekdays, month_days=month_days, both=both)
    if not both and plan.has_days and (plan.except_weekdays or plan.except_month_days):
        found = _with_exceptions(found)
    has_days = plan.has_days or found.has_days
    return (_split_special(found) if has_days else [found]) + _split_dates(plan)


def _with_exceptions(plan: Plan) -> Plan:
    """Apply exceptions to days of the month, which also must not be an excluded weekday."""
    counted = plan.nth or plan.working or plan.nearest
    if plan.weekdays and not (plan.month_days or counted or plan.dates):
        return plan
    excepted = set(plan.except_weekdays)
    if (plan.except_month_days and (plan.weekdays or not plan.month_days)) or (
        excepted
        and (plan.weekdays or plan.working or plan.nearest or excepted & {weekday for _, weekday in plan.nth})
    ):
        raise PhraseProblem(
            "has an exception that cannot be combined with its days",
            rule="except goes with weekdays or days of the month, not both, nor first monday or last "
            "working day",
            fix="create a calendar of the excluded dates, and write except calendar NAME",
        )
    if excepted and not plan.nth:
        return plan._replace(weekdays=_without((), excepted, range(7)), both=True)
    return plan


def _split_special(plan: Plan) -> list[Plan]:
    """Separate days that cron cannot say, or that a recurrence rule must say alone."""
    working = [place for place in plan.working if plan.every_n > 1 or place not in (1, -1)]
    nth = tuple(one for one in plan.nth if plan.every_n > 1 or one[0] < -1)
    special = [_only(plan, working=(place,)) for place in working]
    special += [_only(plan, nth=nth)] if nth else []
    rest = plan._replace(
        working=tuple(place for place in plan.working if place not in working),
        nth=tuple(one for one in plan.nth if one not in nth),
        dates=(),
    )
    if _clamped(plan) or (plan.every_n > 1 and plan.month_days):
        weekdays = plan.weekdays if plan.both else ()
        special.append(_only(plan, month_days=plan.month_days, weekdays=weekdays, both=plan.both))
        rest = rest._replace(month_days=(), weekdays=() if plan.both else plan.weekdays, both=False)
    return ([rest] if rest.has_days else []) + special


def _only(plan: Plan, **days: Any) -> Plan:
    """Return the plan with only these days."""
    without = plan._replace(weekdays=(), nth=(), month_days=(), working=(), nearest=(), dates=(), both=False)
    return without._replace(**days)


def _clamped(plan: Plan) -> bool:
    """Whether a shorter month uses its last day: `the 31st` in a month with 30 days."""
    if plan.skip_short or plan.except_month_days or not plan.month_days or plan.both:
        return False
    return max(plan.month_days) > min(
        28 if month == 2 else MONTH_LENGTHS[month - 1] for month in plan.months or (2,)
    )


def _split_dates(plan: Plan) -> list[Plan]:
    months_of: dict[int, list[int]] = {}
    for month, day in plan.dates:
        if month not in plan.except_months and day not in plan.except_month_days:
            months_of.setdefault(day, []).append(month)
    weekdays = _without((), plan.except_weekdays, range(7))
    return [
        _only(plan, months=tuple(months), month_days=(day,), weekdays=weekdays, both=bool(weekdays))
        for day, months in months_of.items()
    ]


def _without(values: Sequence[int], excepted: Iterable[int], every: Iterable[int]) -> tuple[int, ...]:
    """Return the values (all if none are given) without the excepted ones; unchanged if there are none."""
    left_out = set(excepted)
    return tuple(value for value in values or every if value not in left_out) if left_out else tuple(values)


def _needs_rrule(plan: Plan) -> bool:
    special = any(place < -1 for place, _ in plan.nth) or any(place not in (1, -1) for place in plan.working)
    return plan.every_n > 1 or special or _clamped(plan)


# -------------------------------------------------------------------------------------------------- the text


def _cron(plan: Plan, block: _Block) -> TriggerSpec:
    stepped = plan.steps is not None
    from_start = [day for day in plan.month_days if day > 0]
    month_days = [_cron_ranges(from_start)] if from_start else []
    month_days += ["L" if day == -1 else f"L-{-day - 1}" for day in reversed(plan.month_days) if day < 0]
    month_days += ["1W" if place == 1 else "LW" for place in plan.working]
    month_days += [f"{day}W" for day in plan.nearest]
    weekdays = [_cron_ranges(sorted((day + 1) % 7 for day in plan.weekdays))] if plan.weekdays else []
    weekdays += [
        f"{(day + 1) % 7}L" if place == -1 else f"{(day + 1) % 7}#{place}" for place, day in plan.nth
    ]
    seconds = _cron_field(block.seconds, 60, stepped=stepped)
    fields = [
        *([seconds] if seconds != "0" else []),
        _cron_field(block.minutes, 60, stepped=stepped),
        _cron_field(block.hours, 24, stepped=stepped),
        ",".join(month_days) or "*",
        _cron_ranges(plan.months) if plan.months else "*",
        ("+" if plan.both else "") + ",".join(weekdays) if weekdays else "*",
    ]
    return TriggerSpec("cron", " ".join(fields))


def _cron_field(values: tuple[int, ...], size: int, *, stepped: bool) -> str:
    """Write one time field of cron: `*`, `*/15` if the phrase has steps, or the values."""
    if len(values) == size:
        return "*"
    step = values[1] - values[0] if stepped and len(values) > 2 else 0
    if step > 1 and size % step == 0 and values == tuple(range(0, size, step)):
        return f"*/{step}"
    return _cron_ranges(values)


def _cron_ranges(values: Sequence[int]) -> str:
    """Write numbers; three or more consecutive ones as a range."""
    runs = group_consecutive(values)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _rrule(plan: Plan, block: _Block) -> TriggerSpec:
    frequency = _FREQUENCIES[plan.unit] if plan.every_n > 1 else "MONTHLY"
    parts = [f"FREQ={frequency}"]
    parts += [f"INTERVAL={plan.every_n}"] if plan.every_n > 1 else []
    parts += [f"BYMONTH={_listed(plan.months)}"] if plan.months else []
    parts += [f"BYMONTHDAY={_listed(plan.month_days)}"] if plan.month_days else []
    weekdays = [_RRULE_DAYS[day] for day in plan.weekdays] + [
        f"{place}{_RRULE_DAYS[day]}" for place, day in plan.nth
    ]
    weekdays += [_RRULE_DAYS[day] for day in WORKING_DAYS] if plan.working else []
    parts += [f"BYDAY={','.join(weekdays)}"] if weekdays else []
    for name, values in zip(("BYHOUR", "BYMINUTE", "BYSECOND"), block, strict=True):
        parts.append(f"{name}={_listed(values)}")
    parts += [f"BYSETPOS={_listed(plan.working)}"] if plan.working else []
    from_start = frequency in ("MONTHLY", "YEARLY") and not (plan.month_days or weekdays)
    if _clamped(plan) or (from_start and not plan.skip_short):
        parts.append("SKIP=BACKWARD")
    return TriggerSpec("rrule", ";".join(parts))


def _listed(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


# ---------------------------------------------------------------------------------------------- the sentence


def describe(plan: Plan, zone: str | None) -> str:
    """Return the phrase that says exactly what the plan means."""
    if plan.interval is not None:
        return f"every {length_words(plan.interval)}" + _exceptions(plan)
    days, months = _day_words(plan), join_words(_runs(plan.months, MONTHS, 1))
    if plan.steps is not None:
        words = f"{_steps(plan.steps)} {days}" if days else _steps(plan.steps)
    else:
        words = days or "every day"
    if months:
        words += (
            f" in {months}"
            if not (plan.month_days or plan.nth or plan.working or plan.nearest)
            else f" of {months}"
        )
    if plan.steps is None:
        words += f" at {join_words(map(_time, plan.times))}"
    words += " or skip" if plan.skip_short else ""
    words += _exceptions(plan)
    words += ", counted from its start" if plan.every_n > 1 else ""
    return f"{words}, {zone}" if zone else words


def _day_words(plan: Plan) -> str:
    every = f"every {plan.every_n} {plan.unit}s" if plan.every_n > 1 else ""
    if plan.both and len(plan.weekdays) == len(plan.month_days) == 1:
        return f"every {WEEKDAYS[plan.weekdays[0]]} the {ordinal(plan.month_days[0])}"
    if plan.both:
        return f"every {_weekdays(plan.weekdays)} *-*-{_listed(plan.month_days)}"
    # Numbers last: "the 5th and the first Monday" would be the fifth and the first Monday.
    monthly = [
        f"the {position_word(place)} {WEEKDAYS[day]}"
        for place, day in sorted(plan.nth, key=lambda one: (one[0] < 0, one))
    ]
    monthly += [f"the {position_word(place)} weekday" for place in plan.working]
    monthly += [f"the weekday nearest to the {ordinal(day)}" for day in plan.nearest]
    monthly += [f"the {ordinal(day)}" for day in plan.month_days if day > 0]
    monthly += [f"the {position_word(day)} day" for day in plan.month_days if day < 0]
    dates = [f"{day} {MONTHS[month - 1]}" for month, day in plan.dates]
    weekly = f"every {_weekdays(plan.weekdays)}" if plan.weekdays else ""
    shorter = " or the last day" if _clamped(plan) else ""
    if every:
        named = [*monthly, *dates, *([_weekdays(plan.weekdays)] if weekly else [])]
        return f"{every} on {join_words(named)}{shorter}" if named else every
    if not monthly and not dates:
        return weekly or ("every day" if _needs_every_day(plan) else "")
    of_month = " of every month" if monthly and not plan.months and not weekly and not dates else ""
    return f"on {join_words([*monthly, *dates, *([weekly] if weekly else [])])}{shorter}{of_month}"


def _needs_every_day(plan: Plan) -> bool:
    """Whether the words must name the day, because steps alone would be an interval from the start."""
    return plan.steps is None or not (
        plan.steps.minutes or plan.steps != Steps(plan.steps.step) or plan.months
    )


def _steps(steps: Steps) -> str:
    words = f"every {length_words(timedelta(seconds=steps.step))}"
    if steps.minutes:
        words += f" at {join_words(f':{minute:02}' for minute in steps.minutes)}"
    if (steps.first, steps.last) != (0, DAY_S - 1):
        words += f" between {_time(steps.first)} and {_time(steps.last)}"
    return words


def _exceptions(plan: Plan) -> str:
    items = _runs(plan.except_weekdays, WEEKDAYS, 0) + _runs(plan.except_months, MONTHS, 1)
    items += [f"the {ordinal(day)}" for day in plan.except_month_days]
    items += [_calendar(name) for name in plan.excluded]
    only = f", only on {join_words(map(_calendar, plan.only))}" if plan.only else ""
    return (f", except {join_words(items)}" if items else "") + only


def _calendar(name: str) -> str:
    return name if name == "holidays" else f"calendar {name}"


def _weekdays(days: tuple[int, ...]) -> str:
    return "weekday" if days == WORKING_DAYS else join_words(_runs(days, WEEKDAYS, 0))


def _runs(values: Sequence[int], names: Sequence[str], first: int) -> list[str]:
    """Return names; three or more consecutive ones as `Monday to Thursday`."""
    shown: list[str] = []
    for run in group_consecutive(values):
        words = [names[value - first] for value in run]
        shown += [f"{words[0]} to {words[-1]}"] if len(run) > 2 else words
    return shown


def _time(seconds: int) -> str:
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{clock}:{seconds % 60:02}" if seconds % 60 else clock
