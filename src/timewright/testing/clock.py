"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from timewright.core.moments import ZERO, as_duration, as_instant, parse_instant, spell_duration
from timewright.core.refusals import refused, unknown
from timewright.errors import InvalidDuration

PARTS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


class ManualClock:
    """Stands still until it is moved; the wall and the monotonic clock move together, or the wall alone."""

    def __init__(self, start: datetime | str, *, monotonic: float = 0.0) -> None:
        self._now = instant_of(start, field="start")
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

    def advance(self, by: timedelta | str = ZERO, **parts: float) -> datetime:
        """Let time pass on both clocks, and say what the wall clock shows then: `"5m"`, or `minutes=5`."""
        passed = passing(by, parts)
        with self._lock:
            self._now += passed
            self._monotonic += passed.total_seconds()
            return self._now

    def step(self, to: datetime | timedelta | str) -> datetime:
        """Set the wall clock, or move it by a length, back or forth; the monotonic clock does not notice.

        Both may be text: `"2026-03-29T00:30:00Z"`, and with a sign `"-1h"`.
        """
        if isinstance(to, str) and to[:1] in ("+", "-"):
            length = as_duration(to[1:], field="to")
            to = -length if to.startswith("-") else length
        with self._lock:
            self._now = self._now + to if isinstance(to, timedelta) else instant_of(to, field="to")
            return self._now

    def __repr__(self) -> str:
        return f"<clock at {self.now().isoformat()}>"


def passing(by: timedelta | str, parts: Mapping[str, float]) -> timedelta:
    """The length of time that passes: one length and the parts of another; never negative."""
    for name in parts:
        if name not in PARTS:
            raise unknown("", name, PARTS)
    try:
        passed = as_duration(by, field="by") + timedelta(**parts)
    except (TypeError, ValueError, OverflowError) as error:
        said = ", ".join(f"{name}={value!r}" for name, value in parts.items())
        rule = f"a number of {', '.join(parts)}, within a century: {error}"
        raise refused(
            "by", said, "is no length of time", rule=rule, fix="hours=3", kind=InvalidDuration
        ) from None
    if passed < ZERO:
        raise InvalidDuration(
            f"a clock cannot advance by -{spell_duration(-passed)}",
            field="by",
            value=str(passed),
            rule="time that passes is never negative",
            fix="step() moves the wall clock back, as a wrong clock that is set right does",
        )
    return passed


def instant_of(said: Any, *, field: str) -> datetime:
    """A point in time, also from its text, in UTC."""
    if isinstance(said, str):
        return parse_instant(said, field=field)
    return as_instant(said, field=field)
