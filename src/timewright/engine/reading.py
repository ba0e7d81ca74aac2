"""The store's clock as it was last read, counted on since then, and whether it stepped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from timewright.core.facts import ClockStepped, Fact
from timewright.ports import Clock, Store

LARGEST_STEP = timedelta(seconds=2)
# For so long after a reading the clock is counted on, where there is no time to ask again.
COUNTED_ON = 0.1


class Reading:
    """What the store's clock showed at the last tick, beside what the monotonic one did."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.at = datetime.min.replace(tzinfo=UTC)
        self.taken = False
        self._store = store
        self._clock = clock
        self.moment = 0.0
        self._read_at = 0.0
        self._took = 0.0
        self._is_held = False

    def read(self, *, hurries: bool) -> tuple[datetime, float, list[Fact]]:
        """The store's clock, what the monotonic one showed before, and whether it stepped.

        Whoever hurries does not ask the store where it was asked a moment ago.
        """
        counted = self.count_on() if hurries else None
        if counted is not None:
            return *counted, []
        began, now = self._clock.monotonic(), self._store.now()
        return now, began, self.take(now, began=began)

    def take(self, now: datetime, *, began: float) -> list[Fact]:
        """Wall against monotonic: a step or a suspend is seen and told; catch-up treats it as an outage.

        `began` is what the monotonic clock showed before `now` was asked for.
        """
        moment, was_taken = self._clock.monotonic(), self.taken
        self._read_at, self._took = moment, moment - began
        passed, went = timedelta(seconds=moment - self.moment), now - self.at
        self.at, self.moment, self.taken = now, moment, True
        if not was_taken:
            return []
        by = self._once_if_held(went - passed, now=now, stands=went < passed / 2)
        if abs(by) < LARGEST_STEP:
            return []
        treated = "outage" if by > timedelta(0) else "hold"
        return [ClockStepped(at=now, by_seconds=by.total_seconds(), treated_as=treated)]

    def count_on(self) -> tuple[datetime, float] | None:
        """What the clock shows, counted on from a reading of a moment ago; nothing if that is too long ago.

        It never shows more than the store's does, and beside it is a moment at which that showed no more.
        """
        moment = self._clock.monotonic()
        if not self.taken or not 0.0 <= moment - self._read_at < COUNTED_ON:
            return None
        self.at += timedelta(seconds=moment - self.moment)
        self.moment = moment
        return self.at, moment - self._took

    def now(self) -> datetime:
        """The store's clock, counted on from the last tick: nobody has to be asked."""
        if not self.taken:
            return self._store.now()
        return self.at + timedelta(seconds=self._clock.monotonic() - self.moment)

    def _once_if_held(self, by: timedelta, *, now: datetime, stands: bool) -> timedelta:
        """A store that holds its clock stands still until the host's, set back, has caught up: told once."""
        behind = self._clock.now() - now
        if behind > -LARGEST_STEP:
            self._is_held = False
        elif stands:
            by, self._is_held = timedelta(0) if self._is_held else behind, True
        return by
