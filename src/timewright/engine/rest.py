"""How long to sleep, and what wakes us."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from timewright.core.policies import LONGEST_REST


class EventWaker:
    """Rests on an event, so that anyone may end the rest from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def rest(self, seconds: float) -> bool:
        """Sleep at most that long; says whether someone woke us."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken

    def wake(self) -> None:
        """End a rest now, or the next one at once."""
        if not self._event.is_set():
            self._event.set()


def rest_seconds(next_at: datetime | None, *, now: datetime, longest: timedelta = LONGEST_REST) -> float:
    """Until the next instant at which anything may be due, and never longer than the longest rest."""
    if next_at is None:
        return longest.total_seconds()
    return min(max((next_at - now).total_seconds(), 0.0), longest.total_seconds())
