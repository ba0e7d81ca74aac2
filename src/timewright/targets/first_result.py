"""Reports the first outcome of work and ignores later ones."""

from __future__ import annotations

import threading
from collections.abc import Callable

from timewright.core.run.run import Outcome
from timewright.targets.io_thread import report_exception


class FirstResult:
    """Calls `done` with the first outcome. Returns whether this call was the first; never raises."""

    __slots__ = ("_done", "_first", "is_set")

    def __init__(self, done: Callable[[Outcome], object]) -> None:
        self._done = done
        self._first = threading.Lock()
        self.is_set = False
        """Whether an outcome was reported."""

    def __call__(self, outcome: Outcome) -> bool:
        if not self._first.acquire(blocking=False):
            return False
        self.is_set = True
        try:
            self._done(outcome)
        except BaseException:  # noqa: BLE001 - boundary: an error in `done` is not a failure of the work
            report_exception()
        return True


class FinishedWork:
    """Work that has already reported its outcome."""

    def stop(self, reason: str) -> None:
        """Do nothing: the work has finished."""


FINISHED_WORK = FinishedWork()
