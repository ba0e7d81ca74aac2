"""Attempts under way on one loop: each ends exactly once, and closing gives back what is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from timewright.core.run import Cancelled, Outcome
from timewright.errors import NotAllowed
from timewright.targets.loop import LAST_WORD, Errand, LoopThread


class Attempt:
    """One attempt under way; `reason` is why it was stopped, and `given_back` says that its target closed."""

    def __init__(self, done: Callable[[Outcome], None], *, unasked: Outcome) -> None:
        self.done = done
        self.ending = unasked
        self.reason = ""
        self.given_back = False
        self.errand: Errand[Outcome] | None = None
        self._unasked = unasked

    def stop(self, reason: str) -> None:
        """End it; what the other side made of it is not known."""
        self.reason = reason
        self._end(Cancelled(reason=reason))

    def give_back(self) -> None:
        """End it because its target closes."""
        self.given_back = True
        self._end(self._unasked)

    def _end(self, outcome: Outcome) -> None:
        """End it with that outcome, unless it has ended or was ended before."""
        if self.ending is self._unasked:
            self.ending = outcome
        if self.errand is not None:
            self.errand.cancel()


class Errands:
    """Runs the attempts of a target on a loop; `given_back` is the outcome of what closing cuts short."""

    def __init__(self, loop: LoopThread, *, given_back: Outcome) -> None:
        self._loop = loop
        self._given_back = given_back
        self._lock = threading.Lock()
        self._under_way: set[Attempt] = set()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False

    def begin(
        self, work: Callable[[Attempt], Coroutine[Any, Any, Outcome]], done: Callable[[Outcome], None]
    ) -> Attempt:
        """Start and return at once; `done` is called once, from the loop's thread.

        Once closed, the run is given back at once, from the caller's own thread.
        """
        attempt = Attempt(done, unasked=self._given_back)
        with self._lock, suppress(NotAllowed, RuntimeError):
            if not self._closed:
                attempt.errand = self._loop.submit(work(attempt), lambda task: self._ended(attempt, task))
                self._under_way.add(attempt)
                self._idle.clear()
                return attempt
        done(self._given_back)
        return attempt

    def close(self, *, grace: timedelta) -> None:
        """Let attempts end by themselves for that long, and give the rest back."""
        with self._lock:
            self._closed = True
        if not self._idle.wait(grace.total_seconds()):
            with self._lock:
                left = list(self._under_way)
            for attempt in left:
                attempt.give_back()
            self._idle.wait(LAST_WORD.total_seconds())

    def _ended(self, attempt: Attempt, task: asyncio.Task[Outcome]) -> None:
        try:
            attempt.done(attempt.ending if task.cancelled() else task.result())
        finally:
            with self._lock:
                self._under_way.discard(attempt)
                if not self._under_way:
                    self._idle.set()
