"""The moments before an instant: what is due at it is decided and written then, and committed at it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from timewright.core.moments import ZERO

# Nobody else can write while an eve lasts, so it is short however much is due.
LONGEST = 0.025
FIRST = 0.004
# So much longer than it took lately, because a late commit costs more than a moment of waiting.
MARGIN = 1.5
SLACK = 0.0008
# What took longer counts for more than what was quicker; a single one counts for little.
SLOWER = 0.25
QUICKER = 0.05
PER_SCHEDULE = 0.00005


class Vigil:
    """Waits for the instant; whoever asks again after it does not wait."""

    def __init__(self, wait: Callable[[float], None], *, until: float) -> None:
        self.until = until
        self._wait = wait

    def __call__(self) -> None:
        """Stand still until the instant is there."""
        self._wait(self.until)


class Eve:
    """How long before an instant to begin: as long as it takes lately to have all but the commit done.

    Nothing is kept before its instant: until the commit, no one sees any of it, and whoever wants to change
    one of the schedules waits, as for any other transaction.
    """

    def __init__(self, *, stand_still: Callable[[float], None], monotonic: Callable[[], float]) -> None:
        self._stand_still = stand_still
        self._monotonic = monotonic
        self._took = FIRST
        self._began: float | None = None
        self._expected = 0

    def expect(self, schedules: int) -> None:
        """So many will be due at the next instant."""
        self._expected = schedules

    @property
    def length(self) -> timedelta:
        """How long the next one is."""
        needed = max(self._took * MARGIN + SLACK, self._expected * PER_SCHEDULE)
        return timedelta(seconds=min(needed, LONGEST))

    def before(self, due: datetime | None, *, now: datetime, moment: float) -> Vigil | None:
        """Whether this is the eve of an instant, and then what waits for it.

        `moment` is what the monotonic clock showed after `now` was read: then nobody wakes too early.
        """
        if due is None or not ZERO < due - now <= self.length:
            return None
        self._began = self._monotonic()
        return Vigil(self._wait, until=moment + (due - now).total_seconds())

    def _wait(self, until: float) -> None:
        moment = self._monotonic()
        if self._began is not None:
            longer = moment - self._began - self._took
            self._took += longer * (SLOWER if longer > 0 else QUICKER)
            self._began, self._expected = None, 0
        if moment < until:
            self._stand_still(until - moment)
