"""One thread that waits for many things at once: pipes, processes, deadlines, calls from other threads.

No work of a user ever runs on it, so nothing a user writes can keep it from ending what is overdue.
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

Action = Callable[[], object]

# A wait of the selector stands still while the machine sleeps; our deadlines do not. So while there are
# deadlines nobody waits longer than this, and what is overdue on waking is ended at once.
LONGEST_WAIT = 5.0
_CROWDED = 1000


class Timer:
    """Something to do at a time, unless it is cancelled first."""

    __slots__ = ("_watch", "action", "at")

    def __init__(self, watch: Watch, *, at: float, action: Action) -> None:
        self._watch = watch
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        """Forget it; from any thread."""
        self._watch.forget_timer(self)


class Watch:
    """Waits on its own thread, and does there what it was told to do when something happens."""

    def __init__(self, *, monotonic: Callable[[], float] | None = None) -> None:
        self.monotonic = monotonic or SystemClock().monotonic
        self._lock = threading.Lock()
        self._calls: deque[Action] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._cancelled = 0
        self._order = itertools.count()
        self._actions: dict[int, Action] = {}
        self._thread: threading.Thread | None = None
        self._rests_until = float("-inf")
        self._closing = False

    def call(self, action: Action) -> None:
        """Do this soon, on the watch's thread; from any thread, in the order of the calls."""
        with self._lock:
            self._start()
            self._calls.append(action)
            self._wake()

    def later(self, seconds: float, action: Action) -> Timer:
        """Do this after so many seconds, on the watch's thread; from any thread."""
        timer = Timer(self, at=self.monotonic() + max(0.0, seconds), action=action)
        with self._lock:
            self._start()
            heapq.heappush(self._timers, (timer.at, next(self._order), timer))
            if timer.at < self._rests_until:
                self._wake()
        return timer

    def forget_timer(self, timer: Timer) -> None:
        """Cancel a timer; those of work that ended early are swept out when they crowd the rest."""
        with self._lock:
            if timer.action is None:
                return
            timer.action = None
            self._cancelled += 1
            if self._cancelled > _CROWDED and self._cancelled > len(self._timers) // 2:
                self._timers = [entry for entry in self._timers if entry[2].action is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    def when_readable(self, fd: int, action: Action) -> None:
        """Do this whenever the descriptor has something to read; on the watch's thread only."""
        self._register(fd, selectors.EVENT_READ, action)

    def when_ready(self, fd: int, action: Action) -> None:
        """Do this whenever the descriptor can be read or written; on the watch's thread only."""
        self._register(fd, selectors.EVENT_READ | selectors.EVENT_WRITE, action)

    def forget(self, fd: int) -> None:
        """Look at the descriptor no more; on the watch's thread only, before it is closed."""
        if self._actions.pop(fd, None) is not None:
            self._selector.unregister(fd)

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the watch's own thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread after what it was already told to do; what it still waits for is forgotten."""
        with self._lock:
            thread, self._closing = self._thread, True
            if thread is None:
                return
            self._wake()
        if not self.is_here:
            thread.join()

    def _register(self, fd: int, events: int, action: Action) -> None:
        if fd in self._actions:
            self._selector.modify(fd, events)
        else:
            self._selector.register(fd, events)
        self._actions[fd] = action

    def _start(self) -> None:
        """Start the thread when it is first needed; under the lock."""
        if self._closing:
            raise NotAllowed(
                "the watch is closed",
                field="watch",
                rule="after close nothing more is taken on",
                fix="start a new scheduler",
            )
        if self._thread is not None:
            return
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._register(self._ear.fileno(), selectors.EVENT_READ, self._hear)
        thread = threading.Thread(target=self._run, name="timewright-watch", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left; whoever comes next tries again
            self._actions.clear()
            self._free()
            raise
        self._thread = thread

    def _wake(self) -> None:
        # A full pipe of wake-ups wakes as well as one more; a second one before it stirs is not needed.
        if self._rests_until > float("-inf"):
            self._rests_until = float("-inf")
            with suppress(BlockingIOError):
                self._bell.send(b"\0")

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            self._ear.recv(4096)

    def _run(self) -> None:
        while (rest := self._rest()) is not None:
            for key, _ in self._selector.select(rest if rest < float("inf") else None):
                action = self._actions.get(key.fd)
                if action is not None:
                    safely(action)
            with self._lock:
                self._rests_until = float("-inf")
            self._do_calls()
            self._do_timers()
        self._free()

    def _free(self) -> None:
        self._selector.close()
        self._bell.close()
        self._ear.close()

    def _rest(self) -> float | None:
        """How long to wait now: nothing while there is something to do, None when it is over."""
        with self._lock:
            if self._calls:
                return 0.0
            if self._closing:
                return None
            if not self._timers:
                self._rests_until = float("inf")
                return self._rests_until
            rest = min(LONGEST_WAIT, max(0.0, self._timers[0][0] - self.monotonic()))
            self._rests_until = self.monotonic() + rest
            return rest

    def _do_calls(self) -> None:
        # Those that are added meanwhile wait for the next round, so that pipes get their turn.
        for _ in range(len(self._calls)):
            safely(self._calls.popleft())

    def _do_timers(self) -> None:
        now = self.monotonic()
        while (action := self._take_due(now)) is not None:
            safely(action)

    def _take_due(self, now: float) -> Action | None:
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.action is None:
                    self._cancelled -= 1
                    continue
                action, timer.action = timer.action, None
                return action
        return None


def safely(action: Action) -> None:
    """Do it; what it raises is shown as for any thread, and stops nobody else."""
    try:
        action()
    except BaseException:  # noqa: BLE001 - the boundary: one bad callback must not end the thread of all others
        show_error()


def show_error() -> None:
    """Show what was raised just now as any thread would."""
    with suppress(BaseException):  # the hook may be a user's, and raise as well
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
