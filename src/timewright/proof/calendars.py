"""Whether calendars let an instant happen, by looking at their days, hours and spans one by one."""

from __future__ import annotations

from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from timewright.proof.rows import Plain
from timewright.proof.spans import instant, moment


def is_open(rule: Plain, calendars: dict[str, Plain], at: int) -> bool:
    """Whether an instant lies in every calendar of `only` and in none of `except`."""
    inside = [covers(calendars[name], at) for name in rule.get("only", ())]
    outside = [covers(calendars[name], at) for name in rule.get("except", ())]
    return all(inside) and not any(outside)


def covers(calendar: Plain, at: int) -> bool:
    """Whether an instant lies in a calendar: on one of its days, in its hours, or in a span."""
    local = moment(at).astimezone(ZoneInfo(calendar.get("zone", "UTC")))
    if _has_day(calendar, local.date()):
        return True
    clock = f"{local:%H:%M:%S}"
    hours = calendar.get("weekly", ())
    if any(local.weekday() in one["days"] and _within(clock, one) for one in hours):
        return True
    spans = calendar.get("spans", ())
    return any(instant(one["start"]) <= at < instant(one["end"]) for one in spans)


def _has_day(calendar: Plain, day: date) -> bool:
    spelled = day.isoformat()
    return (
        spelled in calendar.get("dates", ())
        or spelled[5:] in calendar.get("yearly", ())
        or any(one["first"] <= spelled <= one["last"] for one in calendar.get("ranges", ()))
    )


def _within(clock: str, hours: Any) -> bool:
    """Times of day sort as texts do; 24:00 comes after them all."""
    return _full(hours.get("start", "00:00")) <= clock < _full(hours.get("end", "24:00"))


def _full(text: str) -> str:
    return text if len(text) == 8 else f"{text}:00"
