"""Writes results of attempts on a thread of its own, and wakes the tick only if they concern it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from timewright.core.facts import AnswerStale, Fact, RunCancelled, RunFailed, RunParked, RunSucceeded
from timewright.core.run.run import Failed
from timewright.engine.observers import tick_summary
from timewright.engine.waiting import EventWaker
from timewright.errors import StoreError
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ports import Store

if TYPE_CHECKING:
    from timewright.engine.loop import Loop

# A batch that produced only these facts gives the tick nothing to do.
FINAL_FACTS = {RunSucceeded, RunFailed, RunParked, RunCancelled, AnswerStale}
# While the tick has more to start at once, collect results for at most this long, and at most this many.
MAX_COLLECT_S = 1.0
MAX_COLLECTED_RESULTS = 10_000
POLL_INTERVAL_S = 0.005
# While prefetched runs wait, more results arrive soon: wait for this many, or for this many polls.
BATCH_SIZE = 500
MAX_BATCH_POLLS = 4
# If a start is due this soon, let it go first by this much: SQLite takes one write at a time.
NEAR_DUE_S = 0.003
HEAD_START_S = 0.001
MAX_ERROR_CHARS = 500


class SettleThread:
    """The settling of one loop, beside its tick: both write at once if the store allows it."""

    def __init__(self, loop: Loop) -> None:
        self.result_waker = EventWaker()
        self._delay = EventWaker()
        self._loop = loop

    def run(self) -> None:
        """Settle results until the loop stops; after an error of the store, try again."""
        loop, tries = self._loop, 0
        while not loop.is_stopping:
            try:
                self._collect_batch()
                self.settle_results()
                tries = 0
            except Exception as error:  # noqa: BLE001  supervised like the tick
                tries += 1
                self.result_waker.wait(loop.record_error(error, tries=tries))
            if not tries and not loop.launcher.has_results:
                self.result_waker.wait(loop.max_sleep.total_seconds())

    def settle_results(self) -> None:
        """Write the results that have arrived; wake the tick if it waits for capacity or has new work."""
        loop = self._loop
        if not loop.launcher.has_results:
            return
        began, now = loop.clock.monotonic(), loop.store.now()
        results = loop.launcher.take_results()
        if loop.tick.waits_for_capacity:
            # Only after the results were taken: before, the tick would look too early and not be woken again.
            loop.waker.wake()
        counts: Counter[type[Fact]] = Counter()
        facts = loop.tick.write_results(results, now=now)
        with loop.tick.launch_lock:
            loop.notify_and_count(counts, facts)
        loop.health.errors_in_a_row = 0
        loop.notify_observers([tick_summary(counts, at=now, seconds=loop.clock.monotonic() - began)])
        if loop.tick.freed_limits or not counts.keys() <= FINAL_FACTS:
            # A run may have waited for a limit, a workflow step admits the next, or a retry is planned.
            loop.must_notify_others = True
            loop.waker.wake()

    def _collect_batch(self) -> None:
        """Wait for more results while starts are due: both need the same store and the same core."""
        loop = self._loop
        until_tick = loop.sleep_remaining_s()
        if 0.0 < until_tick < NEAR_DUE_S:
            self._delay.wait(until_tick + HEAD_START_S)
        for _ in range(MAX_BATCH_POLLS):
            if not self._expects_more():
                break
            self._delay.wait(POLL_INTERVAL_S)
        until = loop.clock.monotonic() + MAX_COLLECT_S
        while (
            loop.tick.more_due
            and loop.launcher.result_count < MAX_COLLECTED_RESULTS
            and not loop.is_stopping
            and loop.clock.monotonic() < until
        ):
            self._delay.wait(POLL_INTERVAL_S)

    def _expects_more(self) -> bool:
        """Whether many more results are about to arrive."""
        launcher = self._loop.launcher
        return (
            self._loop.tick.waits_for_capacity
            and launcher.has_prefetched
            and launcher.result_count < BATCH_SIZE
        )


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
        message = f"its result could not be stored: {type(error).__name__}: {str(error)[:MAX_ERROR_CHARS]!a}"
    return settle_results(store, [replace(result, outcome=Failed(error=message))], now=now).facts


def _is_store_failure(error: Exception) -> bool:
    """Whether the error concerns the store and not the data; a plain `StoreError` may concern the data."""
    return isinstance(error, StoreError) and type(error) is not StoreError
