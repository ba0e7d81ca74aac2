"""Stops an instance within its limits even if the store is unavailable, and reports what was left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct

from timewright.core.run.run import Released
from timewright.engine.constants import CHECK_INTERVAL, DEFAULT_STOP_GRACE, MAX_LAST_TICK_S, RECHECK_DELAY_S
from timewright.engine.in_flight import StopReason
from timewright.engine.launch import Launcher
from timewright.engine.waiting import LoopHealth
from timewright.ledger.run_ends import AttemptResult
from timewright.ports import Waker, must_return


class ShutdownReport(Struct, frozen=True, kw_only=True):
    """What an instance left behind: running functions, unwritten results, undelivered facts, an error."""

    running_functions: int = 0
    unwritten_results: int = 0
    undelivered_facts: int = 0
    store_error: str = ""

    def describe(self) -> str:
        """What was left undone, in one sentence; empty if nothing was."""
        parts = [f"the store does not respond ({self.store_error})"] if self.store_error else []
        if self.running_functions:
            parts.append(
                f"{self.running_functions} functions have not returned; their runs stay leased until this"
                " process ends or their leases expire"
            )
        if self.unwritten_results:
            parts.append(
                f"{self.unwritten_results} runs could not be released; they wait until their leases expire"
            )
        if self.undelivered_facts:
            parts.append(f"{self.undelivered_facts} events were not delivered, because an observer is slow")
        return "; ".join(parts)


class Shutdown:
    """The shutdown of one loop, step by step; every step has a time limit.

    `workers_ended` is set when the tick and the settle thread have ended; None if they were never started.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        monotonic: Callable[[], float],
        waker: Waker,
        health: LoopHealth,
        settle: Callable[[], None],
        workers_ended: threading.Event | None,
    ) -> None:
        self._launcher = launcher
        self._monotonic = monotonic
        self._waker = waker
        self._health = health
        self._settle_results = settle
        self._workers_ended = workers_ended
        self._settling: threading.Thread | None = None
        self._is_stuck = False

    def run(
        self,
        *,
        wait: timedelta,
        grace: timedelta,
        join_threads: Callable[[float], None],
        deliver_facts: Callable[[Callable[[], float]], int],
    ) -> ShutdownReport:
        """Wait for runs in flight, ask the rest to stop, release what does not, deliver the last facts."""
        began = self._monotonic()
        self._await_workers(wait.total_seconds())
        self._launcher.stop_all(only_prefetched=True)
        self._drain(until=began + wait.total_seconds())
        self._launcher.stop_all()
        self._drain(until=self._monotonic() + grace.total_seconds())
        running = self._release_remaining()
        unwritten = self._launcher.results.total
        is_unavailable = self._is_unavailable
        store_error = (self._health.last_error or "it blocks") if unwritten or is_unavailable else ""
        join_threads(self._store_wait_s)
        spent_s = self._monotonic() - began
        end = self._monotonic() + max(wait.total_seconds() - spent_s, DEFAULT_STOP_GRACE.total_seconds())
        undelivered = deliver_facts(lambda: end - self._monotonic())
        return ShutdownReport(
            running_functions=running,
            unwritten_results=unwritten,
            undelivered_facts=undelivered,
            store_error=store_error,
        )

    @property
    def _is_unavailable(self) -> bool:
        """Whether the store blocks us, or has failed since the last success."""
        return self._is_stuck or self._health.errors_in_a_row > 0 or self._settling is not None

    @property
    def _store_wait_s(self) -> float:
        """How long to wait for the store; less if it is known to be unavailable."""
        return CHECK_INTERVAL.total_seconds() if self._is_unavailable else MAX_LAST_TICK_S

    def _await_workers(self, seconds: float) -> None:
        """Wait for a running tick, unless it can only be waiting for an unavailable store."""
        waited = 0.0
        while self._workers_ended is not None and not self._workers_ended.is_set():
            limit = MAX_LAST_TICK_S if len(self._launcher) == 0 else max(seconds, MAX_LAST_TICK_S)
            if waited >= (self._store_wait_s if self._is_unavailable else limit):
                self._is_stuck = True
                return
            self._workers_ended.wait(RECHECK_DELAY_S)
            waited += RECHECK_DELAY_S

    def _drain(self, *, until: float) -> None:
        """Wait for runs in flight to end, and write their results."""
        self._settle()
        while len(self._launcher) and self._monotonic() < until:
            self._waker.wait(RECHECK_DELAY_S)
            self._settle()

    def _settle(self) -> None:
        """Write results on a thread that can be abandoned, because the store may block."""
        if not self._launcher.results or (self._settling is not None and self._settling.is_alive()):
            return
        if self._workers_ended is None:
            self._settle_results()
            return
        self._settling = None
        settling = threading.Thread(target=self._settle_results, name="timewright-settle", daemon=True)
        settling.start()
        settling.join(self._store_wait_s)
        self._settling = settling if settling.is_alive() else None

    def _release_remaining(self) -> int:
        """Release the runs that did not stop, without an attempt; their later results are ignored.

        A function that cannot be killed keeps its lease, so that no second copy starts beside it. Returns how
        many there are.
        """
        outcome = Released(reason=StopReason.RELEASED.value, interrupted=True)
        running = {id(one) for one in self._launcher.in_flight_runs() if must_return(one.work)}
        left = [one for one in self._launcher.abandon_all() if id(one) not in running]
        self._launcher.results.put_back(
            [AttemptResult(run=one.lease.run, outcome=outcome, started_at=one.started_at) for one in left]
        )
        self._settle()
        return len(running)
