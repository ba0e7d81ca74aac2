"""What wakes us."""

from __future__ import annotations

import threading


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
