"""What wakes us."""

from __future__ import annotations

import select
import threading
from time import monotonic

# The timers of a host are late by a tenth of a millisecond or two: so long before the end we look ourselves.
WATCHED = 0.0002


class EventWaker:
    """Rests on an event, so that anyone may end the rest from any thread; a punctual one ends it in time."""

    def __init__(self, *, punctual: bool = False) -> None:
        self._event = threading.Event()
        self._watched = WATCHED if punctual else 0.0

    def rest(self, seconds: float) -> bool:
        """Sleep at most that long; says whether someone woke us."""
        until = monotonic() + seconds
        woken = self._event.wait(max(seconds - self._watched, 0.0))
        while self._watched and not woken and monotonic() < until:
            give_way()
            woken = self._event.is_set()
        self._event.clear()
        return woken

    def wake(self) -> None:
        """End a rest now, or the next one at once."""
        if not self._event.is_set():
            self._event.set()


def give_way() -> None:
    """Let other threads have the interpreter; whoever was called just now would wait for it otherwise."""
    select.select((), (), (), 0)
