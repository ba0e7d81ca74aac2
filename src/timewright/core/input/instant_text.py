"""Reads points in time that are written as text: `tomorrow 9am`, or a date without an offset in a zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, tzinfo
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as mi

from timewright.core.input.aliases import snake_case
from timewright.core.input.input_errors import join_path
from timewright.core.moments import parse_duration
from timewright.core.zones import DEFAULT_ZONE, check_zone, load_zone, name_of_zone
from timewright.errors import TimewrightError

# The zone for text without one; called only where it is needed, because it may have to be read.
DefaultZone = str | Callable[[], str]

ZONE_FIELDS = ("zone", "timezone", "time_zone", "tz")
# These look back: `since 9am` is the last 9am.
PAST_FIELDS = frozenset({"since"})

_TRIGGER_FIELDS = frozenset({"once", "at", "anchor", "dtstart"})
# RFC 3339 with an offset, which needs no zone and is checked by the decoder.
_EXACT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]{1,40}(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")
# `since: 24h` is 24 hours ago; where an instant may lie ahead, a length alone is refused.
_LENGTH = re.compile(r"[0-9]{1,9} ?[a-z]{1,12}")


def read_instant_text(
    text: str, *, now: datetime, zone: DefaultZone | tzinfo, field: str, past: bool = False
) -> datetime | str:
    """Return the instant that a text means; an exact one is returned as it is, for the decoder."""
    if _EXACT.fullmatch(text):
        return text
    if past and _LENGTH.fullmatch(text):
        text = f"{text} ago"
    from timewright.core.recurrence.phrases import parse_moment

    found = zone if isinstance(zone, tzinfo) else resolve_zone(zone)
    return parse_moment(text, now=now, zone=found, field=field, past=past).at


def resolve_instants(
    given: Mapping[str, Any], names: Collection[str], *, now: datetime, zone: DefaultZone, path: str = ""
) -> dict[str, Any]:
    """Return the fields with the texts of instants replaced; a zone beside them overrides the default."""
    named = zone_in(given) or zone
    resolved = dict(given)
    for key, value in given.items():
        name = snake_case(key) if isinstance(key, str) else ""
        if isinstance(value, str) and name in names:
            past = name in PAST_FIELDS
            resolved[key] = read_instant_text(
                value, now=now, zone=named, field=join_path(path, name), past=past
            )
    return resolved


def zone_in_text(text: Any) -> str | None:
    """Return the zone that the text of an instant names, if it is one and names one."""
    if not isinstance(text, str) or _EXACT.fullmatch(text):
        return None
    from timewright.core.recurrence.phrases import zone_of_moment

    return zone_of_moment(text)


def describe_instant(at: datetime, *, zone: DefaultZone) -> str:
    """Return how an instant was read, in a zone: `Friday 2026-12-25 at 09:00, Europe/Berlin`."""
    from timewright.core.recurrence.phrases import describe_moment

    name = resolve_zone(zone)
    return describe_moment(at, load_zone(name), name)


def resolve_zone(zone: DefaultZone) -> str:
    """Return the name of the default zone."""
    return zone if isinstance(zone, str) else zone()


def resolve_schedule_instants(
    given: Mapping[str, Any], cls: type, *, now: datetime, zone: DefaultZone
) -> dict[str, Any]:
    """Return the fields of a schedule with the texts of instants replaced, also in its trigger."""
    trigger = given.get("trigger")
    named = zone_in(trigger) or zone
    resolved = resolve_instants(given, instant_fields(cls), now=now, zone=named)
    has_bounds = isinstance(given.get("start_at"), str) or isinstance(given.get("end_at"), str)
    if isinstance(trigger, list | tuple):
        resolved["trigger"] = [_resolve_trigger(one, now=now, zone=zone) for one in trigger]
    elif trigger is not None:
        resolved["trigger"] = _resolve_trigger(trigger, now=now, zone=zone, has_bounds=has_bounds)
    return resolved


@cache
def instant_fields(cls: type) -> frozenset[str]:
    """Return the fields of a type that are points in time."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    return frozenset(field.encode_name for field in info.fields if _is_instant(field.type))


def _is_instant(info: mi.Type) -> bool:
    kinds = info.types if isinstance(info, mi.UnionType) else (info,)
    return any(isinstance(kind, mi.DateTimeType) for kind in kinds)


def zone_in(trigger: Any) -> str | None:
    """Return the zone that the fields of a trigger name."""
    if not isinstance(trigger, Mapping):
        return None
    names = (name_of_zone(trigger.get(key)) for key in ZONE_FIELDS)
    return next((name for name in names if isinstance(name, str) and name != DEFAULT_ZONE), None)


def _resolve_trigger(trigger: Any, *, now: datetime, zone: DefaultZone, has_bounds: bool = False) -> Any:
    if not isinstance(trigger, Mapping) or isinstance(trigger, Struct):
        return trigger
    named = zone_in(trigger)
    resolved = resolve_instants(trigger, _TRIGGER_FIELDS, now=now, zone=zone, path="trigger")
    once = [key for key in resolved if isinstance(key, str) and snake_case(key) in ("once", "at")]
    is_read = once and isinstance(resolved[once[0]], datetime | str)
    if is_read or (has_bounds and _is_interval(resolved)):
        # The zone has served to read the instants; a single instant has none, and neither has an interval.
        if named is not None:
            check_zone(named, field="trigger.zone")
        resolved = {key: value for key, value in resolved.items() if key not in ZONE_FIELDS}
    return resolved


def _is_interval(trigger: Mapping[str, Any]) -> bool:
    """Whether a trigger is a length of time, which passes at the same pace in every zone."""
    try:
        parse_duration(str(trigger.get("every", trigger.get("interval", ""))))
    except TimewrightError:
        return False
    return True
