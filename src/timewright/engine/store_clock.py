"""Reads the store's clock once per tick and reports steps of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from timewright.core.facts import ClockStepped, Fact
from timewright.ports import Clock, Store

# A smaller difference between wall clock and monotonic clock is not reported.
CLOCK_STEP_THRESHOLD = timedelta(seconds=2)


class StoreClock:
    """The store's clock at the last tick, with the monotonic time at which it was read."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.last_now = datetime.min.replace(tzinfo=UTC)
        self.last_monotonic = 0.0
        self.has_read = False
        self._store = store
        self._clock = clock
        self._is_frozen = False

    def read(self) -> tuple[datetime, float, list[Fact]]:
        """Read the store's clock; return it, the monotonic time before the read, and a step if there was one.

        Compares wall clock and monotonic clock since the last read. Catch-up treats a step forward, or a
        suspended host, as an outage.
        """
        asked_at, now = self._clock.monotonic(), self._store.now()
        monotonic_now, is_first = self._clock.monotonic(), not self.has_read
        elapsed, moved = timedelta(seconds=monotonic_now - self.last_monotonic), now - self.last_now
        self.last_now, self.last_monotonic, self.has_read = now, monotonic_now, True
        if is_first:
            return now, asked_at, []
        step = self._report_freeze_once(moved - elapsed, now=now, stands_still=moved < elapsed / 2)
        if abs(step) < CLOCK_STEP_THRESHOLD:
            return now, asked_at, []
        treated_as = "outage" if step > timedelta(0) else "hold"
        return now, asked_at, [ClockStepped(at=now, by_seconds=step.total_seconds(), treated_as=treated_as)]

    def estimate_now(self) -> datetime:
        """The store's clock now, from the last read and the monotonic time since; asks no store."""
        if not self.has_read:
            return self._store.now()
        return self.last_now + timedelta(seconds=self._clock.monotonic() - self.last_monotonic)

    def _report_freeze_once(self, step: timedelta, *, now: datetime, stands_still: bool) -> timedelta:
        """If the host clock steps back, the store clock freezes until it catches up; reported once."""
        behind = self._clock.now() - now
        if behind > -CLOCK_STEP_THRESHOLD:
            self._is_frozen = False
        elif stands_still:
            step, self._is_frozen = timedelta(0) if self._is_frozen else behind, True
        return step
