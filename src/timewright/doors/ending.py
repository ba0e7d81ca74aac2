"""The wish that a program ends: said by anyone at any instant, also by the handler of a signal."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

# A signal that comes just before we begin to wait is handled when we look up again, and not before.
LOOK_UP_EVERY = 1.0


class Ending:
    """Said once and for all.

    The handler of a signal interrupts whoever waits, wherever that may be: an event would have it wait there
    for a lock that the one it interrupts holds.
    """

    def __init__(self) -> None:
        self._said = False
        self._calls: SimpleQueue[None] = SimpleQueue()

    def say(self) -> None:
        """It shall end."""
        self._said = True
        self._calls.put(None)

    def is_near(self, *, within: float = LOOK_UP_EVERY) -> bool:
        """Wait at most so many seconds for it; says whether it was said."""
        if not self._said:
            with suppress(Empty):
                self._calls.get(timeout=within)
                self._calls.put(None)  # for whoever else waits
        return self._said
