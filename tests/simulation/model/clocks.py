"""Clocks that disagree: only the simulation knows true time, and each host's clock deviates from it."""

from __future__ import annotations

from datetime import datetime

from timewright.core.moments import from_micros

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NEVER = 1 << 62
# An engine may begin with due work this long before its instant.
EARLY_WORK_US = 4_000


class TrueTime:
    """True time in microseconds since 1970; no actor can read it."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.at = start


class SkewedClock:
    """A host's clocks: a wall clock that is off and may be stepped, a monotonic one with drift."""

    def __init__(self, time: TrueTime, *, skew: int = 0, drift: float = 0.0) -> None:
        self._time = time
        self._rate = 1.0 + drift
        self.skew = skew
        self._shown = (0, from_micros(0))

    def now(self) -> datetime:
        """The wall clock, in UTC; cached, because many read it at the same instant."""
        at = self._time.at + self.skew
        if at != self._shown[0]:
            self._shown = (at, from_micros(at))
        return self._shown[1]

    def monotonic(self) -> float:
        """Seconds since the start at this host's rate; suspending the process does not stop them."""
        return (self._time.at - self._time.start) * self._rate / SECOND

    def sleep(self, seconds: float) -> None:
        """Let time pass inside a transaction, while no other process runs."""
        self._time.at += self.to_true_micros(seconds)

    def step(self, by: int) -> None:
        """Step the wall clock; the monotonic clock stays."""
        self.skew += by

    def to_true_micros(self, seconds: float) -> int:
        """True microseconds that pass while this clock counts some seconds."""
        return int(seconds * SECOND / self._rate) + 1
