"""Warnings about valid cron expressions that probably do not mean what was intended."""

from __future__ import annotations

from timewright.core.recurrence.cron.days import max_month_length
from timewright.core.recurrence.cron.fields import (
    DAY,
    FIELDS,
    HOUR,
    MINUTE,
    SECOND,
    WEEKDAY,
    CronField,
    bit_values,
    parse_number,
)
from timewright.core.recurrence.cron.grammar import CronExpression

_WHOLE = {"second": "minute", "minute": "hour", "hour": "day"}


def lint_cron(expression: CronExpression) -> tuple[str, ...]:
    """Return one sentence per warning, with what to write instead."""
    found = [*_either_day(expression), *_missing_days(expression)]
    for field, text in zip(FIELDS, expression.fields, strict=True):
        for item in text.removeprefix("+").split(","):
            found += _steps(field, item)
    return tuple(found)


def _either_day(expression: CronExpression) -> list[str]:
    """Warn if both day fields are set and one of them matches every day."""
    rule, day, weekday = expression.rule, expression.fields[3], expression.fields[5]
    if rule.both or rule.month_days is None or rule.week_days is None:
        return []
    found = [
        f"{text} in {field.name} with the other day field set means either day, not both;"
        f" write +{weekday} as weekday if both must match"
        for field, text in ((DAY, day), (WEEKDAY, weekday))
        if text.startswith("*")
    ]
    if not found and (rule.month_days.days == DAY.every or rule.week_days.weekdays == WEEKDAY.every):
        found = [
            f"{day} in day of month or {weekday} in weekday is every day; write * in the one that is full"
        ]
    return found


def _missing_days(expression: CronExpression) -> list[str]:
    """Warn about days that only some months have."""
    rule = expression.rule
    if rule.month_days is None or rule.week_days is not None or rule.month_days.in_every_month():
        return []
    months = list(bit_values(rule.months))
    day = (rule.month_days.days or rule.month_days.nearest).bit_length() - 1
    if months == [2]:
        return ["29 February exists in leap years only; write L for the last day of the month"]
    short = [month for month in months if max_month_length(month) < day]
    return (
        [f"day {day} is missing in {len(short)} of {len(months)} months; write L for the last day"]
        if short
        else []
    )


def _steps(field: CronField, item: str) -> list[str]:
    """Warn about steps that match one value only, or that do not divide the range evenly."""
    head, _, tail = item.partition("/")
    step, size = parse_number(tail), field.high - field.low + 1
    if head != "*" or step < 1:
        return []
    if step >= size:
        return [f"{item} in {field.name} matches only {field.low}; write {field.low}"]
    if field in (SECOND, MINUTE, HOUR) and size % step:
        return [f"{item} in {field.name} starts again each {_WHOLE[field.name]}: the last step is shorter"]
    return []
