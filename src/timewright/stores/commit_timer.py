"""Commits at an instant: how long before it a write begins, and the wait for it before the commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from timewright.errors import ClockBehind
from timewright.ports import Clock

# No other process can write to a SQLite file during this time, so it is short however much is due.
MAX_LEAD_S = 0.025
INITIAL_LEAD_S = 0.004
# Begin this much earlier than recent writes needed: a late commit costs more than a short wait.
LEAD_FACTOR = 1.5
LEAD_SLACK_S = 0.0008
LEAD_PER_ROW_S = 0.00005
# EWMA weights: adapt faster to slow writes (0.25) than to quick ones (0.05).
EWMA_WEIGHT_SLOWER = 0.25
EWMA_WEIGHT_FASTER = 0.05
# The host's clock may run a little faster than the store's; after this many sleeps the store's is frozen.
MAX_SLEEPS = 3


class CommitTimer:
    """Measures how long the writes take that are committed at an instant, and waits for the instant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._average_s = INITIAL_LEAD_S

    def begin(self) -> float:
        """The monotonic time at which a write begins."""
        return self._clock.monotonic()

    def lead_time(self, rows: int) -> timedelta:
        """How long before an instant to begin a write of `rows`, so that only its commit is left."""
        needed = max(self._average_s * LEAD_FACTOR + LEAD_SLACK_S, rows * LEAD_PER_ROW_S)
        return timedelta(seconds=min(needed, MAX_LEAD_S))

    def wait(self, instant: datetime, *, began: float, read_clock: Callable[[], datetime]) -> None:
        """Block until the store's clock shows the instant; raise ClockBehind if it does not get there."""
        difference = self._clock.monotonic() - began - self._average_s
        self._average_s += difference * (EWMA_WEIGHT_SLOWER if difference > 0 else EWMA_WEIGHT_FASTER)
        for _ in range(MAX_SLEEPS):
            left_s = (instant - read_clock()).total_seconds()
            if left_s <= 0:
                return
            self._clock.sleep(min(left_s, MAX_LEAD_S))
        if read_clock() < instant:
            raise ClockBehind(f"the store's clock did not reach {instant.isoformat()}; nothing was written")
