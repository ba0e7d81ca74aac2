"""An answer is given once: whoever speaks first is heard, everyone later is not."""

from __future__ import annotations

import threading
from collections.abc import Callable

from timewright.core.run import Outcome
from timewright.targets.watch import safely


class Once:
    """Passes on the first outcome it is told, and says whether this was it; a listener cannot break it."""

    __slots__ = ("_done", "_spoken")

    def __init__(self, done: Callable[[Outcome], object]) -> None:
        self._done = done
        self._spoken = threading.Lock()

    def __call__(self, outcome: Outcome) -> bool:
        if not self._spoken.acquire(blocking=False):
            return False
        safely(lambda: self._done(outcome))
        return True

    @property
    def spoken(self) -> bool:
        """Whether an outcome was passed on."""
        return self._spoken.locked()


class Ended:
    """Work that has already answered: there is nothing left to stop."""

    def stop(self, reason: str) -> None:
        """Nothing to do."""


ENDED = Ended()
