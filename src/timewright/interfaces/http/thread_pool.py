"""A small thread pool for requests that may block; idle threads end after 10 s."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

IDLE_TIMEOUT_S = 10.0


class _Job:
    """A function to call in a thread, and the loop that awaits its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self._loop.create_future()

    def perform(self) -> None:
        """Call the function and pass its result to the loop."""
        try:
            result, error = self._work(), None
        except BaseException as raised:  # noqa: BLE001 - it is raised again where the result is awaited
            result, error = None, raised
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            # The loop is closed, so nothing awaits the result.
            return

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.done.cancelled():
            return
        if error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(error)


class RequestThreadPool:
    """Runs blocking functions in at most `max_threads` threads."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = self._idle = self._waiting = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run `work` in a thread and return its result; a cancelled caller waits until it has ended."""
        job = _Job(work)
        self._reserve_thread()
        self._jobs.put(job)
        try:
            return await asyncio.shield(job.done)
        except asyncio.CancelledError:
            await asyncio.wait([job.done])
            job.done.exception()
            raise

    def _reserve_thread(self) -> None:
        """Reserve an idle thread, start a new one, or count the job as waiting."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                return
            if self._alive >= self._max_threads:
                self._waiting += 1
                return
            self._alive += 1
        threading.Thread(target=self._work_loop, name="timewright-request", daemon=True).start()

    def _work_loop(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_TIMEOUT_S)
            except Empty:
                if self._try_to_end():
                    return
                continue
            job.perform()
            # Release the job before waiting: its result may be large.
            del job
            self._mark_idle()

    def _try_to_end(self) -> bool:
        with self._lock:
            if not self._idle:
                return False  # it is reserved for a job
            self._idle -= 1
            self._alive -= 1
            return True

    def _mark_idle(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting -= 1
            else:
                self._idle += 1
