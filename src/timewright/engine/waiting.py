"""How threads of the engine wait: wakeable sleeps, exact sleeps, and the wait for a commit instant."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic

from timewright.core.moments import ZERO

# No other process can write to a SQLite file during this time, so it is short however much is due.
MAX_LEAD_S = 0.025
INITIAL_LEAD_S = 0.004
# Start this much earlier than recent passes needed: a late commit costs more than a short wait.
LEAD_FACTOR = 1.5
LEAD_SLACK_S = 0.0008
# EWMA weights: adapt faster to slow passes (0.25) than to quick ones (0.05).
EWMA_WEIGHT_SLOWER = 0.25
EWMA_WEIGHT_FASTER = 0.05
LEAD_PER_SCHEDULE_S = 0.00005
# After the wait, read the store's clock this often before giving up: it is microseconds behind, or frozen.
MAX_CLOCK_READS = 2


class EventWaker:
    """A sleep that any thread may end."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Sleep at most this long; return whether `wake` ended the sleep."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken

    def wake(self) -> None:
        """End the current sleep, or the next one at once."""
        if not self._event.is_set():
            self._event.set()


def sleep_exactly(seconds: float) -> None:
    """Sleep at least this long; nothing ends the sleep early."""
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        select.select((), (), (), left)


def yield_gil(delay_s: float = 0.0) -> None:
    """Release the interpreter lock, so that threads that were just woken can run."""
    select.select((), (), (), delay_s)


class InstantWait:
    """Waits until the store's clock shows an instant; calls after the instant return at once."""

    def __init__(self, lead: CommitLead, instant: datetime, *, monotonic_deadline: float) -> None:
        self.is_behind = False
        self._lead = lead
        self._instant = instant
        self._monotonic_deadline = monotonic_deadline

    def __call__(self, read_clock: Callable[[], datetime]) -> bool:
        """Block until the instant; return False if the store's clock does not get there.

        The monotonic clock may run a little faster than the store's clock, so the rest is waited for. The
        store's clock stands still after the host's was set back; then the caller tries again later.
        """
        self._lead.wait_until(self._monotonic_deadline)
        for _ in range(MAX_CLOCK_READS):
            left = self._instant - read_clock()
            if left <= ZERO:
                self.is_behind = False
                return True
            self._lead.wait_for(min(left.total_seconds(), MAX_LEAD_S))
        self.is_behind = self._instant > read_clock()
        return not self.is_behind


class CommitLead:
    """How long before an instant to start, so that only the commit is left to do at the instant.

    Nothing is committed before the instant: until then no one sees it, and a process that wants to change
    one of the schedules waits as for any other transaction.
    """

    def __init__(self, *, sleep_exactly: Callable[[float], None], monotonic: Callable[[], float]) -> None:
        self._sleep_exactly = sleep_exactly
        self._monotonic = monotonic
        self._average_s = INITIAL_LEAD_S
        self._began: float | None = None
        self._expected_schedules = 0

    def expect_schedules(self, count: int) -> None:
        """Set how many schedules will be due at the next instant."""
        self._expected_schedules = count

    @property
    def lead_time(self) -> timedelta:
        """How long before the next instant to start."""
        needed = max(
            self._average_s * LEAD_FACTOR + LEAD_SLACK_S, self._expected_schedules * LEAD_PER_SCHEDULE_S
        )
        return timedelta(seconds=min(needed, MAX_LEAD_S))

    def wait_if_near(
        self, due: datetime | None, *, now: datetime, monotonic_now: float
    ) -> InstantWait | None:
        """Return what waits for `due` if it lies within the lead time.

        `monotonic_now` was read after `now`, so that the wait never ends too early.
        """
        if due is None or not ZERO < due - now <= self.lead_time:
            return None
        self._began = self._monotonic()
        return InstantWait(self, due, monotonic_deadline=monotonic_now + (due - now).total_seconds())

    def wait_until(self, deadline: float) -> None:
        """Block until the monotonic clock shows `deadline`; the first call ends the measured pass."""
        monotonic_now = self._monotonic()
        if self._began is not None:
            difference = monotonic_now - self._began - self._average_s
            self._average_s += difference * (EWMA_WEIGHT_SLOWER if difference > 0 else EWMA_WEIGHT_FASTER)
            self._began, self._expected_schedules = None, 0
        if monotonic_now < deadline:
            self._sleep_exactly(deadline - monotonic_now)

    def wait_for(self, seconds: float) -> None:
        """Block for this long."""
        self._sleep_exactly(seconds)
