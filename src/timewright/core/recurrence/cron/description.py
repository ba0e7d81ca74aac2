"""Describes a cron expression in words: the time of day, then the days, then the years."""

from __future__ import annotations

from collections.abc import Callable

from timewright.core.recurrence.cron.days import MonthDays, WeekDays
from timewright.core.recurrence.cron.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    WEEKDAYS,
    CronField,
    bit_values,
    step_bits,
)
from timewright.core.recurrence.cron.grammar import CronExpression
from timewright.core.recurrence.words import MONTHS, group_consecutive, join_words, ordinal, position_word

_MAX_TIMES = 8


def describe_cron(expression: CronExpression) -> str:
    """Return when the expression fires, in words."""
    years = f"in {_spans(expression.years, str)}" if expression.years is not None else ""
    return " ".join(part for part in (_time(expression), _date(expression), years) if part)


# ---------------------------------------------------------------------------------------- the time of day


def _time(expression: CronExpression) -> str:
    seconds, minutes, hours = expression.seconds, expression.minutes, expression.hours
    if _has_few_times(expression):
        return _times(seconds, minutes, hours)
    if seconds == 1:
        return _minutes(minutes, hours)
    if minutes == MINUTE.every and hours == HOUR.every:
        return _seconds(seconds) + (" of every minute" if _step(SECOND, seconds) is None else "")
    return f"{_seconds(seconds)} of {_minutes_named(minutes, hours)}"


def _has_few_times(expression: CronExpression) -> bool:
    """Whether the times of day are few enough to list."""
    few = expression.minutes.bit_count() * expression.hours.bit_count() <= _MAX_TIMES
    return few and not any(text.startswith(("*", "H/")) for text in expression.fields[1:3])


def _times(seconds: int, minutes: int, hours: int) -> str:
    """List a few times of day."""
    if seconds.bit_count() == 1:
        second = seconds.bit_length() - 1
        tail = f":{second:02}" if second else ""
        return "at " + join_words(
            f"{h:02}:{m:02}{tail}" for h in bit_values(hours) for m in bit_values(minutes)
        )
    clock = join_words(f"{h:02}:{m:02}" for h in bit_values(hours) for m in bit_values(minutes))
    return f"{_seconds(seconds)} of {clock}"


def _seconds(seconds: int) -> str:
    step = _step(SECOND, seconds)
    return _numbered("second", seconds) if step is None else _every(step, "second", 60, "minute")


def _minutes(minutes: int, hours: int) -> str:
    step = _step(MINUTE, minutes)
    if step is not None:
        return _every(step, "minute", 60, "hour") + _during(hours)
    if minutes != 1:
        return f"{_numbered('minute', minutes)} of {_hours(hours)}"
    step = _step(HOUR, hours)
    if step is not None:
        return _every(step, "hour", 24, "start of the day")
    return _hours(hours) if _is_run(hours) else f"at the start of {_hours(hours)}"


def _minutes_named(minutes: int, hours: int) -> str:
    """Describe the minutes that the seconds belong to."""
    step = _step(MINUTE, minutes)
    if step is None:
        return f"{_numbered('minute', minutes).removeprefix('at ')} of {_hours(hours)}"
    return f"every {_ordinal(step)}minute{_during(hours)}"


def _during(hours: int) -> str:
    """Describe the hours in which smaller steps apply."""
    if hours == HOUR.every:
        return ""
    if _is_run(hours):
        first, last = (hours & -hours).bit_length() - 1, hours.bit_length() - 1
        return f" from {first:02}:00 through {last:02}:59"
    return f" of {_hours(hours)}"


def _hours(hours: int) -> str:
    step = _step(HOUR, hours)
    if step is not None:
        return f"every {_ordinal(step)}hour"
    if _is_run(hours) and hours.bit_count() > 1:
        first, last = (hours & -hours).bit_length() - 1, hours.bit_length() - 1
        return f"every hour from {first:02}:00 through {last:02}:00"
    return _numbered("hour", hours).removeprefix("at ")


def _every(step: int, unit: str, count: int, whole: str) -> str:
    if step == 1:
        return f"every {unit}"
    return f"every {step} {unit}s" + (f" past the {whole}" if count % step else "")


def _numbered(unit: str, bits: int) -> str:
    return f"at {unit}{'' if bits.bit_count() == 1 else 's'} {_spans(bits, str)}"


# ----------------------------------------------------------------------------------------------- the days


def _date(expression: CronExpression) -> str:
    rule = expression.rule
    some_months = rule.months != MONTH.every
    months = _spans(rule.months, lambda month: MONTHS[month - 1]) if some_months else "the month"
    plain = f" in {months}" if some_months else ""
    month_days = None if rule.month_days is None else "on " + _month_days(rule.month_days, months)
    week_plain = "" if rule.both and month_days else plain
    week_days = None if rule.week_days is None else "on " + _week_days(rule.week_days, months, week_plain)
    if month_days and week_days:
        return f"{month_days}, but only {week_days}" if rule.both else f"{month_days} or {week_days}"
    return month_days or week_days or (f"every day{plain}" if _has_few_times(expression) else plain.strip())


def _month_days(field: MonthDays, months: str) -> str:
    found: list[str] = []
    if field.days:
        step = _step(DAY, field.days)
        unit = "day" if field.days.bit_count() == 1 else "days"
        found.append(f"every {_ordinal(step)}day" if step else f"{unit} {_spans(field.days, str)}")
    # The nearest weekday is in the same month, so that of day 1 is the first.
    found += [
        "the first weekday" if day == 1 else f"the weekday nearest to day {day}"
        for day in bit_values(field.nearest)
    ]
    for back in bit_values(field.before_last):
        found.append(f"the {_ordinal(back)}day before the last day" if back else "the last day")
    if field.last_working:
        found.append("the last weekday")
    return f"{join_words(found)} of {months}"


def _week_days(field: WeekDays, months: str, plain: str) -> str:
    found: list[str] = []
    if field.weekdays == WEEKDAY.every:
        found.append(f"every day of the week{plain}")
    elif field.weekdays:
        found.append(_weekdays(field.weekdays) + plain)
    found += [
        f"the {position_word(nth // 7)} {WEEKDAYS[nth % 7]} of {months}" for nth in bit_values(field.nth)
    ]
    found += [f"the last {WEEKDAYS[weekday]} of {months}" for weekday in bit_values(field.last)]
    return join_words(found)


def _weekdays(bits: int) -> str:
    """Describe weekdays, beginning with Monday."""
    from_monday = bits >> 1 | (bits & 1) << 6
    return _spans(from_monday, lambda day: WEEKDAYS[(day + 1) % 7])


# ---------------------------------------------------------------------------------------------- the words


def _spans(bits: int, name: Callable[[int], str]) -> str:
    """Join the names of values; three or more consecutive ones become `a through c`."""
    words: list[str] = []
    for run in group_consecutive(bit_values(bits)):
        words += [f"{name(run[0])} through {name(run[-1])}"] if len(run) > 2 else [name(n) for n in run]
    return join_words(words)


def _step(field: CronField, bits: int) -> int | None:
    """Return n if the set is every n-th value of a field from its first, else None."""
    if bits.bit_count() < 2 or not bits >> field.low & 1:
        return None
    rest = bits & ~(1 << field.low)
    step = (rest & -rest).bit_length() - 1 - field.low
    return step if bits == step_bits(field.low, field.high, step) else None


def _is_run(bits: int) -> bool:
    """Whether the values are consecutive."""
    low = bits & -bits
    return bits & (bits + low) == 0


def _ordinal(step: int) -> str:
    """Return `2nd `, `3rd `, `4th `; an empty string for 1."""
    return "" if step == 1 else f"{ordinal(step)} "
