"""Explains why a valid cron expression can never fire, and suggests one that can."""

from __future__ import annotations

from timewright.core.recurrence.cron.days import DayRule, matching_days, max_month_length
from timewright.core.recurrence.cron.fields import FIRST_YEAR, LAST_YEAR, MONTHS, bit_values, quote_shortened
from timewright.core.recurrence.cron.grammar import CronExpression, parse
from timewright.errors import InvalidCron

_DAY, _WEEKDAY, _YEAR = 3, 5, 6
_RULE = f"at least one day from {FIRST_YEAR} to {LAST_YEAR} matches"


def never_fires_error(text: str, expression: CronExpression) -> InvalidCron:
    """Return the error for an impossible date; it names the fields that exclude each other."""
    rule = expression.rule
    without_weekday = rule._replace(week_days=None)
    if (rule.both or rule.week_days is None) and not _possible(without_weekday, None):
        return _day_past_the_month(text, expression)
    if not _possible(rule, None):
        return _days_that_never_meet(text, expression)
    return _years_without_the_day(text, expression)


def _day_past_the_month(text: str, expression: CronExpression) -> InvalidCron:
    day, month = expression.fields[_DAY], expression.fields[4]
    months = list(bit_values(expression.rule.months))
    longest, shortest = (
        max(map(max_month_length, months)),
        min(28 if m == 2 else max_month_length(m) for m in months),
    )
    has = f"{MONTHS[months[0] - 1]} has" if len(months) == 1 else "none has more than"
    most = "at most " if months == [2] else ""
    where = f"month {month}" if len(months) == 1 else f"months {month}"
    what = f"day {day}" if day.isdigit() else f"days {day}" if day[0].isdigit() else day
    fixed, last = (
        _first_possible(text, {_DAY: new}, {_DAY: new, _WEEKDAY: "*"}) for new in (str(shortest), "L")
    )
    return _impossible_error(
        text,
        field=f"{what} in {where} ({has} {most}{longest} days)",
        value=day,
        fix=f"'{fixed}' or 'L' for the last day: '{last}'",
    )


def _days_that_never_meet(text: str, expression: CronExpression) -> InvalidCron:
    day, weekday = expression.fields[_DAY], expression.fields[_WEEKDAY].removeprefix("+")
    fixed = _first_possible(text, {_WEEKDAY: weekday})
    return _impossible_error(
        text,
        field=f"day of month {day} and weekday {weekday} (no day is both)",
        value=expression.fields[_WEEKDAY],
        fix=f"'{fixed}' for either of them",
    )


def _years_without_the_day(text: str, expression: CronExpression) -> InvalidCron:
    year = expression.fields[_YEAR]
    latest = (expression.years or 0).bit_length() - 1
    nearest = matching_days(expression.rule, None).nearest_year(latest)
    return _impossible_error(
        text,
        field=f"year {year} (it has no such day)",
        value=year,
        fix=f"'{_first_possible(text, {_YEAR: str(nearest)})}'",
    )


def _possible(rule: DayRule, years: int | None) -> bool:
    return bool(matching_days(rule, years).years)


def _impossible_error(text: str, *, field: str, value: str, fix: str) -> InvalidCron:
    return InvalidCron(
        f"cron {quote_shortened(text)} never fires", field=field, value=value, rule=_RULE, fix=fix
    )


def _first_possible(text: str, *changes: dict[int, str]) -> str:
    """Return the text with the first change that gives it a matching day."""
    tokens = text.split()
    for change in changes:
        changed = [change.get(place + (len(tokens) == 5), token) for place, token in enumerate(tokens)]
        if parse(" ".join(changed), "any").can_fire:
            return " ".join(changed)
    return "0 0 L * *"
