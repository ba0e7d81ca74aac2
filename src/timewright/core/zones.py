"""Time zones by their IANA name; abbreviations and offsets are refused."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from timewright.errors import InvalidZone

MAX_NAME_LENGTH = 64
# Stands for the zone that a schedule gets if it names none; alone, a trigger uses UTC.
DEFAULT_ZONE = "default"

_RULE = "a zone is an IANA name such as Europe/Berlin, or UTC"
_FIX = "UTC or a place such as Europe/Berlin"
_NOT_PLACES = frozenset({"Factory", "localtime", "posixrules"})
# An abbreviation covers only half of the year, or is used in several places.
_ABBREVIATIONS = {
    "ACST": "Australia/Darwin or Australia/Adelaide",
    "AEST": "Australia/Brisbane or Australia/Sydney",
    "AKST": "America/Anchorage",
    "AST": "America/Halifax or America/Puerto_Rico",
    "BST": "Europe/London or Asia/Dhaka",
    "CAT": "Africa/Maputo",
    "CDT": "America/Chicago",
    "CEST": "Europe/Berlin",
    "CET": "Europe/Berlin or Africa/Algiers",
    "CST": "America/Chicago or Asia/Shanghai",
    "CST6CDT": "America/Chicago",
    "EAT": "Africa/Nairobi",
    "EDT": "America/New_York",
    "EET": "Europe/Helsinki or Africa/Tripoli",
    "EST": "America/New_York or America/Panama",
    "EST5EDT": "America/New_York",
    "GMT": "UTC or Europe/London",
    "GMT0": "UTC or Europe/London",
    "HKT": "Asia/Hong_Kong",
    "HST": "Pacific/Honolulu",
    "IST": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "MDT": "America/Denver",
    "MET": "Europe/Brussels",
    "MSK": "Europe/Moscow",
    "MST": "America/Denver or America/Phoenix",
    "MST7MDT": "America/Denver",
    "NZST": "Pacific/Auckland",
    "PDT": "America/Los_Angeles",
    "PST": "America/Los_Angeles or Asia/Manila",
    "PST8PDT": "America/Los_Angeles",
    "SAST": "Africa/Johannesburg",
    "SGT": "Asia/Singapore",
    "UCT": "UTC",
    "WAT": "Africa/Lagos",
    "WET": "Europe/Lisbon",
    "Z": "UTC",
}


def check_zone(name: str, *, field: str = "zone") -> str:
    """Return the name, or raise InvalidZone with a suggestion if it is not in the installed data."""
    if not isinstance(name, str) or name not in _names():
        raise _zone_error(name, field=field)
    return name


def name_of_zone(zone: Any) -> Any:
    """Return the name of a zone of Python or pytz, of others their text; `check_zone` refuses the rest."""
    if not isinstance(zone, tzinfo) or zone is UTC:
        return "UTC" if zone is UTC else zone
    return getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)


def load_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name, or raise InvalidZone."""
    return ZoneInfo(check_zone(name))


def local_time(at: datetime | None, zone: str) -> str:
    """Return the instant in a zone, with its offset; empty without an instant or a zone."""
    return at.astimezone(load_zone(zone)).isoformat() if at is not None and zone else ""


@cache
def _names() -> frozenset[str]:
    offsets = {name for name in available_timezones() if name.startswith(("GMT+", "GMT-"))}
    return frozenset(available_timezones() - _NOT_PLACES - set(_ABBREVIATIONS) - offsets)


@cache
def _by_lower_case() -> dict[str, str]:
    return {name.lower(): name for name in _names()}


def _zone_error(name: object, *, field: str) -> InvalidZone:
    if not isinstance(name, str):
        return _invalid(name, field, why="is not text", fix=_FIX)
    why, fix = _reason(name)
    return _invalid(name[:MAX_NAME_LENGTH], field, why=why, fix=fix)


def _invalid(value: object, field: str, *, why: str, fix: str) -> InvalidZone:
    message = f"{field} {value!a} {why}"
    return InvalidZone(message, field=field, value=value, rule=_RULE, fix=fix)


def _reason(name: str) -> tuple[str, str]:
    """Return why a text is not a zone, and the probable correction."""
    upper = name.upper()
    if not name.strip():
        return "is empty", _FIX
    if len(name) > MAX_NAME_LENGTH:
        return f"is longer than {MAX_NAME_LENGTH} characters", _FIX
    if not name.isascii() or not name.isprintable():
        return "has invalid characters", _FIX
    if ".." in name or "\\" in name or name.startswith("/"):
        return "is a path, not a zone", _FIX
    if upper in _ABBREVIATIONS:
        return "is an abbreviation, not a zone", _ABBREVIATIONS[upper]
    if name in _NOT_PLACES:
        return "is not a place", _FIX
    if name.lower() in _by_lower_case():
        return "has the wrong case", _by_lower_case()[name.lower()]
    if _looks_like_an_offset(upper):
        return "is an offset, not a zone", _offset_hint(upper)
    near = get_close_matches(name, _names(), n=1, cutoff=0.6)
    return "is not in the installed time zone data", near[0] if near else _FIX


def _looks_like_an_offset(upper: str) -> bool:
    rest = upper.removeprefix("UTC").removeprefix("GMT").lstrip()
    return rest[:1] in ("+", "-") and rest[1:2].isdigit()


def _offset_hint(upper: str) -> str:
    sign, digits = ("-" if "+" in upper else "+"), "".join(c for c in upper if c.isdigit())
    hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])
    fixed = f"Etc/GMT{sign}{int(hours)}"
    if int(minutes) == 0 and fixed in _names():
        return f"a place such as Europe/Berlin, or {fixed} (its sign is reversed)"
    return "a place such as Asia/Kolkata"
