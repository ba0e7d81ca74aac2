"""Tells facts to observers, each on a thread of its own: a slow one keeps nobody else waiting."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import SimpleQueue

from timewright.core.facts import (
    Fact,
    FactsLost,
    LeaseLost,
    RunAdmitted,
    RunFailed,
    RunLeased,
    RunParked,
    RunSkipped,
    RunSucceeded,
    RunWillRetry,
    TickFinished,
)
from timewright.errors import OverQuota
from timewright.ports import Observer

MOST_WAITING = 50_000

Troubled = Callable[[BaseException], None]


class Line:
    """What one observer has still to be told, in order; what does not fit is counted."""

    def __init__(self, observer: Observer, *, number: int, troubled: Troubled, most: int) -> None:
        self.name = getattr(observer, "name", "") or type(observer).__name__
        self._observer = observer
        self._troubled = troubled
        self._most = most
        self._lock = threading.Lock()
        self._batches: SimpleQueue[Sequence[Fact] | None] = SimpleQueue()
        self._given = 0
        self._told = 0
        self._gap = 0
        self._thread = threading.Thread(target=self._serve, name=f"timewright-tell-{number}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many facts it has not been told yet."""
        return self._given - self._told

    def put(self, facts: Sequence[Fact]) -> int:
        """Have these told, as far as they fit; says how many did not."""
        kinds = kinds_of(self._observer)
        wanted = [fact for fact in facts if isinstance(fact, kinds)]
        with self._lock:
            fits = wanted[: max(self._most - self.waiting, 0)]
            if fits:
                self._given += len(fits)
                self._batches.put(fits)
            lost = len(wanted) - len(fits)
            self._gap += lost
        return lost

    def take_gap(self) -> int:
        """How many facts it has missed, once it has room again; asked once, it is forgotten."""
        with self._lock:
            if not self._gap or self.waiting >= self._most:
                return 0
            gap, self._gap = self._gap, 0
            return gap

    def close(self, *, seconds: float) -> int:
        """Tell what is left, for so long; says how many it was never told."""
        self._batches.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return self.waiting

    def _serve(self) -> None:
        while (facts := self._batches.get()) is not None:
            for fact in facts:
                note(self._observer, fact, troubled=self._troubled)
                self._told += 1


class Teller:
    """Everyone who listens; while it is not open they are told at once, on the caller's thread."""

    def __init__(self, observers: list[Observer], *, troubled: Troubled, most: int = MOST_WAITING) -> None:
        self.observers = observers
        self.lost = 0
        self._troubled = troubled
        self._most = most
        self._open = False
        self._lock = threading.Lock()
        self._lines: dict[int, Line] = {}

    def open(self) -> None:
        """From now on everyone is told on a thread of its own."""
        self._open = True

    def tell(self, facts: Sequence[Fact]) -> None:
        """Let every observer note the facts; what one does with them is its own affair."""
        if not facts:
            return
        for observer in list(self.observers):
            if self._open:
                self._put(self._line(observer), facts)
                continue
            kinds = kinds_of(observer)
            for fact in facts:
                if isinstance(fact, kinds):
                    note(observer, fact, troubled=self._troubled)

    def close(self, *, until: Callable[[], float]) -> int:
        """Tell everyone what is left, while there is time; says how many facts were never told."""
        self._open = False
        with self._lock:
            lines, self._lines = list(self._lines.values()), {}
        untold = sum(line.close(seconds=max(until(), 0.0)) for line in lines)
        self.lost += untold
        return untold

    def _put(self, line: Line, facts: Sequence[Fact]) -> None:
        """Whoever has room again after it missed some: everyone is told how many that were."""
        gap = line.take_gap()
        lost = line.put(facts)
        if lost:
            self.lost += lost
            self._troubled(OverQuota(f"{line.name} listens too slowly: facts are not told to it"))
        if gap:
            self.tell([FactsLost(at=facts[-1].at, listener=line.name, count=gap)])

    def _line(self, observer: Observer) -> Line:
        with self._lock:
            found = self._lines.get(id(observer))
            if found is None:
                number = len(self._lines) + 1
                found = Line(observer, number=number, troubled=self._troubled, most=self._most)
                self._lines[id(observer)] = found
            return found


def kinds_of(observer: Observer) -> tuple[type[Fact], ...]:
    """The kinds of facts an observer wants; all, unless it has `kinds`."""
    return getattr(observer, "kinds", ()) or (Fact,)


def note(observer: Observer, fact: Fact, *, troubled: Troubled) -> None:
    """One fact for one observer; one that fails is its own affair."""
    try:
        observer.note(fact)
    except (Exception, SystemExit) as error:  # noqa: BLE001  it must not matter to anyone else
        troubled(error)


def finished(counts: Counter[type[Fact]], *, at: datetime, seconds: float) -> TickFinished:
    """What a pass did, in numbers."""
    of = counts.get
    return TickFinished(
        at=at,
        seconds=seconds,
        settled=of(RunSucceeded, 0) + of(RunFailed, 0) + of(RunWillRetry, 0) + of(RunParked, 0),
        reclaimed=of(LeaseLost, 0),
        admitted=of(RunAdmitted, 0),
        skipped=of(RunSkipped, 0),
        leased=of(RunLeased, 0),
    )
