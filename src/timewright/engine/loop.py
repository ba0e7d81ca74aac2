"""The loop of one instance: starts its threads, survives every error, and stops gracefully."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from timewright.core.facts import Fact
from timewright.core.policies.policies import MAX_SLEEP
from timewright.core.run.run import Run
from timewright.engine import maintenance
from timewright.engine.constants import (
    CHECK_INTERVAL,
    DEFAULT_STOP_GRACE,
    ERROR_BACKOFF_S,
    MIN_RENEW_INTERVAL_S,
    PRUNE_PAUSE,
    RECHECK_DELAY_S,
)
from timewright.engine.launch import Launcher
from timewright.engine.maintenance import DeadHolderCheck, Heartbeat, IncidentWatch, Pruner, renew_due
from timewright.engine.observers import WAKING_FACTS, ObserverDispatcher, tick_summary
from timewright.engine.settle_thread import SettleThread
from timewright.engine.shutdown import Shutdown, ShutdownReport
from timewright.engine.sleep_plan import SleepPlan
from timewright.engine.store_clock import StoreClock
from timewright.engine.tick import Tick
from timewright.engine.waiting import EventWaker, LoopHealth
from timewright.ports import ChangeListener, Clock, Observer, Store, Waker
from timewright.ports.rows import LeasedRuns


class Loop:
    """One instance and its threads: tick, settle, renew leases, stop expired work, listen for changes.

    User code runs on none of them. The thread that stops expired work uses no store, which may be slow.
    """

    def __init__(
        self,
        store: Store,
        tick: Tick,
        launcher: Launcher,
        *,
        clock: Clock,
        waker: Waker,
        observers: Sequence[Observer] = (),
        max_sleep: timedelta = MAX_SLEEP,
        pruner: Pruner | None = None,
        change_listener: ChangeListener | None = None,
        notify_others: Callable[[], None] | None = None,
        heartbeat: Heartbeat | None = None,
        dead_holders: DeadHolderCheck | None = None,
        lead_time: Callable[[int], timedelta] | None = None,
    ) -> None:
        self.store = store
        self.tick = tick
        self.launcher = launcher
        self.clock = clock
        self.waker = waker
        self.health = LoopHealth()
        self.observers = list(observers)
        self.dispatcher = ObserverDispatcher(self.observers, on_error=self.health.on_observer_error)
        self.pruner = pruner
        self.incident_watch = IncidentWatch(store, tick.ids)
        self.run_counter = maintenance.RunCounter(store)
        self.change_listener = change_listener
        self.notify_others = notify_others
        self.heartbeat = heartbeat
        self.dead_holders = dead_holders
        # Without threads, each step settles first.
        self.settles_inline = True
        self.settle_thread = SettleThread(
            store,
            launcher,
            clock=clock,
            notify=self._notify_settled,
            on_capacity=lambda: self.waker.wake(),  # noqa: PLW0108  tests replace the waker
            on_new_work=self._on_new_work,
        )
        self._lock = threading.Lock()
        self._running_workers = 0
        self._workers_ended = threading.Event()
        self._stopping, self._closing = threading.Event(), threading.Event()
        self._must_notify_others = threading.Event()
        self._threads: list[threading.Thread] = []
        self._interval_wakers: list[EventWaker] = []
        self._store_clock = StoreClock(store, clock, ids=tick.ids)
        self.sleep_plan = SleepPlan(tick, self._store_clock, max_sleep=max_sleep, lead_time=lead_time)
        self._notified_at = 0.0

    def start(self) -> None:
        """Start the threads: tick, settle, listen, renew, watch."""
        self.dispatcher.open()
        self.settles_inline = False
        self.launcher.set_result_callback(self.settle_thread.on_result)
        self._running_workers = 2
        self._start_thread("tick", self._run_ticks)
        self._start_thread("settle", self._run_settling)
        if self.change_listener is not None:
            self._start_thread("listen", partial(self._listen, self.change_listener))
        for name, work in (("renew", self._renew), ("watch", self._watch)):
            waker = EventWaker()
            self._interval_wakers.append(waker)
            self._start_thread(name, partial(self._run_periodically, work, waker))

    def step(self) -> float:
        """Run one tick; return how many seconds to sleep until the next."""
        self.sleep_plan.on_awake()
        if self.settles_inline:
            self.settle_thread.settle_results()
        now, began, clock_facts = self._store_clock.read()
        self.notify_observers(clock_facts)
        self.health.clock_problem = self._store_clock.problem
        self.tick.scope.renew_leadership(now=now)
        commit_at = self.sleep_plan.commit_at(now=now)
        if commit_at is not None:
            # From here on the tick works as if it were the instant; the store commits at it.
            began += (commit_at - now).total_seconds()
            now = commit_at
        counts: Counter[type[Fact]] = Counter()
        notify = partial(self._notify_and_count, counts)
        continue_now = self.tick.run(now=now, monotonic_now=began, notify=notify, commit_at=commit_at)
        if len(self.launcher):
            self._wake_for_short_leases()
            self._stop_runs(self.tick.pending.last.cancel_requested)
        self.launcher.stop_expired()
        self.health.record_success(ticked_at=now)
        if counts:
            self.notify_observers([tick_summary(counts, at=now, seconds=self.clock.monotonic() - began)])
        self._notify_others_if_needed(min_interval_s=RECHECK_DELAY_S if continue_now else 0.0)
        if continue_now:
            return 0.0
        has_more_to_prune = self.pruner is not None and self.pruner.run(now=now)
        if facts := self.incident_watch.run(now=now):
            self.notify_observers(facts)
            self.tick.pending.is_stale = True
        seconds = self.sleep_plan.seconds()
        return min(seconds, PRUNE_PAUSE.total_seconds()) if has_more_to_prune else seconds

    def stop(
        self, *, wait: timedelta = timedelta(seconds=30), grace: timedelta = DEFAULT_STOP_GRACE
    ) -> ShutdownReport:
        """Lease nothing more, wait for runs in flight, ask the rest to stop, and release their leases.

        Work has its grace before its run is released. Without the store the leases expire instead.
        """
        self.launcher.is_open = False
        self._stopping.set()
        self.waker.wake()
        self.settle_thread.wake()
        shutdown = Shutdown(
            self.launcher,
            monotonic=self.clock.monotonic,
            waker=self.waker,
            health=self.health,
            settle=self.settle_at_shutdown,
            workers_ended=self._workers_ended if self._threads else None,
        )
        return shutdown.run(
            wait=wait,
            grace=grace,
            join_threads=self._join_threads,
            deliver_facts=lambda seconds_left: self.dispatcher.close(seconds_left=seconds_left),
        )

    def renew_leases(self, *, now: datetime, monotonic_now: float | None = None) -> None:
        """Renew every lease that has used a third of its length. `monotonic_now` was read before `now`."""
        monotonic_now = self.clock.monotonic() if monotonic_now is None else monotonic_now
        renew_due(self.store, self.launcher, now=now, monotonic_now=monotonic_now)

    def replace_dead_holders(self) -> None:
        """Reclaim the leases of instances whose process has ended, and wake the tick to lease them."""
        if self.dead_holders is not None and (facts := self.dead_holders.run_if_due()):
            self.notify_observers(facts)
            self._on_new_work()

    def stop_cancelled_runs(self) -> None:
        """Stop the runs of this process for which a cancel was requested."""
        which = LeasedRuns(holder=self.tick.holder, cancel_requested=True)
        self._stop_runs(self.store.read(lambda tx: tx.select(which)))

    def notify_observers(self, facts: Sequence[Fact]) -> None:
        """Send facts to every observer; an observer that is slow or fails does not affect the others."""
        self.dispatcher.dispatch(facts)
        self.health.facts_lost = self.dispatcher.lost_facts

    def on_external_change(self) -> None:
        """Handle a write by another process: stop cancelled runs, and wake the tick if it sleeps too long."""
        if not self._store_clock.has_read:
            return
        work = self.tick.pending.peek(now=self._store_clock.last_now)
        self._stop_runs(work.cancel_requested)
        if self.sleep_plan.is_too_long_for(work):
            self.waker.wake()

    def settle_at_shutdown(self) -> None:
        """Write the results that have arrived; errors are only recorded, because the leases expire anyway."""
        try:
            self.settle_thread.settle_results()
        except Exception as error:  # noqa: BLE001  the leases expire by themselves
            self.health.last_error = f"{type(error).__name__}: {error}"

    def record_error(self, error: Exception, tries: int | None = None) -> float:
        """Count an error of the tick or the settle thread; return the seconds to wait before the next try."""
        in_a_row = self.health.record_failure(error)
        self.tick.may_have_unknown_leases = True
        self.sleep_plan.on_awake()
        self.launcher.stop_expired()
        return ERROR_BACKOFF_S[min(tries or in_a_row, len(ERROR_BACKOFF_S)) - 1]

    def _run_ticks(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self.step()
            except Exception as error:  # noqa: BLE001  the loop is supervised: count, back off, continue
                seconds = self.record_error(error)
            if seconds > 0:
                self.waker.wait(seconds)
        self._worker_ended()

    def _run_settling(self) -> None:
        self.settle_thread.run(
            self._stopping, on_error=self.record_error, max_sleep_s=self.sleep_plan.max_sleep.total_seconds()
        )
        self._worker_ended()

    def _worker_ended(self) -> None:
        with self._lock:
            self._running_workers -= 1
            if not self._running_workers:
                self.launcher.set_result_callback(self.waker.wake)
                self._workers_ended.set()

    def _join_threads(self, timeout_s: float) -> None:
        """End all threads; after `timeout_s`, abandon those that wait for a store."""
        self._closing.set()
        if self.change_listener is not None:
            self.change_listener.close()
        for waker in self._interval_wakers:
            waker.wake()
        for thread in self._threads:
            thread.join(timeout=timeout_s)
            if thread.is_alive():
                timeout_s = RECHECK_DELAY_S

    def _notify_and_count(self, counts: Counter[type[Fact]], facts: Sequence[Fact]) -> None:
        """Send and count the facts of one step, so that they are sent even if a later step fails."""
        if not facts:
            return
        self.notify_observers(facts)
        counts.update(map(type, facts))
        if not counts.keys().isdisjoint(WAKING_FACTS):
            self._must_notify_others.set()

    def _notify_settled(self, facts: Sequence[Fact]) -> None:
        self.health.record_success()
        self.notify_observers(facts)

    def _on_new_work(self) -> None:
        """Results were written that give this instance, and perhaps others, something to do."""
        self._must_notify_others.set()
        self.waker.wake()

    def _listen(self, listener: ChangeListener) -> None:
        """Handle every external change; after an error, listen again."""
        while not self._closing.is_set():
            try:
                for _ in listener.changes():
                    self.on_external_change()
            except Exception as error:  # noqa: BLE001  supervised like the tick
                self.health.last_error = f"{type(error).__name__}: {error}"
                self._closing.wait(CHECK_INTERVAL.total_seconds())

    def _notify_others_if_needed(self, *, min_interval_s: float) -> None:
        """Wake sleeping instances if this one wrote something that may concern them."""
        monotonic_now = self.clock.monotonic()
        is_due = monotonic_now - self._notified_at >= min_interval_s
        if self.notify_others is not None and is_due and self._must_notify_others.is_set():
            self._must_notify_others.clear()
            self._notified_at = monotonic_now
            self.notify_others()

    def _stop_runs(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.launcher.stop(run.id, run.fence, reason=run.reason)

    def _start_thread(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"timewright-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run_periodically(self, work: Callable[[], float], waker: EventWaker) -> None:
        """Repeat `work` until the loop closes; it returns the seconds until its next call."""
        while not self._closing.is_set():
            try:
                seconds = work()
            except Exception as error:  # noqa: BLE001  supervised like the tick: the next call tries again
                self.health.last_error = f"{type(error).__name__}: {error}"
                seconds = self._renew_interval_s()
            waker.wait(seconds)

    def _renew(self) -> float:
        monotonic_now, now = self.clock.monotonic(), self.store.now()
        if len(self.launcher):
            self.renew_leases(now=now, monotonic_now=monotonic_now)
            self.stop_cancelled_runs()
        # Read before the heartbeat, used after it: an offer that changes in between wakes the tick next time.
        has_new_offer = self.launcher.pop_new_offer()
        if self.heartbeat is not None:
            self.notify_observers(self.heartbeat.send_if_due())
        self.replace_dead_holders()
        if self.tick.scope.renew_leadership(now=now) or has_new_offer:
            self.waker.wake()
        self.launcher.write_output(self.store, now=now)
        self.run_counter.run(now=now)
        return self._renew_interval_s()

    def _watch(self) -> float:
        return min(self.launcher.stop_expired(), self._renew_interval_s())

    def _renew_interval_s(self) -> float:
        """Often enough for the shortest lease in flight, and to notice a cancel within a second."""
        shortest, longest = self.launcher.shortest_lease_s, CHECK_INTERVAL.total_seconds()
        return longest if shortest is None else min(longest, max(shortest / 6, MIN_RENEW_INTERVAL_S))

    def _wake_for_short_leases(self) -> None:
        """Wake the renew and watch threads if a new lease is too short for their current sleep."""
        if self._renew_interval_s() < CHECK_INTERVAL.total_seconds():
            for waker in self._interval_wakers:
                waker.wake()
