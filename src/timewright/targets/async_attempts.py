"""Runs the attempts of a target as tasks of one loop. Each attempt reports exactly one outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from timewright.core.run.run import Cancelled, Outcome
from timewright.errors import NotAllowed
from timewright.targets.loop_thread import CANCEL_GRACE, LoopTask, LoopThread


class AsyncAttempt:
    """One running attempt. `reason` is why it was stopped; `is_released` is true if its target closed."""

    def __init__(self, done: Callable[[Outcome], None], *, released: Outcome) -> None:
        self.done = done
        self.outcome = released
        self.reason = ""
        self.is_released = False
        self.task: LoopTask[Outcome] | None = None
        self._released = released

    def stop(self, reason: str) -> None:
        """Cancel the attempt. Whether the remote side did the work is unknown."""
        self.reason = reason
        self._end(Cancelled(reason=reason))

    def release(self) -> None:
        """Cancel the attempt because its target closes."""
        self.is_released = True
        self._end(self._released)

    def _end(self, outcome: Outcome) -> None:
        """Cancel the task and set its outcome, unless the attempt was stopped before."""
        if self.outcome is self._released:
            self.outcome = outcome
        if self.task is not None:
            self.task.cancel()


class AsyncAttempts:
    """Runs the attempts of a target on a loop. `released` is the outcome of attempts cancelled by `close`."""

    def __init__(self, loop: LoopThread, *, released: Outcome) -> None:
        self._loop = loop
        self._released = released
        self._lock = threading.Lock()
        self._running: set[AsyncAttempt] = set()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False

    def start(
        self, work: Callable[[AsyncAttempt], Coroutine[Any, Any, Outcome]], done: Callable[[Outcome], None]
    ) -> AsyncAttempt:
        """Start an attempt and return immediately. `done` is called once, on the loop's thread.

        After `close`, `done` is called on the caller's thread with the `released` outcome.
        """
        attempt = AsyncAttempt(done, released=self._released)
        with self._lock, suppress(NotAllowed, RuntimeError):
            if not self._closed:
                attempt.task = self._loop.submit(work(attempt), lambda task: self._on_finished(attempt, task))
                self._running.add(attempt)
                self._idle.clear()
                return attempt
        done(self._released)
        return attempt

    def close(self, *, grace: timedelta) -> None:
        """Wait up to `grace` for running attempts, then cancel the rest."""
        with self._lock:
            self._closed = True
        if not self._idle.wait(grace.total_seconds()):
            with self._lock:
                left = list(self._running)
            for attempt in left:
                attempt.release()
            self._idle.wait(CANCEL_GRACE.total_seconds())

    def _on_finished(self, attempt: AsyncAttempt, task: asyncio.Task[Outcome]) -> None:
        try:
            attempt.done(attempt.outcome if task.cancelled() else task.result())
        finally:
            with self._lock:
                self._running.discard(attempt)
                if not self._running:
                    self._idle.set()
