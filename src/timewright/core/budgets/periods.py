"""Budget periods: calendar periods in a time zone, or periods of a fixed length counted from 1970."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from timewright.core.moments import DAY, EPOCH, HOUR, MINUTE, SECOND, format_duration, parse_duration
from timewright.core.zones import load_zone as zone_of
from timewright.errors import InvalidDuration, TimewrightError

CALENDAR_PERIODS = ("hour", "day", "week", "month")
MAX_PERIOD = 366 * DAY


class Period(Struct, frozen=True):
    """From `start` (inclusive) to `end` (exclusive)."""

    start: datetime
    end: datetime


def check_period(text: str, *, field: str = "period") -> str:
    """Return a period in canonical form, or raise InvalidDuration."""
    word = text.strip().lower()
    if word in CALENDAR_PERIODS:
        return word
    try:
        length = parse_duration(text, field=field)
    except TimewrightError:
        raise _period_error(text, "is not a period", field=field) from None
    if not MINUTE <= length <= MAX_PERIOD:
        raise _period_error(text, "is too short or too long", field=field)
    return format_duration(length)


@lru_cache(maxsize=256)
def period_at(text: str, zone: str, now: datetime) -> Period:
    """Return the period that contains an instant."""
    if text not in CALENDAR_PERIODS:
        length = parse_duration(text, field="period")
        start = EPOCH + (now - EPOCH) // length * length
        return Period(start, start + length)
    tz = zone_of(zone)
    local = now.astimezone(tz)
    if text == "hour":
        # Counted by the local clock: where it jumps by half an hour, so do the periods.
        start = now - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return Period(start, start + HOUR)
    first, following = _period_days(text, local.date())
    start, end = _first_instant(first, tz), _first_instant(following, tz)
    if end <= now:
        # Clocks went back over midnight: the repeated hour belongs to the new day.
        start, end = end, _first_instant(_period_days(text, following)[1], tz)
    return Period(start, end)


def _period_days(text: str, day: date) -> tuple[date, date]:
    """Return the first day of a period, and the first day of the next one."""
    if text == "day":
        return day, day + DAY
    if text == "week":
        first = day - day.weekday() * DAY
        return first, first + 7 * DAY
    first = day.replace(day=1)
    return first, (first + 31 * DAY).replace(day=1)


def _first_instant(day: date, tz: ZoneInfo) -> datetime:
    """Return when a day begins in a time zone; if midnight is skipped, the instant of the clock change."""
    midnight = datetime.combine(day, time(), tz)
    early, late = midnight.replace(fold=1).astimezone(UTC), midnight.astimezone(UTC)
    if late <= early:
        return late
    offset = late.astimezone(tz).utcoffset()
    while late - early > SECOND:
        middle = early + (late - early) // SECOND // 2 * SECOND
        if middle in (early, late):
            break
        if middle.astimezone(tz).utcoffset() == offset:
            late = middle
        else:
            early = middle
    return late


def _period_error(text: str, why: str, *, field: str) -> InvalidDuration:
    return InvalidDuration(
        f"{field} {text[:40]!r} {why}",
        field=field,
        value=text[:40],
        rule=f"hour, day, week or month, or a length from 1m to {format_duration(MAX_PERIOD)}",
        fix=f"{field}: day, or {field}: 15m",
    )
