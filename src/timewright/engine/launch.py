"""Launches leased runs into their targets and collects their results; no error of a target escapes."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial

from timewright.core.run.needs import LeaseOffer, Offer, offer_anything
from timewright.core.run.run import Cancelled, Failed, Outcome
from timewright.core.target import AnyTarget
from timewright.engine.constants import GIVE_UP_MARGIN_S, LATE_LOOK_S
from timewright.engine.in_flight import (
    BlockedRuns,
    InFlightRun,
    PrefetchEstimator,
    SlotLimits,
    SlotUse,
    StopReason,
    UnwrittenResults,
    build_in_flight,
    build_launch,
    outcome_after_stop,
    passes_check,
    target_kind,
)
from timewright.engine.output_buffer import OutputBuffer
from timewright.ledger.lease import Lease
from timewright.ledger.run_ends import AttemptResult
from timewright.ports import Store, Target, must_return


class Launcher:
    """All runs in flight in this process: launched, prefetched, ended and not yet written.

    At most `capacity` run at once. Every attribute that changes is changed under the lock; some are read
    without it, where a value that is a moment old does no harm.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        *,
        monotonic: Callable[[], float],
        wake: Callable[[], None],
        capacity: int = 100,
        offer: Callable[[], Offer] = offer_anything,
        slots: SlotLimits | None = None,
    ) -> None:
        self.capacity = capacity
        self.is_open = True
        self.launch_lock = threading.Lock()
        self._targets = targets
        self._offer = offer
        self._last_offer: Offer | None = None
        self._slots = SlotUse(slots or SlotLimits())
        self._monotonic = monotonic
        self._wake = wake
        self._lock = threading.Lock()
        self._in_flight: dict[tuple[str, int], InFlightRun] = {}
        self._lease_lengths: dict[float, int] = {}
        self.results = UnwrittenResults(self._lock)
        self._next_check_at = math.inf
        self._prefetched: deque[InFlightRun] = deque()
        self._blocked = BlockedRuns(self._in_flight)
        self._running = 0
        self._is_awaited = False
        self._is_starting_prefetched = False
        self._estimator = PrefetchEstimator()
        self.output_buffer = OutputBuffer()

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def shortest_lease_s(self) -> float | None:
        """The length of the shortest lease in flight, in seconds."""
        with self._lock:
            return min(self._lease_lengths, default=None)

    @property
    def free(self) -> int:
        """How many more runs may be leased. While runs end quickly, more are leased than run at once.

        At most half of the prefetched number at a time: the others run while the next are being leased. If
        there is none, the caller is woken after the next end.
        """
        with self._lock:
            free = self._free_places()
            self._is_awaited = self._is_awaited or not free
            return free

    def _free_places(self) -> int:
        prefetch = self._estimator.prefetch_count
        free = max(self.capacity, prefetch) - len(self._in_flight)
        return max(min(free, max(self.capacity, prefetch // 2)), 0) if self.is_open else 0

    def lease_offer(self) -> LeaseOffer:
        """What may be leased now: what this process can run, as far as it would not wait for a slot.

        If a kind of slot or the share of a host has no place free, the caller is woken after the next end.
        """
        with self._lock:
            offer = self._slots.lease_offer(self._offer(), capacity=self.capacity, free=self._free_places())
            is_shared = offer.shares is not None and offer.shares.is_used_up
            self._is_awaited = self._is_awaited or is_shared or 0 in offer.free.values()
            return offer

    def pop_new_offer(self) -> bool:
        """Whether this process can run something else than at the last call, or this is the first one.

        If so, wake the tick after the next heartbeat: it finds what others set aside before they saw it.
        """
        before, self._last_offer = self._last_offer, self._offer()
        return before is not self._last_offer

    def pop_is_awaited(self) -> bool:
        """Whether `free` was 0, or a kind of slot was full, since the last call."""
        with self._lock:
            is_awaited, self._is_awaited = self._is_awaited, False
        return is_awaited

    def launch(self, leases: Iterable[Lease], *, now: datetime, monotonic_now: float) -> None:
        """Start the work of leases; while `capacity` run, the others wait. A failed launch is an outcome.

        `monotonic_now` was read together with `now`: the leases count from there.
        """
        new = [build_in_flight(lease, now=now, monotonic_now=monotonic_now) for lease in leases]
        fenced_at = min((one.lease_ends_at - one.fence_margin_s for one in new), default=math.inf)
        to_start: list[InFlightRun] = []
        with self._lock:
            if new and not self._in_flight:
                self._estimator.start_measuring(monotonic_now)
            self._next_check_at = min(self._next_check_at, fenced_at)
            for one in new:
                run = one.lease.run
                self._in_flight[run.id, run.fence] = one
                self._slots.take(run.needs, monotonic_now=monotonic_now)
                self._lease_lengths[one.lease_length_s] = self._lease_lengths.get(one.lease_length_s, 0) + 1
                if self._blocked.add(one):
                    continue
                if self._running >= self.capacity:
                    self._prefetched.append(one)
                else:
                    self._mark_started(one)
                    to_start.append(one)
        for one in to_start:
            self._start(one)

    def build_targets(self, targets: Iterable[type[AnyTarget]]) -> None:
        """Build the targets of these types ahead of their first launch, which reports any error."""
        for target in targets:
            with suppress(Exception):
                self._targets.get(target_kind(target))

    def set_result_callback(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every result; it is called from any thread."""
        self._wake = wake

    def known_leases(self) -> set[tuple[str, int]]:
        """The ids and fences of leases that are in flight here, or have a result that is not written yet."""
        with self._lock:
            return {*self._in_flight, *self.results.leases()}

    def in_flight_runs(self) -> list[InFlightRun]:
        """Every run in flight, prefetched ones first: a caller that stops them in order starts none."""
        with self._lock:
            return sorted(self._in_flight.values(), key=lambda one: one.is_started)

    def record_renewal(self, run_id: str, fence: int, *, ends_at: float) -> None:
        """Store the new end of a lease that was renewed."""
        one = self._in_flight.get((run_id, fence))
        if one is not None:
            one.lease_ends_at = ends_at
            with self._lock:
                self._next_check_at = -math.inf

    def write_output(self, store: Store, *, now: datetime) -> None:
        """Write the new output of running work, about once a second."""
        if self.output_buffer.is_write_due(self._monotonic()):
            self.output_buffer.write(store, self.in_flight_runs(), now=now)

    def stop(self, run_id: str, fence: int, *, reason: str) -> None:
        """Ask the work of a run to stop."""
        one = self._in_flight.get((run_id, fence))
        if one is not None:
            self._stop(one, reason)

    def stop_lost(self, run_id: str, fence: int) -> None:
        """Stop work whose lease is lost; the store will reject its result by the fence."""
        self.stop(run_id, fence, reason=StopReason.LEASE_LOST.value)

    def stop_all(self, *, only_prefetched: bool = False) -> None:
        """Ask all work to stop, or what has not started; what stops is released without an attempt."""
        for one in self.in_flight_runs():
            if not (only_prefetched and one.is_started):
                self._stop(one, StopReason.STOPPING.value)

    def abandon_all(self) -> list[InFlightRun]:
        """Ignore all further results; return the runs that were in flight."""
        with self._lock:
            left = list(self._in_flight.values())
            for one in left:
                one.has_ended = True
                one.work = None
            self._in_flight.clear()
            self._lease_lengths.clear()
            self._slots.clear()
            self._prefetched.clear()
            self._blocked.clear()
            self._running = 0
        return left

    def stop_expired(self) -> float:
        """Stop work that outlived its time limit, or whose lease is about to expire.

        Return the seconds until there may be something to stop; until then a call costs nothing.
        """
        monotonic_now = self._monotonic()
        with self._lock:
            if monotonic_now < self._next_check_at:
                return self._next_check_at - monotonic_now
            # Runs that are launched from here on lower `_next_check_at` themselves.
            self._next_check_at, next_check_at = math.inf, math.inf
        for one in self.in_flight_runs():
            fenced_at = one.lease_ends_at - one.fence_margin_s
            if monotonic_now > one.give_up_at:
                self._give_up(one, monotonic_now=monotonic_now)
            elif monotonic_now > one.time_limit_at:
                self._stop(one, StopReason.TIME_LIMIT.value)
            elif fenced_at <= monotonic_now:
                self._stop(one, StopReason.NOT_RENEWED.value)
            elif not one.stop_reason:
                next_check_at = min(next_check_at, one.time_limit_at, fenced_at)
            next_check_at = min(next_check_at, one.give_up_at)
        with self._lock:
            self._next_check_at = min(self._next_check_at, next_check_at)
            return self._next_check_at - monotonic_now

    def _give_up(self, one: InFlightRun, *, monotonic_now: float) -> None:
        """Give up on work that does not end, at the second look in time: before the first, the process may
        have been suspended, and the work with it.
        """
        is_in_time = monotonic_now <= one.give_up_at + LATE_LOOK_S
        if not (one.is_overdue and is_in_time):
            one.is_overdue, one.give_up_at = True, monotonic_now + LATE_LOOK_S
            return
        one.give_up_at = math.inf
        if not must_return(one.work):
            self._record_outcome(one, Cancelled(reason=one.stop_reason))

    def _mark_started(self, one: InFlightRun) -> None:
        """Start the time limit of a run; the caller holds the lock."""
        time_limit, one.work_started_at = one.lease.terms.lease.time_limit, self._monotonic()
        if time_limit is not None:
            one.time_limit_at = one.work_started_at + time_limit.total_seconds() + GIVE_UP_MARGIN_S
        one.is_started = True
        self._running += 1
        self._next_check_at = min(self._next_check_at, one.time_limit_at)

    def _start(self, one: InFlightRun) -> None:
        try:
            self._launch_target(one)
        except Exception as error:  # noqa: BLE001  the boundary: no error of a target may stop the tick
            self._record_outcome(one, Failed(error=f"{type(error).__name__}: {error}"))

    def _take_prefetched(self) -> InFlightRun | None:
        with self._lock:
            return self._next_prefetched()

    def _next_prefetched(self) -> InFlightRun | None:
        """Take the next run that may start, for the caller to start it; the caller holds the lock."""
        self._is_starting_prefetched = False
        while self._prefetched and self._running < self.capacity:
            one = self._prefetched.popleft()
            if not (one.has_ended or one.stop_reason):
                self._mark_started(one)
                self._is_starting_prefetched = True
                return one
        return None

    def _after_check(self, one: InFlightRun, outcome: Outcome) -> None:
        """Start the work if its check says so; else the check's answer is the result, and is judged again."""
        if one.stop_reason or not passes_check(one, outcome):
            one.is_check = True
            self._record_outcome(one, outcome)
        else:
            with self._lock:
                one.check = outcome
            self._start(one)

    def _launch_target(self, one: InFlightRun) -> None:
        check = one.lease.terms.check if one.check is None else None
        kind = target_kind(type(check or one.lease.terms.target))
        target = self._targets.get(kind)
        if target is None:
            self._record_outcome(one, Failed(error=f"this process has no {kind} target", unresolved=True))
            return
        done = self._after_check if check is not None else self._record_outcome
        work = target.launch(build_launch(one.lease, check=check is not None), partial(done, one))
        with self._lock:
            if check is not None and one.check is not None:
                return  # it passed already, and the work has started
            one.work = work
        if one.has_ended:
            # It ended before `launch` returned: read its output now, and drop the handle.
            self.output_buffer.record_end(one, work, one.outcome)
            one.work = None
        elif one.stop_reason:
            # A stop was requested while the work was starting.
            work.stop(one.stop_reason)

    def _stop(self, one: InFlightRun, reason: str) -> None:
        with self._lock:
            if one.stop_reason or one.has_ended:
                return
            one.stop_reason = reason
            work, is_waiting = one.work, not one.is_started
            grace = one.lease.terms.lease.grace.total_seconds()
            one.give_up_at = self._monotonic() + grace + GIVE_UP_MARGIN_S - LATE_LOOK_S
            one.time_limit_at = math.inf
            self._next_check_at = min(self._next_check_at, one.give_up_at)
        if is_waiting:
            self._record_outcome(one, Cancelled(reason=reason))
        elif work is not None:
            try:
                work.stop(reason)
            except Exception as error:  # noqa: BLE001  the boundary, as in launch
                failure = Failed(error=f"could not be stopped: {type(error).__name__}: {error}")
                self._record_outcome(one, failure)

    def _record_outcome(self, one: InFlightRun, outcome: Outcome) -> None:
        run = one.lease.run
        if one.work is not None and not one.has_ended:
            self.output_buffer.record_end(one, one.work, outcome)
        with self._lock:
            if one.has_ended:
                return
            one.has_ended, one.outcome = True, outcome
            one.work = None  # breaks the reference cycle between the run and its handle
            self._in_flight.pop((run.id, run.fence), None)
            started_at = one.work_started_at if one.is_started else None
            self._slots.release(run.needs, started_at=started_at, monotonic_now=self._monotonic())
            left = self._lease_lengths.pop(one.lease_length_s, 1) - 1
            if left:
                self._lease_lengths[one.lease_length_s] = left
            final = outcome_after_stop(outcome, one) if one.stop_reason else outcome
            result = AttemptResult(
                run=run, outcome=final, started_at=one.started_at, check=one.check, is_check=one.is_check
            )
            self.results.add(result)
            if one.is_started:
                self._running -= 1
                self._estimator.record_end(
                    monotonic_now=self._monotonic(),
                    started_at=one.work_started_at,
                    max_running=self.capacity,
                )
            self._prefetched.extendleft(self._blocked.pop_after(one))
            # Start waiting runs on this thread, in a loop on one thread at a time: a run may end at once.
            waiting = None if self._is_starting_prefetched else self._next_prefetched()
        self._wake()
        while waiting is not None:
            self._start(waiting)
            waiting = self._take_prefetched()
