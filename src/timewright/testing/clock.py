"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from timewright.core.moments import ZERO, as_instant, spell_duration
from timewright.errors import InvalidDuration


class ManualClock:
    """Stands still until it is moved; the wall and the monotonic clock move together, or the wall alone."""

    def __init__(self, start: datetime, *, monotonic: float = 0.0) -> None:
        self._now = as_instant(start, field="start")
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

    def advance(
        self,
        by: timedelta = ZERO,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Let time pass on both clocks, and say what the wall clock shows then."""
        passed = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if passed < ZERO:
            raise InvalidDuration(
                f"a clock cannot advance by -{spell_duration(-passed)}",
                field="by",
                value=str(passed),
                rule="time that passes is never negative",
                fix="step() moves the wall clock back, as a wrong clock that is set right does",
            )
        with self._lock:
            self._now += passed
            self._monotonic += passed.total_seconds()
            return self._now

    def step(self, to: datetime | timedelta) -> datetime:
        """Set the wall clock, or move it by a length, back or forth; the monotonic clock does not notice."""
        with self._lock:
            self._now = self._now + to if isinstance(to, timedelta) else as_instant(to, field="to")
            return self._now
