"""The cron trigger: an expression in a time zone, as a set of instants, and warnings about it.

The set depends only on the expression, the zone, the installed zone data and the policy for clock changes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import get_args

from timewright.core.moments import EPOCH, as_instant
from timewright.core.recurrence import ZonedTrigger
from timewright.core.recurrence.cron.days import matching_days, max_month_length
from timewright.core.recurrence.cron.description import describe_cron
from timewright.core.recurrence.cron.fields import (
    DAY,
    FIELDS,
    FIRST_YEAR,
    HOUR,
    LAST_YEAR,
    MINUTE,
    SECOND,
    WEEKDAY,
    CronField,
    bit_values,
    parse_number,
    quote_shortened,
)
from timewright.core.recurrence.cron.grammar import CronExpression, parse
from timewright.core.recurrence.offset_periods import DstPolicy, offset_periods
from timewright.core.recurrence.search import OccurrenceSearch
from timewright.core.recurrence.words import MONTHS
from timewright.core.zones import DEFAULT_ZONE
from timewright.errors import InvalidCron, InvalidInput

MAX_KEY_LENGTH = 256

_WHOLE = {"second": "minute", "minute": "hour", "hour": "day"}

_DAY, _WEEKDAY, _YEAR = 3, 5, 6
_RULE = f"at least one day from {FIRST_YEAR} to {LAST_YEAR} matches"


class Cron(ZonedTrigger, frozen=True, tag="cron", dict=True):
    """A cron expression in a zone; `dst` is the policy for clock changes, `key` the seed of `H` values."""

    expression: str
    zone: str = DEFAULT_ZONE
    dst: DstPolicy = "vixie"
    key: str | None = None

    def __post_init__(self) -> None:
        _check(self.expression, self.dst, self.key)
        self._set_zone(self.zone)
        self._search  # noqa: B018 - compiling checks the expression; the result is cached

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence strictly after the instant, up to the year 9999."""
        since = (moment if moment.tzinfo is UTC else as_instant(moment)) - EPOCH
        instant = since.days * 86_400 + since.seconds + 1 if since.days >= 0 else 0
        found = self._search.next_from(instant)
        return None if found is None else EPOCH + timedelta(0, found)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the last occurrence strictly before the instant, back to 1970."""
        since = as_instant(moment) - EPOCH
        within = 0 if since.microseconds else 1
        found = self._search.last_to(since.days * 86_400 + since.seconds - within)
        return None if found is None else EPOCH + timedelta(0, found)

    def describe(self) -> str:
        """Return words: `at 09:00 on Monday through Friday, Europe/Berlin time`."""
        parsed = parse(self.expression, self.key)
        words = describe_cron(parsed)
        return words if self.zone == "UTC" and not parsed.is_wall_clock else f"{words}, {self.zone_words}"

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about parts of the expression that are probably not intended."""
        return lint_cron(parse(self.expression, self.key))

    @cached_property
    def _search(self) -> OccurrenceSearch:
        return _compiled(self.expression, self.zone, self.dst, self.key)


@lru_cache(maxsize=1024)
def _compiled(text: str, zone: str, dst: DstPolicy, key: str | None) -> OccurrenceSearch:
    """Compile an expression; cached, so equal triggers share the result."""
    expression = parse(text, key)
    if not expression.can_fire:
        raise never_fires_error(text, expression)
    days = None if expression.every_day else matching_days(expression.rule, expression.years)
    policy = "match" if dst == "vixie" and expression.is_interval else dst
    return OccurrenceSearch(
        seconds=expression.seconds,
        minutes=expression.minutes,
        hours=expression.hours,
        days=days,
        periods=offset_periods(zone, policy),
    )


def _check(expression: object, dst: object, key: object) -> None:
    """Check the types of constructor arguments, which no decoder has checked."""
    if not isinstance(expression, str):
        raise InvalidCron(
            f"cron {ascii(expression)[:60]} is not text",
            field="expression",
            value=expression,
            rule="an expression is text with 5 to 7 fields",
            fix="'0 9 * * 1-5'",
        )
    if dst not in get_args(DstPolicy):
        raise InvalidInput(
            f"dst {ascii(dst)[:60]} is not a policy",
            field="dst",
            value=dst,
            rule=f"one of {', '.join(get_args(DstPolicy))}",
            fix="vixie: once a day for fixed times, every time for the rest",
        )
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= MAX_KEY_LENGTH):
        raise InvalidInput(
            f"key {ascii(key)[:60]} is not a key for H",
            field="key",
            value=key,
            rule=f"text of 1 to {MAX_KEY_LENGTH} characters that never changes, because it decides H",
            fix="use the id of the schedule",
        )


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


def never_fires_error(text: str, expression: CronExpression) -> InvalidCron:
    """Return the error for an impossible date; it names the fields that exclude each other."""
    rule, (*_, day, _, weekday, year) = expression.rule, expression.fields
    without_weekday = rule._replace(week_days=None)
    if (rule.both or rule.week_days is None) and not matching_days(without_weekday, None).years:
        value, (field, fix) = day, _day_past_the_month(text, expression)
    elif not matching_days(rule, None).years:
        value, weekday = weekday, weekday.removeprefix("+")
        field = f"day of month {day} and weekday {weekday} (no day is both)"
        fix = f"'{_first_possible(text, {_WEEKDAY: weekday})}' for either of them"
    else:
        latest = (expression.years or 0).bit_length() - 1
        nearest = matching_days(rule, None).nearest_year(latest)
        value, field = year, f"year {year} (it has no such day)"
        fix = f"'{_first_possible(text, {_YEAR: str(nearest)})}'"
    return InvalidCron(
        f"cron {quote_shortened(text)} never fires", field=field, value=value, rule=_RULE, fix=fix
    )


def _day_past_the_month(text: str, expression: CronExpression) -> tuple[str, str]:
    """Return the days that the months lack, and a fix."""
    day, month = expression.fields[_DAY], expression.fields[4]
    months = list(bit_values(expression.rule.months))
    longest = max(map(max_month_length, months))
    shortest = min(28 if m == 2 else max_month_length(m) for m in months)
    has = f"{MONTHS[months[0] - 1]} has" if len(months) == 1 else "none has more than"
    most = "at most " if months == [2] else ""
    where = f"month {month}" if len(months) == 1 else f"months {month}"
    what = f"day {day}" if day.isdigit() else f"days {day}" if day[0].isdigit() else day
    fixed, last = (
        _first_possible(text, {_DAY: new}, {_DAY: new, _WEEKDAY: "*"}) for new in (str(shortest), "L")
    )
    return (
        f"{what} in {where} ({has} {most}{longest} days)",
        f"'{fixed}' or 'L' for the last day: '{last}'",
    )


def _first_possible(text: str, *changes: dict[int, str]) -> str:
    """Return the text with the first change that gives it a matching day."""
    tokens = text.split()
    for change in changes:
        changed = [change.get(place + (len(tokens) == 5), token) for place, token in enumerate(tokens)]
        if parse(" ".join(changed), "any").can_fire:
            return " ".join(changed)
    return "0 0 L * *"
