"""Decides whether a reading of a store's clock can be right, and commits at an instant of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from timewright.core.moments import ZERO
from timewright.errors import ClockBehind
from timewright.ports import Clock
from timewright.ports.store import ClockDoubt

# A reading further away than this from what the monotonic clock allows is not used.
MAX_CLOCK_STEP = timedelta(hours=24)
# Unless it has lasted this long: then the clock was set on purpose.
CONFIRMED_AFTER_S = 3600.0
# When a process starts, a later time than the last recorded one is downtime up to this length. A reading
# that is further ahead does not confirm itself by lasting.
MAX_DOWNTIME = timedelta(days=90)


class ClockGuard:
    """Checks every reading against the last one that was used and the time since.

    While a reading is in doubt, the time goes on by the monotonic clock. The doubt ends when the reading has
    lasted an hour, when a person accepts it, or when the clock agrees again with what was used before. A
    reading more than 90 days ahead never confirms itself: all occurrences up to then would be decided.
    """

    def __init__(self, monotonic: Callable[[], float], *, max_step: timedelta = MAX_CLOCK_STEP) -> None:
        self.max_step = max_step
        self.doubt: ClockDoubt | None = None
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._used: tuple[datetime, float] | None = None
        self._recorded: tuple[datetime, bool] | None = None
        # What was used before the last reading that was accepted only because it lasted.
        self._before: tuple[datetime, float] | None = None
        self._doubted_at = 0.0

    def start(self, last_used: datetime, *, is_in_doubt: bool) -> None:
        """Compare the next reading with the last time that was recorded: up to 90 days later is downtime.

        With `is_in_doubt`, another process doubts the clock already, and downtime explains nothing.
        """
        with self._lock:
            self._recorded, self._used = (last_used, is_in_doubt), None

    def check(self, reading: datetime) -> datetime:
        """Return the time to use: the reading, or what the monotonic clock says while it is in doubt."""
        with self._lock:
            at = self._monotonic()
            if self._used is None:
                self._used = (self._first(reading), at)
            expected = _extrapolate(self._used, at)
            if abs(reading - expected) <= self.max_step:
                self._used, self.doubt = (reading, at), None
                return reading
            if self._before is not None and abs(reading - _extrapolate(self._before, at)) <= self.max_step:
                # The clock agrees again with the time before the step that lasted: that time was right.
                self._used, self.doubt, self._before = (reading, at), None, None
                return reading
            return self._doubt(reading, expected=expected, at=at)

    def accept(self, reading: datetime) -> None:
        """Use this reading from now on, because a person says that it is right."""
        with self._lock:
            self._used, self._before, self.doubt = (reading, self._monotonic()), None, None

    def _first(self, reading: datetime) -> datetime:
        if self._recorded is None:
            return reading
        last_used, is_in_doubt = self._recorded
        max_downtime = self.max_step if is_in_doubt else max(MAX_DOWNTIME, self.max_step)
        return reading if -self.max_step <= reading - last_used <= max_downtime else last_used

    def _doubt(self, reading: datetime, *, expected: datetime, at: float) -> datetime:
        doubt, since_s = self.doubt, at - self._doubted_at
        lasts = (
            doubt is not None and abs(reading - doubt.reading - timedelta(seconds=since_s)) <= self.max_step
        )
        if lasts and since_s >= CONFIRMED_AFTER_S and reading - expected <= max(MAX_DOWNTIME, self.max_step):
            self._before = self._before or self._used
            self._used, self.doubt = (reading, at), None
            return reading
        if not lasts:
            self.doubt, self._doubted_at = ClockDoubt(reading=reading, expected=expected, since=expected), at
        return expected


def _extrapolate(used: tuple[datetime, float], at: float) -> datetime:
    return used[0] + max(timedelta(seconds=at - used[1]), ZERO)


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
