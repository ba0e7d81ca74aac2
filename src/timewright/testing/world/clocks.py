"""Clocks that disagree: true time moves in the world alone, and every clock reads it in its own way."""

from __future__ import annotations

from datetime import datetime

from timewright.core.moments import from_micros

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NEVER = 1 << 62
# So long before its instant an engine may begin with what is due.
EVE = 4_000


class TrueTime:
    """The world's one instant, in microseconds since 1970; nobody in it can read this."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.at = start


class SkewedClock:
    """A host's clocks: a wall that is off and may be stepped, a monotonic one that runs a little wrong."""

    def __init__(self, time: TrueTime, *, skew: int = 0, drift: float = 0.0) -> None:
        self._time = time
        self._rate = 1.0 + drift
        self.skew = skew
        self._shown = (0, from_micros(0))

    def now(self) -> datetime:
        """The wall clock, in UTC; many ask at the same instant."""
        at = self._time.at + self.skew
        if at != self._shown[0]:
            self._shown = (at, from_micros(at))
        return self._shown[1]

    def monotonic(self) -> float:
        """Seconds since the world began, at this host's pace; a pause of the process does not stop them."""
        return (self._time.at - self._time.start) * self._rate / SECOND

    def step(self, by: int) -> None:
        """Move the wall; the monotonic clock does not notice."""
        self.skew += by

    def true(self, seconds: float) -> int:
        """How much true time passes while this clock counts so many seconds."""
        return int(seconds * SECOND / self._rate) + 1
