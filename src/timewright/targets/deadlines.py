"""Time limits of many calls: those of one length stand in order, so that one timer serves them all."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from timewright.targets.watch import Watch

# Whoever is over is taken out when there are so many.
_CROWDED = 100


class Limited(Protocol):
    """Something that may take so long, and no longer."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        ...

    def overdue(self) -> None:
        """Its time is up; on the watch's thread."""
        ...


class Deadlines:
    """Who must end when; whoever ends in time costs no timer of its own."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._lock = threading.Lock()
        self._lines: dict[float, deque[tuple[float, Limited]]] = {}
        self._most = _CROWDED

    def add(self, limited: Limited, seconds: float) -> None:
        """It begins now, and may take so many seconds."""
        at = self._watch.monotonic() + seconds
        with self._lock:
            line = self._lines.get(seconds)
            if line is None:
                self._watch.later(seconds, lambda: self._sweep(seconds))
                line = self._lines[seconds] = deque()
            if len(line) >= self._most:
                line = self._lines[seconds] = deque(entry for entry in line if not entry[1].is_over)
                self._most = max(_CROWDED, 2 * len(line))
            line.append((at, limited))

    def _sweep(self, seconds: float) -> None:
        now, late = self._watch.monotonic(), list[Limited]()
        with self._lock:
            line = self._lines[seconds]
            while line and (line[0][1].is_over or line[0][0] <= now):
                late.append(line.popleft()[1])
            if line:
                self._watch.later(line[0][0] - now, lambda: self._sweep(seconds))
            else:
                del self._lines[seconds]
        for limited in late:
            if not limited.is_over:
                limited.overdue()
