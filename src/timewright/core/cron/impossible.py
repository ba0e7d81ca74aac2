"""Why an expression that reads well can never fire, and the nearest one that can."""

from __future__ import annotations

from timewright.core.cron.days import DayRule, length_of, matching_days
from timewright.core.cron.fields import FIRST_YEAR, LAST_YEAR, MONTHS, shown, values
from timewright.core.cron.grammar import Expression, parse
from timewright.errors import InvalidCron

_DAY, _WEEKDAY, _YEAR = 3, 5, 6
_RULE = f"at least one day from {FIRST_YEAR} to {LAST_YEAR} matches"


def never_fires(text: str, expression: Expression) -> InvalidCron:
    """The refusal of an impossible date; it names the fields that exclude each other."""
    rule = expression.rule
    without_weekday = rule._replace(week_days=None)
    if (rule.both or rule.week_days is None) and not _possible(without_weekday, None):
        return _day_past_the_month(text, expression)
    if not _possible(rule, None):
        return _days_that_never_meet(text, expression)
    return _years_without_the_day(text, expression)


def _day_past_the_month(text: str, expression: Expression) -> InvalidCron:
    day, month = expression.fields[_DAY], expression.fields[4]
    months = list(values(expression.rule.months))
    longest, shortest = max(map(length_of, months)), min(28 if m == 2 else length_of(m) for m in months)
    has = f"{MONTHS[months[0] - 1]} has" if len(months) == 1 else "none has more than"
    most = "at most " if months == [2] else ""
    where = f"month {month}" if len(months) == 1 else f"months {month}"
    what = f"day {day}" if day.isdigit() else f"days {day}" if day[0].isdigit() else day
    fixed, last = (
        _first_possible(text, {_DAY: new}, {_DAY: new, _WEEKDAY: "*"}) for new in (str(shortest), "L")
    )
    return _refusal(
        text,
        field=f"{what} in {where} ({has} {most}{longest} days)",
        value=day,
        fix=f"'{fixed}' or 'L' for the last day: '{last}'",
    )


def _days_that_never_meet(text: str, expression: Expression) -> InvalidCron:
    day, weekday = expression.fields[_DAY], expression.fields[_WEEKDAY].removeprefix("+")
    fixed = _first_possible(text, {_WEEKDAY: weekday})
    return _refusal(
        text,
        field=f"day of month {day} and weekday {weekday} (no day is both)",
        value=expression.fields[_WEEKDAY],
        fix=f"'{fixed}' for either of them",
    )


def _years_without_the_day(text: str, expression: Expression) -> InvalidCron:
    year = expression.fields[_YEAR]
    latest = (expression.years or 0).bit_length() - 1
    nearest = matching_days(expression.rule, None).year_near(latest)
    return _refusal(
        text,
        field=f"year {year} (it has no such day)",
        value=year,
        fix=f"'{_first_possible(text, {_YEAR: str(nearest)})}'",
    )


def _possible(rule: DayRule, years: int | None) -> bool:
    return bool(matching_days(rule, years).years)


def _refusal(text: str, *, field: str, value: str, fix: str) -> InvalidCron:
    return InvalidCron(f"cron {shown(text)} never fires", field=field, value=value, rule=_RULE, fix=fix)


def _first_possible(text: str, *changes: dict[int, str]) -> str:
    """The text with the first change of fields that leaves it a matching day."""
    tokens = text.split()
    for change in changes:
        changed = [change.get(place + (len(tokens) == 5), token) for place, token in enumerate(tokens)]
        if parse(" ".join(changed), "any").can_fire:
            return " ".join(changed)
    return "0 0 L * *"
