"""One asyncio loop on a thread of its own, for everything that waits: requests and async functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

from timewright.errors import NotAllowed

T = TypeVar("T")

# Started when needed: a name server that keeps many waiting shall not keep the names of others waiting.
LOOKUP_THREADS = 256
# What a task gets to clean up after it was cancelled; user code may ignore a cancellation for ever.
LAST_WORD = timedelta(seconds=2)


class Errand(Generic[T]):
    """A coroutine that was handed to the loop; it may be asked to end, also before it began."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[asyncio.Task[T]], None],
        tasks: set[asyncio.Task[Any]],
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._tasks = tasks
        self._task: asyncio.Task[T] | None = None

    def cancel(self) -> None:
        """Ask it to end, from any thread; one that has ended does not mind."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return  # the loop is closed, and with it every errand

    def begin(self, work: Coroutine[Any, Any, T]) -> None:
        """Make a task of it, on the loop's own thread."""
        self._task = self._loop.create_task(work)
        self._tasks.add(self._task)
        self._task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        self._ended(task)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class LoopThread:
    """The loop and its thread: both begin with the first errand, and end with `close`."""

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
        self._ended = False

    @property
    def cuts_short(self) -> bool:
        """Whether errands may be cancelled here without having done anything for it, because it closes."""
        return self._closed

    def start(self) -> None:
        """Start the thread; a second time does nothing."""
        with self._lock:
            self._started()

    def submit(self, work: Coroutine[Any, Any, T], ended: Callable[[asyncio.Task[T]], None]) -> Errand[T]:
        """Hand over a coroutine; `ended` is called exactly once, on the loop's thread, when it is over.

        It is told the finished task, which was perhaps cancelled before its first step. NotAllowed after
        `close`, RuntimeError or OSError when the system has no thread or no descriptor to give.
        """
        with self._lock:
            try:
                loop = self._started()
            except (NotAllowed, RuntimeError, OSError):
                work.close()
                raise
            errand = Errand(loop, ended, self._tasks)
            if _is_here(loop):
                errand.begin(work)  # on its own thread nobody has to be woken
            else:
                loop.call_soon_threadsafe(errand.begin, work)
        return errand

    def call(self, work: Coroutine[Any, Any, T], *, timeout: timedelta) -> T:
        """Run a coroutine on the loop and wait for its result; never from the loop's own thread."""
        answer: Future[T] = Future()
        errand = self.submit(work, lambda task: _hand_over(task, answer))
        try:
            return answer.result(timeout.total_seconds())
        except TimeoutError:
            errand.cancel()
            raise

    def close(self, *, grace: timedelta) -> None:
        """Let errands end by themselves for that long, cancel the rest, and end the thread.

        Whoever uses the loop is closed first. A task that ignores being cancelled is given up.
        """
        with self._lock:
            loop, thread, lookups = self._loop, self._thread, self._lookups
            was_closed, self._closed = self._closed, True
        if was_closed or loop is None or thread is None or lookups is None:
            return
        asyncio.run_coroutine_threadsafe(self._drain(grace), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(self._end, loop)
        )
        thread.join((grace + 2 * LAST_WORD).total_seconds())
        if not thread.is_alive():
            loop.close()
        _end_lookups(lookups)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise NotAllowed(
                "the loop is closed",
                field="loop",
                rule="after close nothing more is taken on",
                fix="start a new scheduler",
            )
        if self._loop is None:
            loop = self._new_loop()
            self._lookups = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix=f"{self._name}-lookup")
            loop.set_default_executor(self._lookups)
            self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        return self._loop

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ended = True
        loop.stop()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run until we end it: a coroutine that raises an exit or stops the loop does so for itself alone."""
        while not self._ended:
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()

    async def _drain(self, grace: timedelta) -> None:
        await _wait(set(self._tasks), grace)
        # What an errand has begun by itself and left running ends here too.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await _wait(left, LAST_WORD)
        await asyncio.get_running_loop().shutdown_asyncgens()


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is on the thread of a loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _wait(tasks: set[asyncio.Task[Any]], limit: timedelta) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=limit.total_seconds())


def _end_lookups(lookups: ThreadPoolExecutor) -> None:
    """End the threads that look up names; one that is stuck in the system's resolver is left behind."""
    lookups.shutdown(wait=False, cancel_futures=True)
    waiting = threading.Thread(target=lookups.shutdown, daemon=True)
    waiting.start()
    waiting.join(LAST_WORD.total_seconds())


def _hand_over(task: asyncio.Task[T], answer: Future[T]) -> None:
    if task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
