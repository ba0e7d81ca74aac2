"""A bounded pool of threads in which a thread that never comes back can be given up and replaced.

A thread cannot be killed. One that is abandoned no longer counts against the limit, takes no more work,
and ends when its function at last returns; being a daemon it does not keep the process from exiting.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from contextlib import suppress

from timewright.errors import OverQuota
from timewright.targets.watch import Action, safely


class Piece:
    """One piece of work: waiting, under way, ended or given up."""

    __slots__ = ("action", "is_abandoned", "is_over", "thread")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.is_abandoned = False
        self.is_over = False
        self.thread: threading.Thread | None = None


class _Seat:
    """Where one thread waits for its next piece."""

    __slots__ = ("given", "piece")

    def __init__(self, piece: Piece | None) -> None:
        self.piece = piece
        self.given = threading.Semaphore(0)


class Threads:
    """Runs pieces of work on at most `limit` threads, started when needed and kept for a while."""

    def __init__(self, *, limit: int = 32, most_leaked: int = 128, idle_seconds: float = 30.0) -> None:
        self._limit = limit
        self._most_leaked = most_leaked
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._line: deque[Piece] = deque()
        self._resting: list[_Seat] = []
        self._threads: set[threading.Thread] = set()
        self._names = itertools.count(1)
        self._count = 0
        self._leaked = 0
        self._closed = False

    @property
    def leaked(self) -> int:
        """How many threads were given up and have not come back."""
        return self._leaked

    @property
    def count(self) -> int:
        """How many threads there are that were not given up."""
        return self._count

    def give(self, piece: Piece) -> None:
        """Have it done by a thread, now or when one is free; refused when too many never came back."""
        with self._lock:
            if self._leaked >= self._most_leaked:
                raise OverQuota(
                    f"{self._leaked} threads of earlier runs never came back",
                    field="target.isolation",
                    value="thread",
                    rule=f"at most {self._most_leaked} threads may be lost to functions that do not end",
                    fix="isolation: process, where they can be killed; and restart this process",
                )
            if self._resting:
                seat = self._resting.pop()
                seat.piece = piece
                seat.given.release()
            elif self._count < self._limit:
                self._start(piece)
            else:
                self._line.append(piece)

    def withdraw(self, piece: Piece) -> bool:
        """Take back a piece that no thread has begun; says whether that was so."""
        with self._lock, suppress(ValueError):
            self._line.remove(piece)
            return True
        return False

    def abandon(self, piece: Piece) -> bool:
        """Give up the thread that does this piece; another takes its place if work waits."""
        with self._lock:
            if piece.is_over or piece.is_abandoned:
                return False
            piece.is_abandoned = True
            self._leaked += 1
            self._count -= 1
            if piece.thread is not None:
                self._threads.discard(piece.thread)
            if self._line and self._count < self._limit:
                self._start(self._line.popleft())
        return True

    def close(self, *, grace: float) -> None:
        """End the threads that rest, and wait so long for each that works and was not given up."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            while self._resting:
                self._leave(self._resting.pop())
        for thread in threads:
            thread.join(grace)

    def _start(self, piece: Piece) -> None:
        """Start one more thread with this as its first piece; under the lock."""
        name = f"timewright-call-{next(self._names)}"
        thread = threading.Thread(target=self._serve, args=(_Seat(piece),), name=name, daemon=True)
        self._count += 1
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._count -= 1
            self._threads.discard(thread)
            if not self._count:
                raise
            self._line.append(piece)  # the system has no thread left; one of ours will do it

    def _serve(self, seat: _Seat) -> None:
        piece = seat.piece
        while piece is not None:
            piece.thread = threading.current_thread()
            safely(piece.action)
            piece = self._next(seat, piece)
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _next(self, seat: _Seat, last: Piece) -> Piece | None:
        with self._lock:
            last.is_over = True
            if last.is_abandoned:
                self._leaked -= 1
                return None
            if self._line:
                return self._line.popleft()
            if self._closed:
                self._count -= 1
                return None
            seat.piece = None
            self._resting.append(seat)
        if not seat.given.acquire(timeout=self._idle_seconds):
            with self._lock:
                # Whoever took the seat from the list at the last moment has given it a piece.
                if seat in self._resting:
                    self._resting.remove(seat)
                    self._count -= 1
        return seat.piece

    def _leave(self, seat: _Seat) -> None:
        self._count -= 1
        seat.piece = None
        seat.given.release()
