"""The stretches of time a budget counts in: of the calendar in a zone, or of a fixed length since 1970."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from timewright.core.moments import DAY, EPOCH, HOUR, MINUTE, SECOND, parse_duration, spell_duration
from timewright.core.zones import zone as zone_of
from timewright.errors import InvalidDuration, TimewrightError

CALENDAR = ("hour", "day", "week", "month")
LONGEST = 366 * DAY


class Period(Struct, frozen=True):
    """From an instant on, up to another that is already the next one's."""

    start: datetime
    end: datetime


def check_period(text: str, *, field: str = "period") -> str:
    """A period in the one form it is kept in, or a refusal."""
    word = text.strip().lower()
    if word in CALENDAR:
        return word
    try:
        length = parse_duration(text, field=field)
    except TimewrightError:
        raise _refused(text, "is not a period", field=field) from None
    if not MINUTE <= length <= LONGEST:
        raise _refused(text, "is too short or too long", field=field)
    return spell_duration(length)


@lru_cache(maxsize=256)
def period_at(text: str, zone: str, now: datetime) -> Period:
    """The period in which an instant lies."""
    if text not in CALENDAR:
        length = parse_duration(text, field="period")
        start = EPOCH + (now - EPOCH) // length * length
        return Period(start, start + length)
    place = zone_of(zone)
    local = now.astimezone(place)
    if text == "hour":
        # Counted back on the clock of the wall: where that jumps by half an hour, so do the hours.
        start = now - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return Period(start, start + HOUR)
    first, following = _days(text, local.date())
    start, end = _first_instant(first, place), _first_instant(following, place)
    if end <= now:
        # The clocks went back over midnight: what comes again is no longer yesterday.
        start, end = end, _first_instant(_days(text, following)[1], place)
    return Period(start, end)


def _days(text: str, day: date) -> tuple[date, date]:
    """The first day of a period, and that of the next."""
    if text == "day":
        return day, day + DAY
    if text == "week":
        first = day - day.weekday() * DAY
        return first, first + 7 * DAY
    first = day.replace(day=1)
    return first, (first + 31 * DAY).replace(day=1)


def _first_instant(day: date, place: ZoneInfo) -> datetime:
    """When a day begins in a zone; where its midnight is jumped over, at the jump."""
    midnight = datetime.combine(day, time(), place)
    early, late = midnight.replace(fold=1).astimezone(UTC), midnight.astimezone(UTC)
    if late <= early:
        return late
    offset = late.astimezone(place).utcoffset()
    while late - early > SECOND:
        middle = early + (late - early) // SECOND // 2 * SECOND
        if middle in (early, late):
            break
        if middle.astimezone(place).utcoffset() == offset:
            late = middle
        else:
            early = middle
    return late


def _refused(text: str, why: str, *, field: str) -> InvalidDuration:
    return InvalidDuration(
        f"{field} {text[:40]!r} {why}",
        field=field,
        value=text[:40],
        rule=f"hour, day, week or month, or a length from 1m to {spell_duration(LONGEST)}",
        fix=f"{field}: day, or {field}: 15m",
    )
