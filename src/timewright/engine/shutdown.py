"""Stops an instance within its limits even if the store is unavailable, and reports what was left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from timewright.core.run.run import Released
from timewright.engine.in_flight import REASON_RELEASED_AT_STOP
from timewright.ledger.run_ends import AttemptResult

if TYPE_CHECKING:
    from timewright.engine.loop import Loop

POLL_INTERVAL_S = 0.05
DEFAULT_STOP_GRACE = timedelta(seconds=5)
# How long the last tick and the last settlement may take; less if the store is known to be unavailable.
MAX_LAST_TICK_S = 3.0
MAX_UNAVAILABLE_WAIT_S = 1.0
MIN_DELIVERY_WAIT_S = 5.0


class ShutdownReport(Struct, frozen=True, kw_only=True):
    """What an instance left behind: unwritten results, undelivered facts, and the store's error."""

    unwritten_results: int = 0
    undelivered_facts: int = 0
    store_error: str = ""

    def describe(self) -> str:
        """What was left undone, in one sentence; empty if nothing was."""
        parts = [f"the store does not respond ({self.store_error})"] if self.store_error else []
        if self.unwritten_results:
            parts.append(
                f"{self.unwritten_results} runs could not be released; they wait until their leases expire"
            )
        if self.undelivered_facts:
            parts.append(f"{self.undelivered_facts} events were not delivered, because an observer is slow")
        return "; ".join(parts)


class Shutdown:
    """The shutdown of one loop, step by step; every step has a time limit."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._settling: threading.Thread | None = None
        self._is_stuck = False

    def run(self, *, wait: timedelta, grace: timedelta) -> ShutdownReport:
        """Wait for runs in flight, ask the rest to stop, release what does not, deliver the last facts."""
        loop, began = self._loop, self._loop.clock.monotonic()
        self._await_tick(wait.total_seconds())
        loop.launcher.release_prefetched()
        self._drain(until=began + wait.total_seconds())
        loop.launcher.stop_all()
        self._drain(until=loop.clock.monotonic() + grace.total_seconds())
        self._release_remaining()
        unwritten = loop.launcher.unwritten_count
        store_error = self._store_error() if unwritten or self._is_unavailable else ""
        loop.join_threads(timeout_s=MAX_UNAVAILABLE_WAIT_S if self._is_unavailable else MAX_LAST_TICK_S)
        spent = loop.clock.monotonic() - began
        delivery_s = max(wait.total_seconds() - spent, MIN_DELIVERY_WAIT_S)
        undelivered = loop.dispatcher.close(seconds_left=self._countdown(delivery_s))
        return ShutdownReport(
            unwritten_results=unwritten, undelivered_facts=undelivered, store_error=store_error
        )

    @property
    def _is_unavailable(self) -> bool:
        """Whether the store blocks us, or has failed since the last success."""
        return self._is_stuck or self._loop.health.errors_in_a_row > 0 or self._settling is not None

    def _store_error(self) -> str:
        return self._loop.health.last_error or "it blocks"

    def _await_tick(self, seconds: float) -> None:
        """Wait for a running tick, unless it can only be waiting for an unavailable store."""
        loop, waited = self._loop, 0.0
        while loop.is_tick_running:
            limit = MAX_LAST_TICK_S if len(loop.launcher) == 0 else max(seconds, MAX_LAST_TICK_S)
            if waited >= (MAX_UNAVAILABLE_WAIT_S if self._is_unavailable else limit):
                self._is_stuck = True
                return
            loop.workers_ended.wait(POLL_INTERVAL_S)
            waited += POLL_INTERVAL_S

    def _drain(self, *, until: float) -> None:
        """Wait for runs in flight to end, and write their results."""
        loop = self._loop
        self._settle()
        while len(loop.launcher) and loop.clock.monotonic() < until:
            loop.waker.wait(POLL_INTERVAL_S)
            self._settle()

    def _settle(self) -> None:
        """Write results on a thread that can be abandoned, because the store may block."""
        loop = self._loop
        if not loop.launcher.result_count or (self._settling is not None and self._settling.is_alive()):
            return
        if not loop.is_running:
            loop.settle_at_shutdown()
            return
        self._settling = threading.Thread(
            target=loop.settle_at_shutdown, name="timewright-settle", daemon=True
        )
        self._settling.start()
        self._settling.join(MAX_UNAVAILABLE_WAIT_S if loop.health.errors_in_a_row else MAX_LAST_TICK_S)
        if not self._settling.is_alive():
            self._settling = None

    def _release_remaining(self) -> None:
        """Release the runs that did not stop, without an attempt; their later results are ignored."""
        outcome = Released(reason=REASON_RELEASED_AT_STOP)
        results = [
            AttemptResult(run=one.lease.run, outcome=outcome, started_at=one.started_at)
            for one in self._loop.launcher.abandon_all()
        ]
        self._loop.launcher.put_back_results(results)
        self._settle()

    def _countdown(self, seconds: float) -> Callable[[], float]:
        end = self._loop.clock.monotonic() + seconds
        return lambda: end - self._loop.clock.monotonic()
