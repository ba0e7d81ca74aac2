"""Threads for what waits for the store: few, kept while they are needed, and reached in one step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

IDLE_SECONDS = 10.0


class _Job:
    """A piece of work, and the loop that waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self._loop.create_future()

    def perform(self) -> None:
        """Do it, and tell the loop how it ended."""
        try:
            result, error = self._work(), None
        except BaseException as raised:  # noqa: BLE001 - it is raised again where it is waited for
            result, error = None, raised
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.done.cancelled():
            return
        if error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(error)


class Threads:
    """Runs what waits on threads, so many at once; one that nobody needs for a while ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._guard = threading.Lock()
        self._alive = self._idle = self._waiting = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, from another thread than the loop's; the cancelled wait for its end."""
        job = _Job(work)
        self._promise()
        self._jobs.put(job)
        try:
            return await asyncio.shield(job.done)
        except asyncio.CancelledError:
            await asyncio.wait([job.done])
            job.done.exception()
            raise

    def _promise(self) -> None:
        """Set a thread aside for one more job: an idle one, a new one, or the first that is free."""
        with self._guard:
            if self._idle:
                self._idle -= 1
                return
            if self._alive >= self._most:
                self._waiting += 1
                return
            self._alive += 1
        threading.Thread(target=self._stay, name="timewright-answer", daemon=True).start()

    def _stay(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._may_end():
                    return
                continue
            job.perform()
            # Held no longer than it takes: the answer may be large.
            del job
            self._free()

    def _may_end(self) -> bool:
        with self._guard:
            if not self._idle:
                return False  # it is promised to someone
            self._idle -= 1
            self._alive -= 1
            return True

    def _free(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting -= 1
            else:
                self._idle += 1
