"""Formats instants and durations for people, in the local time zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from timewright.clocks import system_zone
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND, ZERO, parse_duration, parse_instant
from timewright.core.zones import load_zone
from timewright.errors import TimewrightError

INSTANT_PATTERN = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")
# A measured duration has a fraction; configured durations do not.
_MEASURED = re.compile(r"(?<![\w.])-?(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m)?[0-9]+\.[0-9]+s\b")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6}))?)?")


def local_zone(now: datetime) -> tzinfo:
    """Return the time zone of this machine, or the present offset if the zone has no name."""
    named = system_zone()
    if named:
        return load_zone(named)
    offset = now.astimezone().utcoffset() or ZERO
    return timezone(offset) if offset else UTC


def zone_name(zone: tzinfo) -> str:
    """Return the name of a zone."""
    return zone.key if isinstance(zone, ZoneInfo) else str(zone.tzname(None) or zone)


def clock_time(moment: datetime, *, now: datetime, zone: tzinfo) -> str:
    """Return an instant for a table: no date if it is today, and the offset only if it differs from now."""
    local, today = moment.astimezone(zone), now.astimezone(zone)
    if local.date() == today.date():
        text = f"{local:%H:%M:%S}"
    else:
        text = f"{local:%Y-%m-%d} {_to_the_minute(local)}"
    return text if local.utcoffset() == today.utcoffset() else f"{text} {_offset(local)}"


def full_time(moment: datetime, *, zone: tzinfo, seconds: bool = False) -> str:
    """Return a full instant: `Mon 2026-11-16 09:00 +01:00`; seconds only if they are not zero."""
    local = moment.astimezone(zone)
    time = f"{local:%H:%M:%S}" if seconds else _to_the_minute(local)
    return f"{local:%a %Y-%m-%d} {time} {_offset(local)}"


def short_time(moment: datetime, *, now: datetime, zone: tzinfo) -> str:
    """Return the full instant, or only the time if it is today."""
    local, today = moment.astimezone(zone), now.astimezone(zone)
    same = (local.date(), local.utcoffset()) == (today.date(), today.utcoffset())
    return f"{local:%H:%M:%S}" if same else full_time(moment, zone=zone)


def time_in_zone(local: str, zone: str, *, screen_zone: tzinfo) -> str:
    """Return an instant in the zone of its schedule, or "" if the terminal has the same offset."""
    if not local or not zone:
        return ""
    moment = datetime.fromisoformat(local)
    here = moment.astimezone(screen_zone)
    if moment.utcoffset() == here.utcoffset():
        return ""
    day = "" if moment.date() == here.date() else f"{moment:%a} "
    return f"{day}{_to_the_minute(moment)} {zone}"


def has_zone(trigger: Mapping[str, Any]) -> bool:
    """Whether a trigger has wall-clock times."""
    return "zone" in trigger or any("zone" in one for one in trigger.get("triggers", ()))


def relative_time(moment: datetime, *, now: datetime) -> str:
    """Return the distance to an instant: `in 4 s`, `2 min ago`."""
    if abs(moment - now) < SECOND / 2:
        return "now"
    if moment >= now:
        return f"in {approximate_duration(moment - now)}"
    return f"{approximate_duration(now - moment)} ago"


def approximate_duration(length: timedelta) -> str:
    """Return a duration rounded to its largest unit."""
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if length >= 2 * size:
            return f"{round(length / size)} {unit}"
    return f"{round(length / SECOND)} s"


def format_duration(length: timedelta) -> str:
    """Return a duration: `12 ms`, `1.4 s`, `3 min 20 s`."""
    if length < SECOND:
        return f"{round(length / timedelta(milliseconds=1))} ms"
    if length < MINUTE:
        return f"{length / SECOND:.1f} s"
    if length < HOUR:
        return f"{length // MINUTE} min {length % MINUTE // SECOND} s"
    return f"{length // HOUR} h {length % HOUR // MINUTE} min"


def parse_instant_or_none(text: object) -> datetime | None:
    """Parse an instant of an answer; None for other values."""
    return parse_instant(text) if isinstance(text, str) and INSTANT_PATTERN.fullmatch(text) else None


def parse_duration_or_none(text: object) -> timedelta | None:
    """Parse a duration of an answer; None for other values."""
    try:
        return parse_duration(text) if isinstance(text, str) else None
    except TimewrightError:
        return None


def localize_times(sentence: str, *, now: datetime, zone: tzinfo) -> str:
    """Return a text with its instants in the local zone and its measured durations shortened."""
    localized = INSTANT_PATTERN.sub(
        lambda found: short_time(parse_instant(found[0]), now=now, zone=zone), sentence
    )
    return _MEASURED.sub(lambda found: shorten_duration(found[0]), localized)


def shorten_duration(text: str) -> str:
    """Return a measured duration in short form; other text stays as it is."""
    sign, bare = ("-", text[1:]) if text.startswith("-") else ("", text)
    length = parse_duration_or_none(bare) if _MEASURED.fullmatch(text) else None
    return f"{sign}{format_duration(length)}" if length is not None else text


def today_at(text: str, *, now: datetime, zone: tzinfo) -> tuple[datetime, timedelta] | None:
    """Return the instant of `14:02:20` today in this zone, and its precision."""
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
