"""An answer is given once: whoever speaks first is heard, everyone later is not."""

from __future__ import annotations

import threading
from collections.abc import Callable

from timewright.core.run import Outcome
from timewright.targets.watch import show_error


class Once:
    """Passes on the first outcome it is told, and says whether this was it; a listener cannot break it."""

    __slots__ = ("_done", "_first", "spoken")

    def __init__(self, done: Callable[[Outcome], object]) -> None:
        self._done = done
        self._first = threading.Lock()
        self.spoken = False
        """Whether an outcome was passed on."""

    def __call__(self, outcome: Outcome) -> bool:
        if not self._first.acquire(blocking=False):
            return False
        self.spoken = True
        try:
            self._done(outcome)
        except BaseException:  # noqa: BLE001 - the boundary: a listener's error is not the work's
            show_error()
        return True


class Ended:
    """Work that has already answered: there is nothing left to stop."""

    def stop(self, reason: str) -> None:
        """Nothing to do."""


ENDED = Ended()
