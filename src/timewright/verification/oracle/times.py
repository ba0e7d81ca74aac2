"""Instants and durations as whole microseconds."""

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
_ID_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def parse_duration(text: str | None, default: int | None = None) -> int:
    """Parse an ISO 8601 duration: `PT90.5S`, `P1DT3600S`."""
    if text is None:
        return default or 0
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration")
    weeks, days, hours, minutes, seconds, fraction = found.groups()
    whole = int(weeks or 0) * 7 * DAY + int(days or 0) * DAY + int(hours or 0) * HOUR
    return (
        whole + int(minutes or 0) * MINUTE + int(seconds or 0) * SECOND + int((fraction or "0").ljust(6, "0"))
    )


def parse_instant(text: str) -> int:
    """Parse an RFC 3339 instant."""
    return to_micros(datetime.fromisoformat(text))


def to_micros(moment: datetime) -> int:
    """Convert an instant to microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """The reverse of `to_micros`."""
    return _EPOCH + timedelta(microseconds=value)


def format_instant(value: int | None) -> str:
    """Format an instant for people."""
    return "never" if value is None else from_micros(value).isoformat().replace("+00:00", "Z")


def hash_fraction(*parts: str) -> float:
    """The documented jitter hash: six bytes of BLAKE2b over the parts, as a number below one."""
    return int.from_bytes(blake2b("\x1f".join(parts).encode(), digest_size=6).digest(), "big") / 2**48


def id_created_at(run_id: str) -> int | None:
    """Return when an id was created: its first ten letters encode the millisecond. None for other texts."""
    tail = run_id.rpartition("_")[2]
    if len(tail) != 26 or any(letter not in _ID_ALPHABET for letter in tail):
        return None
    value = 0
    for letter in tail[:10]:
        value = value * 32 + _ID_ALPHABET.index(letter)
    return value * 1000
