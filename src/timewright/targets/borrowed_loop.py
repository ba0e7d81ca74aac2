"""The loop of the program that a scheduler lives in, lent to it for the async functions of that program."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from timewright.targets.loop import LoopThread


class BorrowedLoop(LoopThread):
    """Errands are tasks of a loop that runs already; once that has ended they get a loop of their own."""

    def __init__(self, name: str, lent: asyncio.AbstractEventLoop) -> None:
        super().__init__(name)
        self._lent = lent

    @property
    def cuts_short(self) -> bool:
        """Always: whoever runs the loop cancels all its tasks in the end, ours too."""
        return True

    def start(self) -> None:
        """Nothing: a loop of its own is begun only when the other has ended."""

    def close(self, *, grace: timedelta) -> None:
        """Cancel what is left of ours on the lent loop, which goes on, and end the other if there is one."""
        with self._lock:
            left = [task for task in self._tasks if task.get_loop() is self._lent]
        if self._lent.is_running():
            for task in left:
                self._lent.call_soon_threadsafe(task.cancel)
        super().close(grace=grace)

    def _started(self) -> asyncio.AbstractEventLoop:
        if not self._closed and self._lent.is_running():
            return self._lent
        return super()._started()
