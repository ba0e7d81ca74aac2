"""A clock that moves only when a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from timewright.core.input.input_errors import input_error, unknown_field
from timewright.core.moments import ZERO, as_duration, as_instant, format_duration, parse_instant
from timewright.errors import InvalidDuration

DURATION_UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


class ManualClock:
    """A clock that stands still until moved.

    `advance` moves wall and monotonic clock, `step` only the wall.
    """

    def __init__(self, start: datetime | str, *, monotonic: float = 0.0) -> None:
        self._now = to_instant(start, field="start")
        self._monotonic = monotonic
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Seconds since the start of this clock, unaffected by steps of the wall clock."""
        with self._lock:
            return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Advance both clocks at once."""
        self.advance(seconds=seconds)

    def advance(self, by: timedelta | str = ZERO, **parts: float) -> datetime:
        """Advance both clocks by `"5m"` or `minutes=5`; return the new wall clock time."""
        passed = parse_elapsed(by, parts)
        with self._lock:
            self._now += passed
            self._monotonic += passed.total_seconds()
            return self._now

    def step(self, to: datetime | timedelta | str) -> datetime:
        """Set the wall clock, or move it by a duration, in either direction; the monotonic clock stays.

        Both may be text: `"2026-03-29T00:30:00Z"`, or with a sign `"-1h"`.
        """
        if isinstance(to, str) and to[:1] in ("+", "-"):
            length = as_duration(to[1:], field="to")
            to = -length if to.startswith("-") else length
        with self._lock:
            self._now = self._now + to if isinstance(to, timedelta) else to_instant(to, field="to")
            return self._now

    def __repr__(self) -> str:
        return f"<clock at {self.now().isoformat()}>"


def parse_elapsed(by: timedelta | str, parts: Mapping[str, float]) -> timedelta:
    """Return the sum of a duration and the `timedelta` parts; refuse a negative one."""
    for name in parts:
        if name not in DURATION_UNITS:
            raise unknown_field("", name, DURATION_UNITS)
    try:
        passed = as_duration(by, field="by") + timedelta(**parts)
    except (TypeError, ValueError, OverflowError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in parts.items())
        rule = f"a number of {', '.join(parts)}, within a century: {error}"
        raise input_error(
            "by", given, "is not a duration", rule=rule, fix="hours=3", kind=InvalidDuration
        ) from None
    if passed < ZERO:
        raise InvalidDuration(
            f"a clock cannot advance by -{format_duration(-passed)}",
            field="by",
            value=str(passed),
            rule="time never passes backwards",
            fix="step() moves the wall clock back, as setting a wrong clock does",
        )
    return passed


def to_instant(value: Any, *, field: str) -> datetime:
    """Return an instant in UTC from a datetime or its text."""
    if isinstance(value, str):
        return parse_instant(value, field=field)
    return as_instant(value, field=field)
