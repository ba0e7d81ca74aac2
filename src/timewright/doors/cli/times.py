"""Instants and lengths of time as people read them: in the local zone, and how far away."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from timewright.core.moments import DAY, HOUR, MINUTE, SECOND, ZERO, parse_duration, parse_instant
from timewright.errors import TimewrightError

INSTANT = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")
# A measured length of time, finer than anyone reads; one that somebody set has no fraction.
_MEASURED = re.compile(r"(?<![\w.])-?(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m)?[0-9]+\.[0-9]+s\b")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6}))?)?")
_ZONES = "zoneinfo/"


def local_zone(now: datetime, *, localtime: Path = Path("/etc/localtime")) -> tzinfo:
    """The zone of this machine: `TZ`, else what the system is set to, else its offset right now."""
    named = os.environ.get("TZ", "").lstrip(":")
    if not named and localtime.is_symlink():
        named = str(localtime.readlink()).partition(_ZONES)[2]
    try:
        if named:
            return ZoneInfo(named)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    offset = now.astimezone().utcoffset() or ZERO
    return timezone(offset) if offset else UTC


def zone_name(zone: tzinfo) -> str:
    """What a zone is called."""
    return zone.key if isinstance(zone, ZoneInfo) else str(zone.tzname(None) or zone)


def clock_time(moment: datetime, *, now: datetime, zone: tzinfo) -> str:
    """An instant on a list: only the time if it is today, and its offset only if that is not now's."""
    local, today = moment.astimezone(zone), now.astimezone(zone)
    if local.date() == today.date():
        text = f"{local:%H:%M:%S}"
    else:
        text = f"{local:%Y-%m-%d} {_to_the_minute(local)}"
    return text if local.utcoffset() == today.utcoffset() else f"{text} {_offset(local)}"


def full_time(moment: datetime, *, zone: tzinfo, seconds: bool = False) -> str:
    """An instant with everything: `Mon 2026-11-16 09:00 +01:00`; seconds where there are some."""
    local = moment.astimezone(zone)
    time = f"{local:%H:%M:%S}" if seconds else _to_the_minute(local)
    return f"{local:%a %Y-%m-%d} {time} {_offset(local)}"


def next_time(moment: datetime, *, now: datetime, zone: tzinfo) -> str:
    """The same, without the date if it is today."""
    local, today = moment.astimezone(zone), now.astimezone(zone)
    same = (local.date(), local.utcoffset()) == (today.date(), today.utcoffset())
    return f"{local:%H:%M:%S}" if same else full_time(moment, zone=zone)


def away(moment: datetime, *, now: datetime) -> str:
    """How far an instant is: `in 4 s`, `2 min ago`."""
    if abs(moment - now) < SECOND / 2:
        return "now"
    if moment >= now:
        return f"in {rough(moment - now)}"
    return f"{rough(now - moment)} ago"


def rough(length: timedelta) -> str:
    """A length of time in its largest unit, to read and not to count with."""
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if length >= 2 * size:
            return f"{round(length / size)} {unit}"
    return f"{round(length / SECOND)} s"


def brief(length: timedelta) -> str:
    """A measured length of time: `12 ms`, `1.4 s`, `3 min 20 s`."""
    if length < SECOND:
        return f"{round(length / timedelta(milliseconds=1))} ms"
    if length < MINUTE:
        return f"{length / SECOND:.1f} s"
    if length < HOUR:
        return f"{length // MINUTE} min {length % MINUTE // SECOND} s"
    return f"{length // HOUR} h {length % HOUR // MINUTE} min"


def instant_in(text: object) -> datetime | None:
    """The instant a text of an answer spells, if it spells nothing else."""
    return parse_instant(text) if isinstance(text, str) and INSTANT.fullmatch(text) else None


def duration_in(text: object) -> timedelta | None:
    """The duration a text of an answer spells."""
    try:
        return parse_duration(text) if isinstance(text, str) else None
    except TimewrightError:
        return None


def retold(sentence: str, *, now: datetime, zone: tzinfo) -> str:
    """A sentence with its instants and measured lengths of time as people here read them."""
    here = INSTANT.sub(lambda found: next_time(parse_instant(found[0]), now=now, zone=zone), sentence)
    return _MEASURED.sub(lambda found: measured(found[0]), here)


def measured(text: str) -> str:
    """A measured length of time, short; any other text as it is."""
    sign, bare = ("-", text[1:]) if text.startswith("-") else ("", text)
    length = duration_in(bare) if _MEASURED.fullmatch(text) else None
    return f"{sign}{brief(length)}" if length is not None else text


def today_at(text: str, *, now: datetime, zone: tzinfo) -> tuple[datetime, timedelta] | None:
    """The instant that `14:02:20` means today in this zone, and how much finer it could have been said."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second, fraction = found.groups()
    local = now.astimezone(zone).replace(
        hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=0, fold=0
    )
    moment = local.astimezone(UTC) + timedelta(microseconds=int((fraction or "0").ljust(6, "0")))
    if fraction:
        return moment, timedelta(seconds=10.0 ** -len(fraction))
    return moment, SECOND if second else MINUTE


def _to_the_minute(local: datetime) -> str:
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def _offset(local: datetime) -> str:
    return local.isoformat()[-6:] if local.utcoffset() else "+00:00"
