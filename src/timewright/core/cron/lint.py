"""What a cron expression says that may not be what was meant; none of it is an error."""

from __future__ import annotations

from timewright.core.cron.days import length_of
from timewright.core.cron.fields import DAY, FIELDS, HOUR, MINUTE, SECOND, WEEKDAY, Field, number, values
from timewright.core.cron.grammar import Expression

_WHOLE = {"second": "minute", "minute": "hour", "hour": "day"}


def warnings(expression: Expression) -> tuple[str, ...]:
    """One sentence for each doubt, with what to write instead."""
    found = [*_either_day(expression), *_missing_days(expression)]
    for field, text in zip(FIELDS, expression.fields, strict=True):
        for item in text.removeprefix("+").split(","):
            found += _steps(field, item)
    return tuple(found)


def _either_day(expression: Expression) -> list[str]:
    """Both day fields set, one of them with a wildcard or with every value."""
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


def _missing_days(expression: Expression) -> list[str]:
    """Days that only some of the months have."""
    rule = expression.rule
    if rule.month_days is None or rule.week_days is not None or rule.month_days.in_every_month():
        return []
    months = list(values(rule.months))
    day = (rule.month_days.days or rule.month_days.nearest).bit_length() - 1
    if months == [2]:
        return ["29 February exists in leap years only; write L for the last day of the month"]
    short = [month for month in months if length_of(month) < day]
    return (
        [f"day {day} is missing in {len(short)} of {len(months)} months; write L for the last day"]
        if short
        else []
    )


def _steps(field: Field, item: str) -> list[str]:
    """Steps that reach one value only, or that do not come out even."""
    head, _, tail = item.partition("/")
    step, size = number(tail), field.high - field.low + 1
    if head != "*" or step < 1:
        return []
    if step >= size:
        return [f"{item} in {field.name} matches only {field.low}; write {field.low}"]
    if field in (SECOND, MINUTE, HOUR) and size % step:
        return [f"{item} in {field.name} starts again each {_WHOLE[field.name]}: the last step is shorter"]
    return []
