"""One thread that waits for pipes, processes, timers and calls from other threads.

User code never runs on it, so no function can delay a time limit.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from contextlib import suppress

from timewright.clocks import SystemClock
from timewright.targets.loop_thread import LoopThread, is_running_here
from timewright.targets.outcomes import run_safely

Callback = Callable[[], object]

# A selector does not count the time a machine is suspended, but our deadlines do. So while timers are
# pending it waits at most this long, and runs overdue timers soon after the machine resumes.
MAX_WAIT_S = 5.0


class _ShortWaits(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else min(timeout, MAX_WAIT_S))


class _SuspendAwareLoop(asyncio.SelectorEventLoop):
    """A loop whose timers count the time a machine is suspended."""

    def __init__(self) -> None:
        selector = _ShortWaits()
        try:
            super().__init__(selector)
        except OSError:  # no descriptor left
            selector.close()
            self._closed = True  # otherwise asyncio complains of a loop that was never closed
            raise

    def time(self) -> float:
        return SystemClock.monotonic()


class Timer:
    """A callback that runs at a time of the monotonic clock, unless it is cancelled first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callback) -> None:
        self._loop = loop
        self._callback: Callback | None = callback
        self._handle: asyncio.TimerHandle | None = None

    def start(self, at: float) -> None:
        """Wait for the time. Call it on the loop's thread only."""
        if self._callback is not None:
            self._handle = self._loop.call_at(at, self._run)

    def cancel(self) -> None:
        """Cancel the timer. Thread-safe."""
        self._callback = None
        if self._handle is None:
            return
        if is_running_here(self._loop):
            self._handle.cancel()
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._handle.cancel)

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            run_safely(callback)


class IoThread(LoopThread):
    """Runs callbacks on its own thread when a descriptor is ready or a timer is due."""

    monotonic = staticmethod(SystemClock.monotonic)

    def __init__(self) -> None:
        super().__init__("timewright-io", new_loop=_SuspendAwareLoop)

    def call_soon(self, callback: Callback) -> None:
        """Run the callback on this thread soon, in the order of the calls. Thread-safe."""
        with self._lock:
            self._running_loop().call_soon_threadsafe(run_safely, callback)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Run the callback on this thread after a delay. Thread-safe."""
        at = self.monotonic() + max(0.0, seconds)
        with self._lock:
            loop = self._running_loop()
            timer = Timer(loop, callback)
            if is_running_here(loop):
                timer.start(at)
            else:
                loop.call_soon_threadsafe(timer.start, at)
        return timer

    def watch_readable(self, fd: int, callback: Callback) -> None:
        """Run the callback whenever the descriptor is readable. Call it on this thread only."""
        loop = asyncio.get_running_loop()
        loop.add_reader(fd, run_safely, callback)
        loop.remove_writer(fd)

    def watch_ready(self, fd: int, callback: Callback) -> None:
        """Run the callback whenever the descriptor is readable or writable. Call it on this thread only."""
        self.watch_readable(fd, callback)
        asyncio.get_running_loop().add_writer(fd, run_safely, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, before it is closed. Call it on this thread only."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(fd)
        loop.remove_writer(fd)
