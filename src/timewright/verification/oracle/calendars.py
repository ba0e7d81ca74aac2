"""Whether calendars include an instant, by testing their days, hours and spans one by one."""

from __future__ import annotations

from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from timewright.verification.oracle.times import from_micros, parse_instant
from timewright.verification.rows import JsonObject


def is_open(rule: JsonObject, calendars: dict[str, JsonObject], at: int) -> bool:
    """Whether an instant lies in every calendar of `only` and in none of `except`."""
    inside = [calendar_covers(calendars[name], at) for name in rule.get("only", ())]
    outside = [calendar_covers(calendars[name], at) for name in rule.get("except", ())]
    return all(inside) and not any(outside)


def calendar_covers(calendar: JsonObject, at: int) -> bool:
    """Whether a calendar includes an instant: by a date, by weekly hours, or by a span."""
    local = from_micros(at).astimezone(ZoneInfo(calendar.get("zone", "UTC")))
    if _has_day(calendar, local.date()):
        return True
    clock = f"{local:%H:%M:%S}"
    hours = calendar.get("weekly", ())
    if any(local.weekday() in one["days"] and _within(clock, one) for one in hours):
        return True
    spans = calendar.get("spans", ())
    return any(parse_instant(one["start"]) <= at < parse_instant(one["end"]) for one in spans)


def _has_day(calendar: JsonObject, day: date) -> bool:
    spelled = day.isoformat()
    return (
        spelled in calendar.get("dates", ())
        or spelled[5:] in calendar.get("yearly", ())
        or any(one["first"] <= spelled <= one["last"] for one in calendar.get("ranges", ()))
    )


def _within(clock: str, hours: Any) -> bool:
    """Compare times of day as texts; 24:00 sorts after all of them."""
    return _full(hours.get("start", "00:00")) <= clock < _full(hours.get("end", "24:00"))


def _full(text: str) -> str:
    return text if len(text) == 8 else f"{text}:00"
