"""Sends facts to observers, each on its own thread, so that a slow observer delays no other."""

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
    RunFreed,
    RunLeased,
    RunParked,
    RunReleased,
    RunSkipped,
    RunSucceeded,
    RunWillRetry,
    ScheduleMoved,
    TickFinished,
)
from timewright.engine.constants import MAX_QUEUED_FACTS
from timewright.errors import OverQuota
from timewright.ports import Observer

ErrorHandler = Callable[[BaseException], None]
# Facts that may give sleeping instances something to do.
WAKING_FACTS = (RunWillRetry, RunReleased, RunFreed, ScheduleMoved)


class ObserverQueue:
    """The facts that one observer has not received yet, in order; facts beyond the limit are dropped."""

    def __init__(self, observer: Observer, *, number: int, on_error: ErrorHandler, max_queued: int) -> None:
        self.name = getattr(observer, "name", "") or type(observer).__name__
        self._observer = observer
        self._on_error = on_error
        self._max_queued = max_queued
        self._lock = threading.Lock()
        self._batches: SimpleQueue[Sequence[Fact] | None] = SimpleQueue()
        self._queued = 0
        self._delivered = 0
        self._dropped = 0
        self._thread = threading.Thread(
            target=self._deliver, name=f"timewright-observer-{number}", daemon=True
        )
        self._thread.start()

    @property
    def queued_count(self) -> int:
        """How many facts wait to be delivered."""
        return self._queued - self._delivered

    def put(self, facts: Sequence[Fact]) -> int:
        """Queue the facts that the observer wants, as far as they fit; return how many were dropped."""
        wanted = wanted_facts(self._observer, facts)
        with self._lock:
            fitting = wanted[: max(self._max_queued - self.queued_count, 0)]
            if fitting:
                self._queued += len(fitting)
                self._batches.put(fitting)
            dropped = len(wanted) - len(fitting)
            self._dropped += dropped
        return dropped

    def take_dropped_count(self) -> int:
        """How many facts were dropped since the last call; 0 while the queue is still full."""
        with self._lock:
            if not self._dropped or self.queued_count >= self._max_queued:
                return 0
            dropped, self._dropped = self._dropped, 0
            return dropped

    def close(self, *, timeout_s: float) -> int:
        """Deliver the remaining facts within the timeout; return how many were not delivered."""
        self._batches.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return self.queued_count

    def _deliver(self) -> None:
        while (facts := self._batches.get()) is not None:
            for fact in facts:
                notify_observer(self._observer, fact, on_error=self._on_error)
                self._delivered += 1


class ObserverDispatcher:
    """All observers of an instance; before `open`, they are called directly on the caller's thread."""

    def __init__(
        self, observers: list[Observer], *, on_error: ErrorHandler, max_queued: int = MAX_QUEUED_FACTS
    ) -> None:
        self.observers = observers
        self.lost_facts = 0
        self._on_error = on_error
        self._max_queued = max_queued
        self._open = False
        self._lock = threading.Lock()
        self._queues: dict[int, ObserverQueue] = {}

    def open(self) -> None:
        """Deliver on threads from now on, one per observer."""
        self._open = True

    def dispatch(self, facts: Sequence[Fact]) -> None:
        """Send facts to every observer; errors of an observer go to the error handler."""
        if not facts:
            return
        for observer in list(self.observers):
            if self._open:
                self._put(self._queue_of(observer), facts)
                continue
            for fact in wanted_facts(observer, facts):
                notify_observer(observer, fact, on_error=self._on_error)

    def close(self, *, seconds_left: Callable[[], float]) -> int:
        """Deliver the remaining facts while there is time; return how many were not delivered."""
        self._open = False
        with self._lock:
            queues, self._queues = list(self._queues.values()), {}
        undelivered = sum(queue.close(timeout_s=max(seconds_left(), 0.0)) for queue in queues)
        self.lost_facts += undelivered
        return undelivered

    def _put(self, queue: ObserverQueue, facts: Sequence[Fact]) -> None:
        """Queue facts; if the observer has caught up after a loss, report the loss to all observers."""
        lost_before = queue.take_dropped_count()
        dropped = queue.put(facts)
        if dropped:
            self.lost_facts += dropped
            self._on_error(OverQuota(f"observer {queue.name} is too slow: facts were dropped"))
        if lost_before:
            self.dispatch([FactsLost(at=facts[-1].at, listener=queue.name, count=lost_before)])

    def _queue_of(self, observer: Observer) -> ObserverQueue:
        with self._lock:
            found = self._queues.get(id(observer))
            if found is None:
                found = ObserverQueue(
                    observer,
                    number=len(self._queues) + 1,
                    on_error=self._on_error,
                    max_queued=self._max_queued,
                )
                self._queues[id(observer)] = found
            return found


def observed_kinds(observer: Observer) -> tuple[type[Fact], ...]:
    """The kinds of facts that an observer wants: its `kinds`, or all if it has none."""
    return getattr(observer, "kinds", ()) or (Fact,)


def wanted_facts(observer: Observer, facts: Sequence[Fact]) -> Sequence[Fact]:
    """The facts of one pass that an observer wants, as its `fold` joins them if it has one."""
    kinds = observed_kinds(observer)
    wanted = [fact for fact in facts if isinstance(fact, kinds)]
    fold: Callable[[Sequence[Fact]], Sequence[Fact]] | None = getattr(observer, "fold", None)
    return fold(wanted) if fold is not None and len(wanted) > 1 else wanted


def notify_observer(observer: Observer, fact: Fact, *, on_error: ErrorHandler) -> None:
    """Send one fact to one observer; its errors go to the error handler."""
    try:
        observer.notify(fact)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a failing observer must not affect others
        on_error(error)


def tick_summary(counts: Counter[type[Fact]], *, at: datetime, seconds: float) -> TickFinished:
    """The counts of one pass, as a fact."""
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
