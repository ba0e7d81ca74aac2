"""What wakes us."""

from __future__ import annotations

import select
import threading
from time import monotonic

# The timers of a host are late by a tenth of a millisecond or two: so long before the end we look ourselves.
WATCHED = 0.0002


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


def stand_still(seconds: float) -> None:
    """Sleep for exactly that long; nobody ends it."""
    until = monotonic() + seconds
    if seconds > WATCHED:
        select.select((), (), (), seconds - WATCHED)
    while monotonic() < until:
        give_way()


def give_way(seconds: float = 0.0) -> None:
    """Let other threads have the interpreter; whoever was called just now would wait for it otherwise."""
    select.select((), (), (), seconds)
