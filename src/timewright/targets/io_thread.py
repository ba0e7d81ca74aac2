"""One thread that waits for pipes, processes, timers and calls from other threads.

User code never runs on it, so no function can delay a time limit.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from timewright.clocks import SystemClock
from timewright.errors import NotAllowed

Callback = Callable[[], object]

# A selector does not count the time a machine is suspended, but our deadlines do. So while timers are
# pending it waits at most this long, and runs overdue timers soon after the machine resumes.
MAX_WAIT_S = 5.0
_CLEANUP_THRESHOLD = 1000


class Timer:
    """A callback that runs at a time of the monotonic clock, unless it is cancelled first."""

    __slots__ = ("_io_thread", "at", "callback")

    def __init__(self, io_thread: IoThread, *, at: float, callback: Callback) -> None:
        self._io_thread = io_thread
        self.at = at
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Cancel the timer. Thread-safe."""
        self._io_thread.cancel_timer(self)


class IoThread:
    """Runs callbacks on its own thread when a descriptor is ready or a timer is due."""

    def __init__(self, *, monotonic: Callable[[], float] | None = None) -> None:
        self.monotonic = monotonic or SystemClock().monotonic
        self._lock = threading.Lock()
        self._calls: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._cancelled = 0
        self._order = itertools.count()
        self._callbacks: dict[int, Callback] = {}
        self._thread: threading.Thread | None = None
        self._waits_until = float("-inf")
        self._closing = False

    def call_soon(self, callback: Callback) -> None:
        """Run the callback on this thread soon, in the order of the calls. Thread-safe."""
        with self._lock:
            self._start()
            self._calls.append(callback)
            self._wake()

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Run the callback on this thread after a delay. Thread-safe."""
        timer = Timer(self, at=self.monotonic() + max(0.0, seconds), callback=callback)
        with self._lock:
            self._start()
            heapq.heappush(self._timers, (timer.at, next(self._order), timer))
            if timer.at < self._waits_until:
                self._wake()
        return timer

    def cancel_timer(self, timer: Timer) -> None:
        """Cancel a timer. Removes cancelled timers from the heap when they are more than half of it."""
        with self._lock:
            if timer.callback is None:
                return
            timer.callback = None
            self._cancelled += 1
            if self._cancelled > _CLEANUP_THRESHOLD and self._cancelled > len(self._timers) // 2:
                self._timers = [entry for entry in self._timers if entry[2].callback is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    def watch_readable(self, fd: int, callback: Callback) -> None:
        """Run the callback whenever the descriptor is readable. Call it on this thread only."""
        self._register(fd, selectors.EVENT_READ, callback)

    def watch_ready(self, fd: int, callback: Callback) -> None:
        """Run the callback whenever the descriptor is readable or writable. Call it on this thread only."""
        self._register(fd, selectors.EVENT_READ | selectors.EVENT_WRITE, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, before it is closed. Call it on this thread only."""
        if self._callbacks.pop(fd, None) is not None:
            self._selector.unregister(fd)

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread after the queued callbacks. Pending timers are dropped."""
        with self._lock:
            thread, self._closing = self._thread, True
            if thread is None:
                return
            self._wake()
        if not self.is_current_thread:
            thread.join()

    def _register(self, fd: int, events: int, callback: Callback) -> None:
        if fd in self._callbacks:
            self._selector.modify(fd, events)
        else:
            self._selector.register(fd, events)
        self._callbacks[fd] = callback

    def _start(self) -> None:
        """Start the thread if it does not run. The caller holds the lock."""
        if self._closing:
            raise NotAllowed(
                "the I/O thread is closed",
                field="io_thread",
                rule="a closed target accepts no work",
                fix="start a new scheduler",
            )
        if self._thread is not None:
            return
        self._selector = selectors.DefaultSelector()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._register(self._wake_receiver.fileno(), selectors.EVENT_READ, self._drain_wake_ups)
        thread = threading.Thread(target=self._run, name="timewright-io", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread available; the next call tries again
            self._callbacks.clear()
            self._close_files()
            raise
        self._thread = thread

    def _wake(self) -> None:
        # One pending wake-up is enough, and a full socket buffer already holds one.
        if self._waits_until > float("-inf"):
            self._waits_until = float("-inf")
            with suppress(BlockingIOError):
                self._wake_sender.send(b"\0")

    def _drain_wake_ups(self) -> None:
        with suppress(BlockingIOError):
            self._wake_receiver.recv(4096)

    def _run(self) -> None:
        while (timeout := self._next_timeout()) is not None:
            for key, _ in self._selector.select(timeout if timeout < float("inf") else None):
                callback = self._callbacks.get(key.fd)
                if callback is not None:
                    run_safely(callback)
            with self._lock:
                self._waits_until = float("-inf")
            self._run_calls()
            self._run_timers()
        self._close_files()

    def _close_files(self) -> None:
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def _next_timeout(self) -> float | None:
        """How long to wait: 0 while calls are queued, None when the thread should end."""
        with self._lock:
            if self._calls:
                return 0.0
            if self._closing:
                return None
            if not self._timers:
                self._waits_until = float("inf")
                return self._waits_until
            timeout = min(MAX_WAIT_S, max(0.0, self._timers[0][0] - self.monotonic()))
            self._waits_until = self.monotonic() + timeout
            return timeout

    def _run_calls(self) -> None:
        # Calls added meanwhile wait for the next round, so that they cannot starve the descriptors.
        for _ in range(len(self._calls)):
            run_safely(self._calls.popleft())

    def _run_timers(self) -> None:
        now = self.monotonic()
        while (callback := self._pop_due(now)) is not None:
            run_safely(callback)

    def _pop_due(self, now: float) -> Callback | None:
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.callback is None:
                    self._cancelled -= 1
                    continue
                callback, timer.callback = timer.callback, None
                return callback
        return None


def run_safely(callback: Callback) -> None:
    """Run the callback. An exception goes to `threading.excepthook` and does not end the thread."""
    try:
        callback()
    except BaseException:  # noqa: BLE001 - boundary: one bad callback must not end the shared thread
        report_exception()


def report_exception() -> None:
    """Pass the current exception to `threading.excepthook`."""
    with suppress(BaseException):  # a user's hook may raise too
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
