"""Time limits of many calls. Calls with the same limit share one queue and one timer."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from timewright.targets.io_thread import IoThread

# Finished calls are removed from a queue when it reaches this length.
_CLEANUP_THRESHOLD = 100


class TimeLimited(Protocol):
    """Something with a time limit."""

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        ...

    def on_time_limit(self) -> None:
        """Called on the I/O thread when the time limit is reached."""
        ...


class Deadlines:
    """Calls `on_time_limit` of calls that run too long, without a timer for each call."""

    def __init__(self, io_thread: IoThread) -> None:
        self._io_thread = io_thread
        self._lock = threading.Lock()
        self._queues: dict[float, deque[tuple[float, TimeLimited]]] = {}
        self._cleanup_at = _CLEANUP_THRESHOLD

    def add(self, limited: TimeLimited, seconds: float) -> None:
        """Start the time limit of a call now."""
        at = self._io_thread.monotonic() + seconds
        with self._lock:
            queue = self._queues.get(seconds)
            if queue is None:
                self._io_thread.call_later(seconds, lambda: self._check_expired(seconds))
                queue = self._queues[seconds] = deque()
            if len(queue) >= self._cleanup_at:
                queue = self._queues[seconds] = deque(entry for entry in queue if not entry[1].is_finished)
                self._cleanup_at = max(_CLEANUP_THRESHOLD, 2 * len(queue))
            queue.append((at, limited))

    def _check_expired(self, seconds: float) -> None:
        now, late = self._io_thread.monotonic(), list[TimeLimited]()
        with self._lock:
            queue = self._queues[seconds]
            while queue and (queue[0][1].is_finished or queue[0][0] <= now):
                late.append(queue.popleft()[1])
            if queue:
                self._io_thread.call_later(queue[0][0] - now, lambda: self._check_expired(seconds))
            else:
                del self._queues[seconds]
        for limited in late:
            if not limited.is_finished:
                limited.on_time_limit()
