"""A bounded pool of threads in which a thread that never comes back can be given up and replaced.

A thread cannot be killed. One that is abandoned no longer counts against the limit, takes no more work,
and ends when its function at last returns; being a daemon it does not keep the process from exiting.
"""

from __future__ import annotations

import itertools
import select
import threading
from collections import deque
from contextlib import suppress
from time import monotonic

from timewright.errors import OverQuota
from timewright.targets.watch import safely

# A line from which something was taken so lately moves by itself: whoever was called waits so long and looks.
MOVING = 0.001
PATIENCE = 0.0003


class Piece:
    """One piece of work: waiting, under way, given back by its thread or given up with it."""

    is_abandoned = False
    is_back = False
    thread: threading.Thread | None = None

    def work(self) -> None:
        """Do it, on the thread that takes it."""
        raise NotImplementedError


class _Seat:
    """Where one thread rests until it is called."""

    __slots__ = ("called",)

    def __init__(self) -> None:
        self.called = threading.Lock()
        self.called.acquire()


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
        self._coming = 0
        self._taken = 0
        self._taken_at = 0.0
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
            self._line.append(piece)
            try:
                self._summon()
            except RuntimeError:
                self._line.remove(piece)
                raise

    def withdraw(self, piece: Piece) -> bool:
        """Take back a piece that no thread has begun; says whether that was so."""
        with self._lock, suppress(ValueError):
            self._line.remove(piece)
            return True
        return False

    def abandon(self, piece: Piece) -> bool:
        """Give up the thread that does this piece; another takes its place if work waits."""
        with self._lock:
            if piece.is_back or piece.is_abandoned:
                return False
            piece.is_abandoned = True
            self._leaked += 1
            self._count -= 1
            if piece.thread is not None:
                self._threads.discard(piece.thread)
            self._summon()
        return True

    def close(self, *, grace: float) -> None:
        """End the threads that rest, and wait so long for each that works and was not given up."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            while self._resting:
                self._call(self._resting.pop())
        for thread in threads:
            thread.join(grace)

    def _summon(self) -> None:
        """Get one more thread if work waits; under the lock.

        One at a time: whoever comes takes a piece and then calls the next, if there is more; while the line
        moves, it waits. So short pieces are done by few threads, which is much cheaper, and long ones by as
        many as are allowed.
        """
        if self._coming or not self._line:
            return
        if self._resting:
            self._call(self._resting.pop())
        elif self._count < self._limit:
            self._start()

    def _call(self, seat: _Seat) -> None:
        self._coming += 1
        seat.called.release()

    def _start(self) -> None:
        """Start one more thread; under the lock."""
        name = f"timewright-call-{next(self._names)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._count += 1
        self._coming += 1
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._count -= 1
            self._coming -= 1
            self._threads.discard(thread)
            if not self._count:
                raise  # the system has no thread left, and none of ours will come by

    def _serve(self) -> None:
        seat, thread = _Seat(), threading.current_thread()
        self._come()
        piece = self._take(seat)
        while piece is not None:
            piece.thread = thread
            safely(piece.work)
            piece = self._take(seat, last=piece)
        with self._lock:
            self._threads.discard(thread)

    def _take(self, seat: _Seat, *, last: Piece | None = None) -> Piece | None:
        """The next piece, now or when there is one; nothing when this thread shall end."""
        while True:
            with self._lock:
                if last is not None:
                    last.is_back = True
                    if last.is_abandoned:
                        self._leaked -= 1
                        return None
                if self._line:
                    piece = self._line.popleft()
                    self._taken += 1
                    self._taken_at = monotonic()
                    self._summon()
                    return piece
                if self._closed:
                    self._count -= 1
                    return None
                self._resting.append(seat)
            last = None
            if not self._is_called(seat):
                return None

    def _is_called(self, seat: _Seat) -> bool:
        """Rest; says whether someone called before the thread had rested for too long."""
        called = seat.called.acquire(timeout=self._idle_seconds)
        with self._lock:
            if not called and seat in self._resting:
                self._resting.remove(seat)
                self._count -= 1
                return False
            if not called:
                seat.called.acquire()  # whoever took the seat from the list at the last moment has called
        self._come()
        return True

    def _come(self) -> None:
        """Wait while the others empty the line by themselves; then this thread is there."""
        while self._is_moving():
            seen = self._taken
            select.select((), (), (), PATIENCE)
            if self._taken == seen:
                break
        with self._lock:
            self._coming -= 1

    def _is_moving(self) -> bool:
        return bool(self._line) and not self._closed and monotonic() - self._taken_at < MOVING
