"""Reads the store's clock once per tick and reports steps of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from timewright.core.facts import ClockStepped, Fact
from timewright.core.moments import DAY, ZERO
from timewright.engine.constants import CHECK_INTERVAL
from timewright.ledger.pauses import end_clock_pauses, pause_for_clock, pull_back_schedules
from timewright.ports import Clock, Ids, Store
from timewright.ports.store import ClockDoubt

# A smaller difference between wall clock and monotonic clock is not reported.
CLOCK_STEP_THRESHOLD = timedelta(seconds=2)


class StoreClock:
    """The store's clock at the last tick, with the monotonic time at which it was read.

    While the store does not use a reading because it cannot be right, the installation is paused.
    """

    def __init__(self, store: Store, clock: Clock, *, ids: Ids) -> None:
        self.last_now = datetime.min.replace(tzinfo=UTC)
        self.has_read = False
        self.is_frozen = False
        self._freeze_reported = False
        self._last_monotonic = 0.0
        self._store = store
        self._clock = clock
        self._ids = ids
        self.doubt: ClockDoubt | None = None

    def read(self) -> tuple[datetime, float, list[Fact]]:
        """Read the store's clock; return it, the monotonic time before the read, and a step if there was one.

        Compares wall clock and monotonic clock since the last read. Catch-up treats a step forward, or a
        suspended host, as an outage.
        """
        asked_at, now = self._clock.monotonic(), self._store.now()
        monotonic_now, is_first = self._clock.monotonic(), not self.has_read
        if not is_first and self.last_now - now > DAY:
            # The store has accepted an earlier time, after it was used to decide schedules.
            pull_back_schedules(self._store, now=now)
        facts = self._follow_doubt(now=now, is_first=is_first)
        elapsed, moved = timedelta(seconds=monotonic_now - self._last_monotonic), now - self.last_now
        self.last_now, self._last_monotonic, self.has_read = now, monotonic_now, True
        if is_first:
            return now, asked_at, facts
        # Whatever the host's clock says: sleeping until shortly after a clock that stands still is spinning.
        self.is_frozen = moved <= ZERO < elapsed
        step = self._report_freeze_once(moved - elapsed, now=now, stands_still=moved < elapsed / 2)
        if abs(step) >= CLOCK_STEP_THRESHOLD:
            treated_as = "outage" if step > ZERO else "hold"
            facts.append(ClockStepped(at=now, by_seconds=step.total_seconds(), treated_as=treated_as))
        return now, asked_at, facts

    @property
    def problem(self) -> str:
        """What is wrong with the clock; "" if nothing is."""
        return self.doubt.describe() if self.doubt is not None else ""

    def elapsed(self) -> timedelta:
        """The time since the last read."""
        return timedelta(seconds=self._clock.monotonic() - self._last_monotonic)

    def limit_sleep(self, max_sleep: timedelta) -> timedelta:
        """How long the loop may sleep: a pause for the clock ends with the tick that reads a right one."""
        return max_sleep if self.doubt is None else min(max_sleep, CHECK_INTERVAL)

    def _follow_doubt(self, *, now: datetime, is_first: bool) -> list[Fact]:
        """Pause the installation when the doubt begins, and end the pause when it ends or was left behind."""
        doubt: ClockDoubt | None = getattr(self._store, "clock_doubt", None)
        if doubt == self.doubt and not is_first:
            return []
        if doubt is None:
            end_clock_pauses(self._store, now=now)
            self.doubt = None
            return []
        pause_for_clock(self._store, doubt, ids=self._ids, now=now)
        self.doubt = doubt
        by_seconds = (doubt.reading - doubt.expected).total_seconds()
        return [ClockStepped(at=now, by_seconds=by_seconds, treated_as="pause")]

    def _report_freeze_once(self, step: timedelta, *, now: datetime, stands_still: bool) -> timedelta:
        """If the host clock steps back, the store clock freezes until it catches up; reported once."""
        behind = self._clock.now() - now
        if behind > -CLOCK_STEP_THRESHOLD:
            self._freeze_reported = False
        elif stands_still:
            step, self._freeze_reported = ZERO if self._freeze_reported else behind, True
        return step
