"""An asyncio loop on its own thread, and attempts that run as tasks of it: requests and messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

from timewright.core.moments import ZERO
from timewright.core.run.run import Cancelled, Outcome
from timewright.errors import NotAllowed

T = TypeVar("T")

# Threads for DNS lookups, started on demand: one slow name server must not block lookups of other names.
MAX_DNS_THREADS = 256
# Time for a cancelled task to clean up. A limit is needed because user code may ignore a cancellation.
CANCEL_GRACE = timedelta(seconds=2)


def closed_error(what: str) -> NotAllowed:
    """The error for work that is given to something closed."""
    return NotAllowed(
        f"the {what} is closed",
        field=what,
        rule="a closed target accepts no work",
        fix="start a new scheduler",
    )


class LoopTask(Generic[T]):
    """A coroutine submitted to the loop. It can be cancelled from any thread, also before it starts."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_finished: Callable[[asyncio.Task[T]], None],
        tasks: set[asyncio.Task[Any]],
    ) -> None:
        self._loop = loop
        self._on_finished = on_finished
        self._tasks = tasks
        self._task: asyncio.Task[T] | None = None

    def cancel(self) -> None:
        """Cancel the task. Thread-safe; does nothing if it has finished."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return  # the loop is closed, and so is every task

    def start(self, work: Coroutine[Any, Any, T]) -> None:
        """Create the task. Call it on the loop's thread only."""
        self._task = self._loop.create_task(work)
        self._tasks.add(self._task)
        self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        self._on_finished(task)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class LoopThread:
    """The loop and its thread. Both start with the first submitted task and end with `close`."""

    def __init__(
        self,
        name: str = "timewright-loop",
        *,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._name = name
        self._new_loop = new_loop or asyncio.new_event_loop
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lookups: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._stopped = False

    @property
    def may_cancel_tasks(self) -> bool:
        """Whether tasks may be cancelled because the loop closes, and not because of their own run."""
        return self._closed

    def start(self) -> None:
        """Start the thread, if it does not run."""
        with self._lock:
            self._running_loop()

    def submit(
        self, work: Coroutine[Any, Any, T], on_finished: Callable[[asyncio.Task[T]], None]
    ) -> LoopTask[T]:
        """Run a coroutine as a task. `on_finished` gets the finished task, once, on the loop's thread.

        The task may have been cancelled before its first step. Raises NotAllowed after `close`, and
        RuntimeError or OSError when the system has no thread or descriptor left.
        """
        with self._lock:
            try:
                loop = self._running_loop()
            except (NotAllowed, RuntimeError, OSError):
                work.close()
                raise
            task = LoopTask(loop, on_finished, self._tasks)
            if is_running_here(loop):
                task.start(work)  # already on the loop's thread
            else:
                loop.call_soon_threadsafe(task.start, work)
        return task

    def call(self, work: Coroutine[Any, Any, T], *, timeout: timedelta) -> T:
        """Run a coroutine and wait for its result. Calling it on the loop's own thread would block."""
        result: Future[T] = Future()
        task = self.submit(work, lambda done: _copy_result(done, result))
        try:
            return result.result(timeout.total_seconds())
        except TimeoutError:
            task.cancel()
            raise

    def close(self, *, grace: timedelta = ZERO) -> None:
        """Wait up to `grace` for running tasks, cancel the rest, and end the thread.

        Close the targets that use the loop first. A task that ignores its cancellation is abandoned.
        """
        with self._lock:
            loop, thread, lookups = self._loop, self._thread, self._lookups
            was_closed, self._closed = self._closed, True
        if was_closed or loop is None or thread is None or lookups is None:
            return
        asyncio.run_coroutine_threadsafe(self._drain(grace), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(self._stop, loop)
        )
        thread.join((grace + 2 * CANCEL_GRACE).total_seconds())
        if not thread.is_alive():
            loop.close()
        _shut_down_lookups(lookups)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise closed_error("loop")
        if self._loop is None:
            loop = self._new_loop()
            self._lookups = ThreadPoolExecutor(MAX_DNS_THREADS, thread_name_prefix=f"{self._name}-lookup")
            loop.set_default_executor(self._lookups)
            self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        return self._loop

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stopped = True
        loop.stop()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until `close`, even if a coroutine raises SystemExit or stops the loop."""
        while not self._stopped:
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()

    async def _drain(self, grace: timedelta) -> None:
        await _wait(set(self._tasks), grace)
        # Includes tasks that a submitted coroutine created and left running.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await _wait(left, CANCEL_GRACE)
        await asyncio.get_running_loop().shutdown_asyncgens()


class BorrowedLoop(LoopThread):
    """Runs tasks on a loop of the embedding program. After that loop has ended, it starts its own."""

    def __init__(self, name: str, borrowed: asyncio.AbstractEventLoop) -> None:
        super().__init__(name)
        self._borrowed = borrowed

    @property
    def may_cancel_tasks(self) -> bool:
        """Always true: `asyncio.run` cancels all tasks of its loop at the end, ours too."""
        return True

    def start(self) -> None:
        """Do nothing: an own loop is started only when the borrowed one has ended."""

    def close(self, *, grace: timedelta = ZERO) -> None:
        """Cancel our tasks on the borrowed loop, which keeps running, and close the own loop, if any."""
        with self._lock:
            left = [task for task in self._tasks if task.get_loop() is self._borrowed]
        if self._borrowed.is_running():
            for task in left:
                self._borrowed.call_soon_threadsafe(task.cancel)
        super().close(grace=grace)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if not self._closed and self._borrowed.is_running():
            return self._borrowed
        return super()._running_loop()


def is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs on the loop's thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _wait(tasks: set[asyncio.Task[Any]], limit: timedelta) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=limit.total_seconds())


def _shut_down_lookups(lookups: ThreadPoolExecutor) -> None:
    """End the DNS threads. A thread that is stuck in the system's resolver is abandoned."""
    lookups.shutdown(wait=False, cancel_futures=True)
    waiting = threading.Thread(target=lookups.shutdown, daemon=True)
    waiting.start()
    waiting.join(CANCEL_GRACE.total_seconds())


def _copy_result(task: asyncio.Task[T], result: Future[T]) -> None:
    if task.cancelled():
        result.cancel()
    elif (error := task.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())


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
