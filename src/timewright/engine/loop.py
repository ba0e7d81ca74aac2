"""The loop of one instance: starts its threads, survives every error, and stops gracefully."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct

from timewright.core.facts import Fact, RunFreed, RunReleased, RunWillRetry, ScheduleMoved
from timewright.core.policies.policies import MAX_SLEEP, sleep_until
from timewright.core.run.run import Run
from timewright.engine.launch import Launcher
from timewright.engine.maintenance import Heartbeat, Pruner, renew_due
from timewright.engine.observers import ObserverDispatcher, tick_summary
from timewright.engine.pending_work import EXPIRY_CHECK_INTERVAL
from timewright.engine.settle_thread import SettleThread
from timewright.engine.shutdown import DEFAULT_STOP_GRACE, Shutdown, ShutdownReport
from timewright.engine.store_clock import StoreClock
from timewright.engine.tick import Tick
from timewright.engine.waiting import CommitLead, EventWaker
from timewright.ports import ChangeListener, Clock, Observer, Store, Waker
from timewright.ports.pending_work import PendingWork

MIN_RENEW_INTERVAL_S = 0.15
MAX_RENEW_INTERVAL_S = 1.0
ERROR_BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)
# A schedule that is still due after a tick is locked by another process, or waits for capacity here.
RECHECK_DELAY_S = 0.05
# Facts that may give sleeping instances something to do, and the shortest time between two notifications.
WAKING_FACTS = (RunWillRetry, RunReleased, RunFreed, ScheduleMoved)
MIN_NOTIFY_INTERVAL_S = 0.1
# Before a sleep of at least this length, preload at most this many of the schedules that are due after it.
MIN_PREVIEW_DELAY = timedelta(seconds=0.05)
MAX_PREVIEWED_SCHEDULES = 10_000
NOT_SLEEPING = datetime.max.replace(tzinfo=UTC)


class LoopHealth(Struct):
    """Counters and the last error of a loop, for health checks."""

    ticks: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    last_error: str = ""
    last_tick_at: datetime | None = None
    facts_lost: int = 0


class Loop:
    """One instance and its threads: tick, settle, renew leases, stop expired work, listen for changes.

    User code runs on none of them. The thread that stops expired work uses no store, so that a slow store
    cannot keep it from stopping work whose lease is about to expire.
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
        commit_lead: CommitLead | None = None,
    ) -> None:
        self.store = store
        self.tick = tick
        self.launcher = launcher
        self.clock = clock
        self.waker = waker
        self.observers = list(observers)
        self.dispatcher = ObserverDispatcher(self.observers, on_error=self._observer_failed)
        self.max_sleep = max_sleep
        self.pruner = pruner
        self.change_listener = change_listener
        self.notify_others = notify_others
        self.heartbeat = heartbeat
        self.commit_lead = commit_lead
        self.health = LoopHealth()
        self.workers_ended = threading.Event()
        self.must_notify_others = False
        self.settle_thread = SettleThread(self)
        self._lock = threading.Lock()
        self._running_workers = 0
        self._stopping = threading.Event()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._interval_wakers: list[EventWaker] = []
        self._store_clock = StoreClock(store, clock)
        self._sleeps_until = NOT_SLEEPING
        self._notified_at = 0.0
        self._previewed_for: datetime | None = None

    def start(self) -> None:
        """Start the threads: tick, settle, listen, renew, watch."""
        self.dispatcher.open()
        self.tick.settles_inline = False
        self.tick.yields_gil = True
        self.launcher.set_result_callback(self.settle_thread.result_waker.wake)
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
        # Until the length of the sleep is known, every external change wakes the tick.
        self._sleeps_until = NOT_SLEEPING
        now, began, clock_facts = self._store_clock.read()
        self.notify_observers(clock_facts)
        self.tick.admission_scope.renew_leadership(now=now)
        counts: Counter[type[Fact]] = Counter()
        due = self.tick.pending_work.last_read.schedule_due_at
        lead, monotonic_now = self.commit_lead, self._store_clock.last_monotonic
        wait = lead.wait_if_near(due, now=now, monotonic_now=monotonic_now) if lead is not None else None
        if wait is not None and due is not None:
            # From here on the tick works as if it were the instant; only the commit waits for it.
            began += (due - now).total_seconds()
            now = self._sleeps_until = due
        continue_now = self.tick.run(
            now=now,
            monotonic_now=began,
            notify=partial(self.notify_and_count, counts),
            wait_for_instant=wait,
        )
        if len(self.launcher):
            self._wake_for_short_leases()
            self._stop_runs(self.tick.pending_work.last_read.cancel_requested)
        self.launcher.stop_expired()
        self.health.ticks += 1
        self.health.errors_in_a_row = 0
        self.health.last_tick_at = now
        if counts:
            self.notify_observers([tick_summary(counts, at=now, seconds=self.clock.monotonic() - began)])
        if continue_now:
            self._notify_others_if_needed(min_interval_s=MIN_NOTIFY_INTERVAL_S)
            return 0.0
        self._notify_others_if_needed()
        if wait is not None and wait.is_behind:
            return RECHECK_DELAY_S
        if self.pruner is not None:
            self.pruner.run(now=now)
        return self._sleep_s()

    def stop(
        self, *, wait: timedelta = timedelta(seconds=30), grace: timedelta = DEFAULT_STOP_GRACE
    ) -> ShutdownReport:
        """Lease nothing more, wait for runs in flight, ask the rest to stop, and release their leases.

        Work has its grace before its run is released, so that it does not overlap with the next attempt. If
        the store is unavailable nothing can be released: the leases expire, and the report says so.
        """
        self.tick.is_leasing = False
        self._stopping.set()
        self.waker.wake()
        self.settle_thread.result_waker.wake()
        return Shutdown(self).run(wait=wait, grace=grace)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    @property
    def is_running(self) -> bool:
        """Whether the loop was started, and its threads may still run."""
        return bool(self._threads)

    @property
    def is_tick_running(self) -> bool:
        """Whether the tick or the settle thread may still run."""
        return self.is_running and not self.workers_ended.is_set()

    def join_threads(self, *, timeout_s: float) -> None:
        """End all threads; after `timeout_s`, abandon those that wait for a store."""
        self._closing.set()
        if self.change_listener is not None:
            self.change_listener.close()
        for waker in self._interval_wakers:
            waker.wake()
        for thread in self._threads:
            thread.join(timeout=timeout_s)
            if thread.is_alive():
                timeout_s = 0.05

    def renew_leases(self, *, now: datetime, monotonic_now: float | None = None) -> None:
        """Renew every lease that has used a third of its length; stop work that has lost its lease.

        `monotonic_now` was read before `now`.
        """
        monotonic_now = self.clock.monotonic() if monotonic_now is None else monotonic_now
        renew_due(self.store, self.launcher, now=now, monotonic_now=monotonic_now)

    def stop_cancelled_runs(self) -> None:
        """Stop the runs of this process for which a cancel was requested."""
        if len(self.launcher):
            holder = self.tick.holder
            self._stop_runs(self.store.read(lambda tx: tx.leased_runs(holder=holder, cancel_requested=True)))

    def notify_observers(self, facts: Sequence[Fact]) -> None:
        """Send facts to every observer; an observer that is slow or fails does not affect the others."""
        self.dispatcher.dispatch(facts)
        self.health.facts_lost = self.dispatcher.lost_facts

    def on_external_change(self) -> None:
        """Handle a write by another process: stop cancelled runs, and wake the tick if it sleeps too long."""
        if not self._store_clock.has_read:
            return
        pending = self.tick.pending_work.peek(now=self._store_clock.last_now)
        self._stop_runs(pending.cancel_requested)
        can_lease = pending.has_ready_runs and self.tick.free_slots > 0
        instants = (pending.wake_at, pending.lease_expires_at)
        if can_lease or any(instant is not None and instant < self._sleeps_until for instant in instants):
            self.waker.wake()

    def sleep_remaining_s(self) -> float:
        """Seconds until the tick wakes; practically infinite while it does not sleep."""
        return (self._sleeps_until - self._store_clock.estimate_now()).total_seconds()

    def settle_at_shutdown(self) -> None:
        """Write the results that have arrived; errors are only recorded, because the leases expire anyway."""
        try:
            facts = self.tick.settle(now=self.store.now())
            with self.tick.launch_lock:
                self.notify_observers(facts)
        except Exception as error:  # noqa: BLE001  the leases expire by themselves
            self.health.last_error = f"{type(error).__name__}: {error}"

    def _run_ticks(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self.step()
            except Exception as error:  # noqa: BLE001  the loop is supervised: count, back off, continue
                seconds = self._record_tick_error(error)
            if seconds > 0:
                self.waker.wait(seconds)
        self._worker_ended()

    def notify_and_count(self, counts: Counter[type[Fact]], facts: Sequence[Fact]) -> None:
        """Send and count the facts of one step, so that they are sent even if a later step fails."""
        if not facts:
            return
        self.notify_observers(facts)
        counts.update(map(type, facts))
        self.must_notify_others = self.must_notify_others or not counts.keys().isdisjoint(WAKING_FACTS)

    def _run_settling(self) -> None:
        self.settle_thread.run()
        self._worker_ended()

    def _worker_ended(self) -> None:
        with self._lock:
            self._running_workers -= 1
            if not self._running_workers:
                self.launcher.set_result_callback(self.waker.wake)
                self.workers_ended.set()

    def _listen(self, listener: ChangeListener) -> None:
        """Handle every external change; after an error, listen again."""
        while not self._closing.is_set():
            try:
                for _ in listener.changes():
                    self.on_external_change()
            except Exception as error:  # noqa: BLE001  supervised like the tick
                self.health.last_error = f"{type(error).__name__}: {error}"
                self._closing.wait(MAX_RENEW_INTERVAL_S)

    def _notify_others_if_needed(self, *, min_interval_s: float = 0.0) -> None:
        """Wake sleeping instances if this one wrote something that may concern them."""
        monotonic_now = self.clock.monotonic()
        is_due = monotonic_now - self._notified_at >= min_interval_s
        if self.must_notify_others and self.notify_others is not None and is_due:
            self.must_notify_others, self._notified_at = False, monotonic_now
            self.notify_others()

    def _sleep_s(self) -> float:
        """Seconds until something is due; a sleep of a second or more also ends when a lease may expire."""
        ticked_at = self._store_clock.last_now
        pending = self.tick.read_pending(now=ticked_at)
        wake_at = pending.wake_at
        if wake_at is not None and wake_at <= ticked_at:
            return RECHECK_DELAY_S if self.tick.free_slots else EXPIRY_CHECK_INTERVAL.total_seconds()
        self._preview(wake_at)
        now = self._store_clock.estimate_now()
        sleep = sleep_until(self._begin_at(pending), now=now, max_sleep=self.max_sleep)
        if sleep >= EXPIRY_CHECK_INTERVAL:
            lease_end = self._lease_end(pending)
            if lease_end is not None:
                until_expiry = sleep_until(lease_end, now=now, max_sleep=self.max_sleep)
                sleep = min(sleep, max(until_expiry, EXPIRY_CHECK_INTERVAL))
        self._sleeps_until = now + sleep
        return sleep.total_seconds()

    def _begin_at(self, pending: PendingWork) -> datetime | None:
        """When the next tick begins: at the first instant, or some milliseconds before a schedule's."""
        at = pending.wake_at
        if self.commit_lead is not None and at is not None and at == pending.schedule_due_at:
            return at - self.commit_lead.lead_time
        return at

    def _lease_end(self, pending: PendingWork) -> datetime | None:
        """When the next lease may expire; queried if the last query left it out."""
        if pending.includes_lease_end:
            return pending.lease_expires_at
        return self.store.read(lambda tx: tx.read_pending_work(with_lease_end=True).lease_expires_at)

    def _preview(self, wake_at: datetime | None) -> None:
        """Use the sleep to read the schedules that are due after it, and to build their targets, once."""
        if wake_at is None or wake_at == self._previewed_for:
            return
        if MIN_PREVIEW_DELAY <= wake_at - self._store_clock.estimate_now() <= self.max_sleep:
            self._previewed_for = wake_at
            schedules = self.store.read(
                lambda tx: tx.preload_due_schedules(until=wake_at, limit=MAX_PREVIEWED_SCHEDULES)
            )
            if self.commit_lead is not None:
                self.commit_lead.expect_schedules(min(len(schedules), self.tick.limits.max_schedules_ahead))
            if self.tick.is_leasing and self.tick.limits.leases:
                self.launcher.build_targets({type(schedule.target) for schedule in schedules})

    def _stop_runs(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.launcher.stop(run.id, run.fence, reason=run.reason)

    def record_error(self, error: Exception, *, tries: int) -> float:
        """Count an error of the settle thread; return how many seconds to wait before the next try."""
        self._record_tick_error(error)
        return ERROR_BACKOFF_S[min(tries, len(ERROR_BACKOFF_S)) - 1]

    def _record_tick_error(self, error: Exception) -> float:
        self.health.errors += 1
        self.health.errors_in_a_row += 1
        self.health.last_error = f"{type(error).__name__}: {error}"
        self.tick.has_unknown_grants = True
        self._sleeps_until = NOT_SLEEPING
        self.launcher.stop_expired()
        return ERROR_BACKOFF_S[min(self.health.errors_in_a_row, len(ERROR_BACKOFF_S)) - 1]

    def _observer_failed(self, error: BaseException) -> None:
        self.health.last_error = f"observer: {type(error).__name__}: {error}"

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
        if len(self.launcher):
            monotonic_now = self.clock.monotonic()
            self.renew_leases(now=self.store.now(), monotonic_now=monotonic_now)
            self.stop_cancelled_runs()
        if self.heartbeat is not None:
            self.heartbeat.send_if_due()
        if self.tick.admission_scope.renew_leadership(now=self._store_clock.estimate_now()):
            self.waker.wake()
        self.launcher.write_output(self.store, now=self._store_clock.estimate_now())
        return self._renew_interval_s()

    def _watch(self) -> float:
        return min(self.launcher.stop_expired(), self._renew_interval_s())

    def _renew_interval_s(self) -> float:
        """Often enough for the shortest lease in flight, and to notice a cancel within a second."""
        shortest = self.launcher.shortest_lease_s
        if shortest is None:
            return MAX_RENEW_INTERVAL_S
        return min(MAX_RENEW_INTERVAL_S, max(shortest / 6, MIN_RENEW_INTERVAL_S))

    def _wake_for_short_leases(self) -> None:
        """Wake the renew and watch threads if a new lease is too short for their current sleep."""
        if self._renew_interval_s() < MAX_RENEW_INTERVAL_S:
            for waker in self._interval_wakers:
                waker.wake()
