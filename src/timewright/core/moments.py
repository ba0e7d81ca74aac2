"""Instants, durations and windows.

An instant is an aware datetime in UTC; a datetime without an offset is refused. A duration is a `timedelta`
that is never negative. A window is a pair of instants, both inclusive.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

MIN_STORED_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
MAX_STORED_INSTANT = datetime(2199, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
MAX_DURATION = timedelta(days=36_525)

_MICROSECOND = timedelta(microseconds=1)
_UNIT_MICROS = {
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_PART = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?([smhdw])")
_ISO = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,9}))?S)?)?"
)
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
# Only units of a fixed length; `2 days` is a calendar phrase (`core.recurrence.phrases`).
_WORD = re.compile(r"(?<=[0-9]) *(?:(s)ec(?:ond)?s?|(m)in(?:ute)?s?|(h)(?:ou)?rs?)(?![a-z])(?: +(?=[0-9]))?")
_DURATION_RULE = "a number and a unit (s, m, h, d, w), largest first, or ISO 8601 without years and months"
_DURATION_FIX = "90s, 15m, 1h30m, 1.5h, 7d, PT15M"


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970, the number that a store keeps."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """Return the instant that many microseconds after 1970."""
    return EPOCH + value * _MICROSECOND


def as_instant(moment: datetime, *, field: str = "instant") -> datetime:
    """Return the instant in UTC; raise InvalidInstant for a datetime without an offset or another type."""
    try:
        if moment.tzinfo is UTC:
            return moment
    except AttributeError:
        raise InvalidInstant(
            f"{field} {_shown(str(moment))} is not a point in time",
            field=field,
            value=_shown(str(moment)),
            rule="a datetime with an offset",
            fix="datetime.now(UTC) + timedelta(minutes=5)",
        ) from None
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidInstant(
            f"{field} {moment.isoformat()} has no offset",
            field=field,
            value=moment.isoformat(),
            rule="an instant needs a UTC offset",
            fix=f"{moment.isoformat()}Z, or with an offset: {moment.isoformat()}+01:00",
        )
    return moment.astimezone(UTC)


def parse_instant(text: str, *, field: str = "instant") -> datetime:
    """Parse RFC 3339 with an offset; digits beyond microseconds are dropped."""
    found = _RFC3339.fullmatch(text) if len(text) <= 40 else None
    if found is None:
        raise InvalidInstant(
            f"{field} {_shown(text)} is not a point in time",
            field=field,
            value=text[:64],
            rule="RFC 3339 with an offset",
            fix="2026-03-10T12:00:00Z or 2026-03-10T13:00:00+01:00",
        )
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    if offset is None:
        raise InvalidInstant(
            f"{field} {_shown(text)} has no offset",
            field=field,
            value=text,
            rule="an instant needs a UTC offset",
            fix=f"{text}Z, or with an offset: {text}+01:00",
        )
    written = f"{year}-{month}-{day}T{hour}:{minute}:{second or '00'}.{(fraction or '0')[:6]:0<6}"
    try:
        # Some Python versions accept 24:00 as the next day, and offsets with 75 minutes.
        if hour > "23" or offset[4:] > "59":
            raise ValueError("hour must be in 0..23, and the minutes of an offset in 0..59")
        return datetime.fromisoformat(written + offset.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInstant(
            f"{field} {_shown(text)} does not exist: {error}",
            field=field,
            value=text,
            rule="a day of the calendar, an hour 0-23, a minute and second 0-59, an offset under 24 h",
            fix="2026-03-10T12:00:00Z",
        ) from None


def parse_duration(text: str, *, field: str = "duration") -> timedelta:
    """Parse `90s`, `15m`, `1h30m`, `1.5h`, `7d`, `5 minutes` or `PT15M`; not months and years."""
    trimmed = text.strip(" \t") if len(text) <= 64 else ""
    total = _iso_micros(trimmed) if trimmed[:1] in ("P", "p") else _unit_micros(trimmed.lower())
    if total is None:
        total = _unit_micros(_shortened(trimmed))
    if total is not None and total > MAX_DURATION // _MICROSECOND:
        raise _too_long(_shown(text), field=field)
    if total is None:
        raise InvalidDuration(
            f"{field} {_shown(text)} is not a duration",
            field=field,
            value=text[:64],
            rule=_DURATION_RULE,
            fix=_duration_hint(trimmed),
        )
    return check_duration(timedelta(microseconds=total), field=field)


def as_duration(length: str | timedelta, *, field: str = "duration") -> timedelta:
    """Return a duration from a timedelta or its text; a bare number is refused because it has no unit."""
    if isinstance(length, str):
        return parse_duration(length, field=field)
    if isinstance(length, timedelta):
        return length
    raise InvalidDuration(
        f"{field} {_shown(str(length))} is not a duration",
        field=field,
        value=_shown(str(length)),
        rule="text with a unit, or a timedelta",
        fix=_duration_hint(str(length)[:64]),
    )


def check_duration(duration: timedelta, *, field: str = "duration") -> timedelta:
    """Return the duration; raise InvalidDuration if it is negative, over 100 years, or not a timedelta."""
    try:
        fits = ZERO <= duration <= MAX_DURATION
    except TypeError:
        raise InvalidDuration(
            f"{field} {_shown(str(duration))} is not a duration",
            field=field,
            value=_shown(str(duration)),
            rule="a timedelta",
            fix="timedelta(seconds=90)",
        ) from None
    if not fits:
        raise _too_long(str(duration), field=field)
    return duration


def from_ms(value: float, *, field: str) -> timedelta:
    """Return a duration from milliseconds, for fields whose name ends in `_ms`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not value.is_integer()):
        raise InvalidDuration(
            f"{field} {_shown(str(value))} is not a number of milliseconds",
            field=field,
            value=value,
            rule="a whole number of milliseconds, 0 or more",
            fix="60000 for a minute",
        )
    if value < 0 or value > MAX_DURATION / timedelta(milliseconds=1):
        raise InvalidDuration(
            f"{field} is out of range",
            field=field,
            # Python refuses to print integers with thousands of digits.
            value=value if -(2**64) < value < 2**64 else "a very large number",
            rule="between 0 and 100 years of milliseconds",
            fix="60000 for a minute",
        )
    return timedelta(milliseconds=int(value))


def format_duration(duration: timedelta) -> str:
    """Format a duration in canonical form: `1h30m`, `1m30s`, `0s`, `-7s`."""
    if duration < ZERO:
        return f"-{format_duration(-duration)}"
    rest = duration // _MICROSECOND
    parts: list[str] = []
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNIT_MICROS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        seconds, fraction = divmod(rest, 1_000_000)
        parts.append(f"{seconds}.{fraction:06d}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def format_instant(moment: datetime) -> str:
    """Format an instant as RFC 3339 in UTC, with microseconds only if it has any."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Window(Struct, frozen=True):
    """The active window of a schedule: from `start` to `end`, both inclusive; None is unbounded."""

    start: datetime | None = None
    end: datetime | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.end < self.start:
            raise InvalidInput(
                f"end_at {format_instant(self.end)} is before start_at {format_instant(self.start)}",
                field="end_at",
                value=format_instant(self.end),
                rule="end_at is not before start_at",
                fix="swap them, or leave end_at out",
            )

    def contains(self, moment: datetime) -> bool:
        """Whether the instant is inside; both ends are inclusive."""
        after_start = self.start is None or self.start <= moment
        return after_start and (self.end is None or moment <= self.end)


def check_storable(moment: datetime, *, field: str) -> datetime:
    """Return the instant in UTC; raise InvalidInstant outside the storable range (years 2000 to 2199)."""
    moment = as_instant(moment, field=field)
    if not MIN_STORED_INSTANT <= moment <= MAX_STORED_INSTANT:
        raise InvalidInstant(
            f"{field} {format_instant(moment)} is out of range",
            field=field,
            value=format_instant(moment),
            rule="instants must be between the years 2000 and 2199",
            fix="2026-03-10T12:00:00Z",
        )
    return moment


def _unit_micros(text: str) -> int | None:
    total, position, last = 0, 0, math.inf
    for part in _PART.finditer(text):
        whole, fraction, unit = part.groups()
        size = _UNIT_MICROS[unit]
        is_last = part.end() == len(text)
        if part.start() != position or size >= last or (fraction and not is_last):
            return None
        total += int(whole) * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
        position, last = part.end(), size
    return total if text and position == len(text) else None


def _shortened(text: str) -> str:
    """Abbreviate unit names: `5 minutes` to `5m`, `1 hour 30 min` to `1h30m`, `hour` to `1h`."""
    text = f"1{text}" if text.lower() in ("second", "minute", "hour") else text
    return _WORD.sub(lambda found: next(filter(None, found.groups())), text.lower())


def _iso_micros(text: str) -> int | None:
    found = _ISO.fullmatch(text.upper())
    if found is None or text[-1:] in "PpTt":
        return None
    weeks, days, hours, minutes, seconds, fraction = found.groups()
    total = 0
    for count, unit in ((weeks, "w"), (days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")):
        total += int(count or 0) * _UNIT_MICROS[unit]
    return total + int((fraction or "0")[:6].ljust(6, "0"))


def _duration_hint(text: str) -> str:
    if text.isascii() and text.isdigit() and text.strip("0"):
        return f"{text}s for seconds or {text}m for minutes"
    if text.startswith("-"):
        return f"{text[1:]}: a duration is never negative"
    if text.lower().endswith("ms"):
        return "write milliseconds as a fraction (0.5s) or use the field that ends in _ms"
    nearly = re.fullmatch(r"([0-9]{1,9}) *(?:(d)ays?|(w)eeks?|([smhdw]))", text.lower())
    if nearly is not None:
        return "".join(filter(None, nearly.groups()))
    if text[:1] in ("P", "p"):
        return "PT15M for minutes; months and years are calendar steps, use a cron trigger"
    return _DURATION_FIX


def _too_long(shown: str, *, field: str) -> InvalidDuration:
    return InvalidDuration(
        f"{field} {shown} is out of range",
        field=field,
        value=shown,
        rule="between 0 and 100 years",
        fix=_DURATION_FIX,
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 48 else text[:45] + "...")
