"""Writes results of attempts on a thread of its own, and wakes the tick only if they concern it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.facts import AnswerStale, Fact, RunCancelled, RunFailed, RunParked, RunSucceeded
from timewright.core.run.run import Failed
from timewright.engine.constants import SETTLE_BATCH_RESULTS, SETTLE_WAIT_S
from timewright.engine.launch import Launcher
from timewright.engine.observers import tick_summary
from timewright.engine.waiting import EventWaker
from timewright.errors import StoreError
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ports import Clock, Store

# A batch that produced only these facts gives the tick nothing to do.
FINAL_FACTS = {RunSucceeded, RunFailed, RunParked, RunCancelled, AnswerStale}


class SettleThread:
    """Settles beside the tick: both write at once if the store allows it."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        *,
        clock: Clock,
        notify: Callable[[Sequence[Fact]], None],
        on_capacity: Callable[[], None],
        on_new_work: Callable[[], None],
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._notify = notify
        self._on_capacity = on_capacity
        self._on_new_work = on_new_work
        self._waker = EventWaker()
        # Written by the settle thread, read by `on_result`; each order of the two ends in a wake-up.
        self._is_collecting = False

    def run(
        self, stopping: threading.Event, *, on_error: Callable[[Exception, int], float], max_sleep_s: float
    ) -> None:
        """Settle results until `stopping`; after an error of the store, wait as `on_error` says."""
        tries = 0
        while not stopping.is_set():
            self._is_collecting = False
            if not self._launcher.results:
                self._waker.wait(max_sleep_s)
                continue
            # The one rule: a batch is written when it is full, or some milliseconds after its first result.
            self._is_collecting = True
            if len(self._launcher.results) < SETTLE_BATCH_RESULTS:
                self._waker.wait(SETTLE_WAIT_S)
            try:
                self.settle_results()
                tries = 0
            except Exception as error:  # noqa: BLE001  supervised like the tick
                tries += 1
                self._waker.wait(on_error(error, tries))

    def on_result(self) -> None:
        """Wake the thread: a result arrived. While it collects, only a full batch wakes it."""
        if not self._is_collecting or len(self._launcher.results) >= SETTLE_BATCH_RESULTS:
            self._waker.wake()

    def wake(self) -> None:
        """End the current wait."""
        self._waker.wake()

    def settle_results(self) -> None:
        """Write the results that have arrived; report whether they give the tick something to do."""
        if not self._launcher.results:
            return
        began, now = self._clock.monotonic(), self._store.now()
        results = self._launcher.results.take()
        if self._launcher.pop_is_awaited():
            # Only after the results were taken: before, the tick would look too early and not be woken again.
            self._on_capacity()
        facts = self._write(results, now=now)
        with self._launcher.launch_lock:
            self._notify(facts)
        counts: Counter[type[Fact]] = Counter(map(type, facts))
        self._notify([tick_summary(counts, at=now, seconds=self._clock.monotonic() - began)])
        if not counts.keys() <= FINAL_FACTS or any(result.run.limit_keys for result in results):
            # A run may have waited for a limit, a workflow step admits the next, or a retry is planned.
            self._on_new_work()

    def _write(self, results: list[AttemptResult], *, now: datetime) -> list[Fact]:
        """Write results that were taken from the launcher; if that fails, put them back."""
        try:
            # Output first: a reader that sees an ended attempt must find all of its output.
            self._launcher.output_buffer.write_final(self._store, now=now)
            facts = settle_batch(self._store, results, now=now)
        except Exception:
            self._launcher.results.put_back(results)
            raise
        self._launcher.results.confirm(results)
        return facts


def settle_batch(store: Store, results: Sequence[AttemptResult], *, now: datetime) -> list[Fact]:
    """Settle results in one transaction; if one of them cannot be stored, settle each on its own."""
    try:
        return list(settle_results(store, results, now=now).facts)
    except Exception as error:
        if _is_store_failure(error):
            raise
    return [fact for result in results for fact in _settle_one(store, result, now=now)]


def _settle_one(store: Store, result: AttemptResult, *, now: datetime) -> Sequence[Fact]:
    """Settle one result; if it cannot be stored, settle its run as failed with the error."""
    try:
        return settle_results(store, [result], now=now).facts
    except Exception as error:
        if _is_store_failure(error):
            raise
        message = f"its result could not be stored: {type(error).__name__}: {str(error)[:500]!a}"
    return settle_results(store, [replace(result, outcome=Failed(error=message))], now=now).facts


def _is_store_failure(error: Exception) -> bool:
    """Whether the error concerns the store and not the data; a plain `StoreError` may concern the data."""
    return isinstance(error, StoreError) and type(error) is not StoreError
