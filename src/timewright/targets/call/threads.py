"""A bounded thread pool in which a thread that hangs can be abandoned and replaced.

A thread cannot be killed. An abandoned thread does not count against the limit, takes no more work, and ends
when its function returns. It is a daemon thread, so it does not keep the process from exiting.

Two calls of one run never run side by side.
"""

from __future__ import annotations

import itertools
import os
import select
import threading
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from timewright.errors import OverQuota
from timewright.targets.outcomes import run_safely

if TYPE_CHECKING:
    from timewright.targets.call.in_process import InProcessCall

# If a thread took an item within the last 1 ms, the queue is moving: a woken thread rechecks every 0.3 ms.
QUEUE_MOVING_S = 0.001
RECHECK_INTERVAL_S = 0.0003


class WorkItem:
    """One work item: queued, running, returned, or abandoned with its thread."""

    is_abandoned = False
    has_returned = False
    thread: threading.Thread | None = None

    def run(self) -> None:
        """Do the work, on the thread that takes the item."""
        raise NotImplementedError


class _IdleThread:
    """Lets an idle thread wait until it is woken."""

    __slots__ = ("wake",)

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()


class CallThreadPool:
    """Runs work items on at most `limit` threads, started on demand and kept while idle for a time."""

    def __init__(self, *, limit: int = 32, max_leaked: int = 128, idle_seconds: float = 30.0) -> None:
        self._limit = limit
        self._max_leaked = max_leaked
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._queue: deque[WorkItem] = deque()
        self._idle: list[_IdleThread] = []
        self._threads: set[threading.Thread] = set()
        self._names = itertools.count(1)
        self._count = 0
        self._starting = 0
        self._taken_count = 0
        self._last_taken_at = 0.0
        self._leaked = 0
        self._closed = False

    @property
    def leaked(self) -> int:
        """How many abandoned threads still run."""
        return self._leaked

    @property
    def count(self) -> int:
        """How many threads run, without abandoned ones."""
        return self._count

    def submit(self, item: WorkItem) -> None:
        """Queue an item. Raises OverQuota when too many threads were abandoned and still run."""
        with self._lock:
            if self._leaked >= self._max_leaked:
                raise OverQuota(
                    f"{self._leaked} threads of earlier runs still hang",
                    field="target.isolation",
                    value="thread",
                    rule=f"at most {self._max_leaked} threads may hang",
                    fix="use isolation: process, where a function can be killed, and restart this process",
                )
            self._queue.append(item)
            try:
                self._wake_or_start()
            except RuntimeError:
                self._queue.remove(item)
                raise

    def cancel_queued(self, item: WorkItem) -> bool:
        """Remove an item that no thread has started; returns whether it was still queued."""
        with self._lock, suppress(ValueError):
            self._queue.remove(item)
            return True
        return False

    def abandon(self, item: WorkItem) -> bool:
        """Abandon the thread that runs this item, and replace it if items are queued."""
        with self._lock:
            if item.has_returned or item.is_abandoned:
                return False
            item.is_abandoned = True
            self._leaked += 1
            self._count -= 1
            if item.thread is not None:
                self._threads.discard(item.thread)
            self._wake_or_start()
        return True

    def close(self, *, grace: float) -> None:
        """End idle threads, and wait up to `grace` seconds for each busy thread that is not abandoned."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            while self._idle:
                self._wake(self._idle.pop())
        for thread in threads:
            thread.join(grace)

    def _wake_or_start(self) -> None:
        """Wake or start one thread if items are queued. The caller holds the lock.

        One at a time: each thread takes an item and then wakes the next, if more are queued. A woken thread
        waits while the queue moves. So few threads run many short items, which is much cheaper, and long
        items get as many threads as allowed.
        """
        if self._starting or not self._queue:
            return
        if self._idle:
            self._wake(self._idle.pop())
        elif self._count < self._limit:
            self._start()

    def _wake(self, idle_thread: _IdleThread) -> None:
        self._starting += 1
        idle_thread.wake.release()

    def _start(self) -> None:
        """Start a thread. The caller holds the lock."""
        name = f"timewright-call-{next(self._names)}"
        thread = threading.Thread(target=self._run_items, name=name, daemon=True)
        self._count += 1
        self._starting += 1
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._count -= 1
            self._starting -= 1
            self._threads.discard(thread)
            if not self._count:
                raise  # the system has no thread left, and no running thread can take the item

    def _run_items(self) -> None:
        idle_thread, thread = _IdleThread(), threading.current_thread()
        self._wait_while_moving()
        item = self._next_item(idle_thread)
        while item is not None:
            item.thread = thread
            run_safely(item.run)
            item = self._next_item(idle_thread, last=item)
        with self._lock:
            self._threads.discard(thread)

    def _next_item(self, idle_thread: _IdleThread, *, last: WorkItem | None = None) -> WorkItem | None:
        """Wait for the next item; None if this thread should end."""
        while True:
            with self._lock:
                if last is not None:
                    last.has_returned = True
                    if last.is_abandoned:
                        self._leaked -= 1
                        return None
                if self._queue:
                    item = self._queue.popleft()
                    self._taken_count += 1
                    self._last_taken_at = monotonic()
                    self._wake_or_start()
                    return item
                if self._closed:
                    self._count -= 1
                    return None
                self._idle.append(idle_thread)
            last = None
            if not self._wait_for_wake(idle_thread):
                return None

    def _wait_for_wake(self, idle_thread: _IdleThread) -> bool:
        """Wait until woken; returns False after the idle time."""
        woken = idle_thread.wake.acquire(timeout=self._idle_seconds)
        with self._lock:
            if not woken and idle_thread in self._idle:
                self._idle.remove(idle_thread)
                self._count -= 1
                return False
            if not woken:
                idle_thread.wake.acquire()  # taken from the list just before: the wake-up follows
        self._wait_while_moving()
        return True

    def _wait_while_moving(self) -> None:
        """Wait while other threads keep taking items, then count this thread as started."""
        while self._is_moving():
            seen = self._taken_count
            select.select((), (), (), RECHECK_INTERVAL_S)
            if self._taken_count == seen:
                break
        with self._lock:
            self._starting -= 1

    def _is_moving(self) -> bool:
        return bool(self._queue) and not self._closed and monotonic() - self._last_taken_at < QUEUE_MOVING_S


class CallsByRun:
    """The calls of this process by run: a call waits until an earlier call of its run has returned.

    A run may be leased again while its function still runs: its lease was lost, or its scheduler stopped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[str, InProcessCall] = {}
        self._waiting: dict[str, list[InProcessCall]] = {}

    def forget_all(self) -> None:
        """Forget all calls, in a process without their threads."""
        self._lock = threading.Lock()
        self._current.clear()
        self._waiting.clear()

    def enter(self, call: InProcessCall) -> bool:
        """Register a call; returns whether it may start now. Otherwise `start` is called later."""
        with self._lock:
            if self._current.setdefault(call.run_id, call) is call:
                return True
            self._waiting.setdefault(call.run_id, []).append(call)
            return False

    def withdraw(self, call: InProcessCall) -> bool:
        """Remove a call that waits; returns whether it waited."""
        with self._lock:
            waiting = self._waiting.get(call.run_id, [])
            if call not in waiting:
                return False
            waiting.remove(call)
            return True

    def leave(self, call: InProcessCall) -> None:
        """Remove a call whose function has returned, and start the next one of its run."""
        with self._lock:
            if self._current.get(call.run_id) is not call:
                return
            del self._current[call.run_id]
            waiting = self._waiting.pop(call.run_id, [])
            following = waiting.pop(0) if waiting else None
            if following is not None:
                self._current[call.run_id] = following
                self._waiting |= {call.run_id: waiting} if waiting else {}
        if following is not None:
            following.start()


CALLS_BY_RUN = CallsByRun()


class ForkCounter:
    """How many forks separate this process from the one that imported this module."""

    count = 0

    @classmethod
    def count_fork(cls) -> None:
        """Runs in the child after a fork, which has none of the threads that run calls."""
        cls.count += 1
        CALLS_BY_RUN.forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ForkCounter.count_fork)
