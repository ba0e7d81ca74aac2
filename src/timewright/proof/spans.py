"""Instants and durations as whole microseconds, read from the texts a body holds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?", re.ASCII
)
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def span(text: str | None, default: int | None = None) -> int:
    """A duration in microseconds, as JSON spells it: `PT90.5S`, `P1DT3600S`."""
    if text is None:
        return default or 0
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration")
    weeks, days, hours, minutes, seconds, fraction = found.groups()
    whole = int(weeks or 0) * 7 * DAY + int(days or 0) * DAY + int(hours or 0) * HOUR
    return (
        whole + int(minutes or 0) * MINUTE + int(seconds or 0) * SECOND + int((fraction or "0").ljust(6, "0"))
    )


def instant(text: str) -> int:
    """An instant in microseconds, from RFC 3339."""
    return micros(datetime.fromisoformat(text))


def micros(moment: datetime) -> int:
    """An instant as the number a table keeps."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(value: int) -> datetime:
    """The reverse of `micros`."""
    return _EPOCH + timedelta(microseconds=value)


def spelled(value: int | None) -> str:
    """An instant for a person to read."""
    return "never" if value is None else moment(value).isoformat().replace("+00:00", "Z")


def share(*parts: str) -> float:
    """The documented hash of jitter: six bytes of BLAKE2b over the parts, as a number below one."""
    return int.from_bytes(blake2b("\x1f".join(parts).encode(), digest_size=6).digest(), "big") / 2**48


def made_at(run_id: str) -> int | None:
    """When an id was made: its first ten letters are the millisecond. Nothing if it is no such id."""
    tail = run_id.rpartition("_")[2]
    if len(tail) != 26 or any(letter not in _LETTERS for letter in tail):
        return None
    value = 0
    for letter in tail[:10]:
        value = value * 32 + _LETTERS.index(letter)
    return value * 1000
