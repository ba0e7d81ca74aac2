"""What a response says in words and numbers that we know: depths, rates, thresholds, states, flags."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.moments import parse_instant
from timewright.core.tally import trend
from timewright.errors import TimewrightError

MOST_FIELDS = 200
LONGEST_BODY = 100_000
LARGEST = 10**15
MINUTE = 60.0
RISE = 3

# What grows when something is wrong, in the order it is believed.
METRICS = (
    "queue_depth",
    "backlog",
    "pending",
    "pending_count",
    "lag",
    "lag_seconds",
    "current_value",
    "error_rate_pct",
    "avg_latency_ms",
)
WARNINGS = ("warning_threshold", "warn_threshold", "warning")
CRITICALS = ("critical_threshold", "critical")
# Rates that mean the same everywhere, so that nobody has to name a threshold.
KNOWN_LIMITS = {"error_rate_pct": (1.0, 5.0)}

CALM = frozenset({"healthy", "ok", "normal", "green", "up", "idle"})
WORRIED = frozenset({"degraded", "warning", "warn", "yellow", "slow", "busy"})
ALARMED = frozenset({"critical", "unhealthy", "error", "red", "down", "overloaded"})

_NUMBER = r"-?\d{1,18}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,2})?"
# The comma or brace behind it tells that the value is whole.
_PAIR = re.compile(
    rf'"([\w.-]{{1,64}})"\s{{0,9}}:\s{{0,9}}({_NUMBER}|true|false|"[^"\\]{{0,64}}")\s{{0,9}}[,}}\]]'
)


class Reading(Struct, frozen=True, kw_only=True):
    """One response: when, whether it was a success, and the fields in it that are single values."""

    at: datetime
    ok: bool = True
    fields: dict[str, Any] = {}

    def number(self, name: str) -> float | None:
        """A field that is a number."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
            return None
        return float(value) if math.isfinite(value) else None

    def word(self, *names: str) -> str:
        """The first of these fields that is a word, in lower case."""
        found = (self.fields.get(name) for name in names)
        return next((value.strip().lower() for value in found if isinstance(value, str)), "")

    def instant(self, *names: str) -> datetime | None:
        """The first of these fields that is an instant."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str):
                try:
                    return parse_instant(value[:64])
                except TimewrightError:
                    continue
        return None

    @property
    def is_ready(self) -> bool:
        """Whether it says that something is ready."""
        return any(name.startswith("ready") and value is True for name, value in self.fields.items())

    @property
    def cooling_until(self) -> datetime | None:
        """The end of a cooldown, of a maintenance, or of a wait that it asks for."""
        until = self.instant("closed_until", "maintenance_until", "not_before", "cooldown_until")
        if until is not None:
            return until
        began = self.instant("last_action_at")
        for name, unit in (("cooldown_minutes", 60.0), ("cooldown_seconds", 1.0)):
            length = self.number(name)
            if began is not None and length is not None:
                return _later(began, length * unit)
        wait = self.number("retry_after_seconds")
        return _later(self.at, wait) if wait is not None else None


class Pressure(Struct, frozen=True, kw_only=True):
    """A metric over time: where it is, how it moves a minute, and where it becomes a worry."""

    name: str
    value: float
    per_minute: float
    warning: float | None = None
    critical: float | None = None

    @property
    def minutes_left(self) -> float | None:
        """How long until it is critical if it goes on like this; nothing if it does not get there."""
        if self.critical is None or self.per_minute <= 0 or self.value >= self.critical:
            return None
        return (self.critical - self.value) / self.per_minute


def fields_of(body: Any) -> dict[str, Any]:
    """The single values of a response by name, also those one level down; of a torn text what is whole."""
    if isinstance(body, str):
        body = _parsed(body)
    if not isinstance(body, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in _walk(body):
        if len(found) >= MOST_FIELDS:
            break
        found.setdefault(name, value)
    return found


def pressure_of(readings: Sequence[Reading]) -> Pressure | None:
    """The first known metric of the newest reading, and how it moved; readings are oldest first."""
    if not readings:
        return None
    newest = readings[-1]
    name = next((name for name in METRICS if newest.number(name) is not None), None)
    if name is None:
        return None
    seen = [(one.at, value) for one in readings if (value := one.number(name)) is not None]
    warning, critical = _limits(newest, name)
    return Pressure(
        name=name,
        value=seen[-1][1],
        per_minute=_per_minute(seen),
        warning=warning,
        critical=critical,
    )


def _per_minute(seen: Sequence[tuple[datetime, float]]) -> float:
    """How fast it moves; a rise that goes on is judged by its last steps, however long it was calm before."""
    values = [value for _, value in seen]
    minutes = [(at - seen[0][0]).total_seconds() / MINUTE for at, _ in seen]
    slope = trend(values, places=minutes)
    last = values[-RISE:]
    if len(last) == RISE and all(a < b for a, b in pairwise(last)):
        slope = max(slope, trend(last, places=minutes[-RISE:]))
    return slope


def _limits(reading: Reading, name: str) -> tuple[float | None, float | None]:
    known = KNOWN_LIMITS.get(name, (None, None))
    warning = next((value for one in WARNINGS if (value := reading.number(one)) is not None), known[0])
    critical = next((value for one in CRITICALS if (value := reading.number(one)) is not None), known[1])
    if critical is None:
        critical = warning
    return warning, critical


def _walk(body: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    inner: list[Mapping[Any, Any]] = []
    for name, value in body.items():
        if isinstance(value, Mapping):
            inner.append(value)
        elif isinstance(value, str | int | float | bool):
            yield str(name).lower(), value
    for one in inner[:MOST_FIELDS]:
        for name, value in one.items():
            if isinstance(value, str | int | float | bool):
                yield str(name).lower(), value


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text[:LONGEST_BODY])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return dict(_torn(text[:LONGEST_BODY]))


def _torn(text: str) -> Iterator[tuple[str, Any]]:
    """The pairs of a text that is no JSON any more, because its end was cut off."""
    for found in islice(_PAIR.finditer(text), MOST_FIELDS):
        with suppress(msgspec.MsgspecError):
            yield found[1], msgspec.json.decode(found[2])


def _later(moment: datetime, seconds: float) -> datetime | None:
    try:
        return moment + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
