"""Extract known metrics, thresholds, states and flags from responses."""

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
from timewright.core.run.history_stats import trend
from timewright.errors import TimewrightError

MAX_FIELDS = 200
MAX_BODY_CHARS = 100_000
MAX_NUMBER = 10**15
MINUTE = 60.0
RISING_STEPS = 3

# Metrics that grow when something is wrong, the most reliable first.
METRIC_FIELDS = (
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
WARNING_FIELDS = ("warning_threshold", "warn_threshold", "warning")
CRITICAL_FIELDS = ("critical_threshold", "critical")
# Thresholds that hold for every service, used where a response names none.
DEFAULT_THRESHOLDS = {"error_rate_pct": (1.0, 5.0)}

HEALTHY_WORDS = frozenset({"healthy", "ok", "normal", "green", "up", "idle"})
DEGRADED_WORDS = frozenset({"degraded", "warning", "warn", "yellow", "slow", "busy"})
CRITICAL_WORDS = frozenset({"critical", "unhealthy", "error", "red", "down", "overloaded"})

_NUMBER = r"-?\d{1,18}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,2})?"
# The comma or bracket after the value shows that the value is complete.
_PAIR = re.compile(
    rf'"([\w.-]{{1,64}})"\s{{0,9}}:\s{{0,9}}({_NUMBER}|true|false|"[^"\\]{{0,64}}")\s{{0,9}}[,}}\]]'
)


class ParsedResponse(Struct, frozen=True, kw_only=True):
    """One response: when it came, whether it succeeded, and its scalar fields."""

    at: datetime
    ok: bool = True
    fields: dict[str, Any] = {}

    def get_number(self, name: str) -> float | None:
        """A field as a number, or None."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MAX_NUMBER:
            return None
        return float(value) if math.isfinite(value) else None

    def get_word(self, *names: str) -> str:
        """The first of these fields that is a text, in lower case."""
        found = (self.fields.get(name) for name in names)
        return next((value.strip().lower() for value in found if isinstance(value, str)), "")

    def get_instant(self, *names: str) -> datetime | None:
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
        """Whether a field that begins with `ready` is true."""
        return any(name.startswith("ready") and value is True for name, value in self.fields.items())

    @property
    def cooldown_until(self) -> datetime | None:
        """The end of a cooldown, a maintenance or a wait that the response asks for."""
        until = self.get_instant("closed_until", "maintenance_until", "not_before", "cooldown_until")
        if until is not None:
            return until
        began = self.get_instant("last_action_at")
        for name, unit in (("cooldown_minutes", 60.0), ("cooldown_seconds", 1.0)):
            length = self.get_number(name)
            if began is not None and length is not None:
                return _add_seconds(began, length * unit)
        wait = self.get_number("retry_after_seconds")
        return _add_seconds(self.at, wait) if wait is not None else None


class MetricTrend(Struct, frozen=True, kw_only=True):
    """A metric over time: its value, its change a minute, and its thresholds."""

    name: str
    value: float
    per_minute: float
    warning: float | None = None
    critical: float | None = None

    @property
    def minutes_left(self) -> float | None:
        """Minutes until the metric is critical at this rate; None if it does not get there."""
        if self.critical is None or self.per_minute <= 0 or self.value >= self.critical:
            return None
        return (self.critical - self.value) / self.per_minute


def parse_fields(body: Any) -> dict[str, Any]:
    """The scalar fields of a response, also one level down; from truncated JSON, the complete ones."""
    if isinstance(body, str):
        body = _parse_body(body)
    if not isinstance(body, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in _scalar_fields(body):
        if len(found) >= MAX_FIELDS:
            break
        found.setdefault(name, value)
    return found


def metric_trend(responses: Sequence[ParsedResponse]) -> MetricTrend | None:
    """The first known metric of the newest response, with its change; responses are oldest first."""
    if not responses:
        return None
    newest = responses[-1]
    name = next((name for name in METRIC_FIELDS if newest.get_number(name) is not None), None)
    if name is None:
        return None
    points = [(one.at, value) for one in responses if (value := one.get_number(name)) is not None]
    warning, critical = _limits(newest, name)
    return MetricTrend(
        name=name,
        value=points[-1][1],
        per_minute=_per_minute(points),
        warning=warning,
        critical=critical,
    )


def _per_minute(points: Sequence[tuple[datetime, float]]) -> float:
    """The slope a minute.

    A continuing rise is judged by its last steps, so a long steady time before does not hide it.
    """
    values = [value for _, value in points]
    minutes = [(at - points[0][0]).total_seconds() / MINUTE for at, _ in points]
    slope = trend(values, positions=minutes)
    last = values[-RISING_STEPS:]
    if len(last) == RISING_STEPS and all(a < b for a, b in pairwise(last)):
        slope = max(slope, trend(last, positions=minutes[-RISING_STEPS:]))
    return slope


def _limits(response: ParsedResponse, name: str) -> tuple[float | None, float | None]:
    known = DEFAULT_THRESHOLDS.get(name, (None, None))
    warning = next(
        (value for one in WARNING_FIELDS if (value := response.get_number(one)) is not None), known[0]
    )
    critical = next(
        (value for one in CRITICAL_FIELDS if (value := response.get_number(one)) is not None), known[1]
    )
    if critical is None:
        critical = warning
    return warning, critical


def _scalar_fields(body: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    inner: list[Mapping[Any, Any]] = []
    for name, value in body.items():
        if isinstance(value, Mapping):
            inner.append(value)
        elif isinstance(value, str | int | float | bool):
            yield str(name).lower(), value
    for one in inner[:MAX_FIELDS]:
        for name, value in one.items():
            if isinstance(value, str | int | float | bool):
                yield str(name).lower(), value


def _parse_body(text: str) -> Any:
    try:
        return msgspec.json.decode(text[:MAX_BODY_CHARS])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return dict(_parse_truncated(text[:MAX_BODY_CHARS]))


def _parse_truncated(text: str) -> Iterator[tuple[str, Any]]:
    """The complete pairs of truncated JSON."""
    for found in islice(_PAIR.finditer(text), MAX_FIELDS):
        with suppress(msgspec.MsgspecError):
            yield found[1], msgspec.json.decode(found[2])


def _add_seconds(moment: datetime, seconds: float) -> datetime | None:
    try:
        return moment + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
