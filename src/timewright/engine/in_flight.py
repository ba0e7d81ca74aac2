"""Runs in flight in this process: their state, what a target is given, and how many runs to prefetch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

from msgspec import Struct, to_builtins

from timewright.core.policies.answers import judge
from timewright.core.recurrence.triggers import ZONED_TRIGGERS
from timewright.core.run.needs import HOST, LeaseOffer, Needs, Offer, no_slot, share_capacity
from timewright.core.run.run import Cancelled, Lost, Outcome, Released, Run, Succeeded, TimedOut
from timewright.core.target import RunTarget
from timewright.engine.constants import (
    FENCE_MARGIN_S,
    MAX_PREFETCHED_RUNS,
    MIN_SAMPLES,
    PREFETCH_S,
)
from timewright.ledger.lease import Lease
from timewright.ledger.records.schedule_states import NO_STATE
from timewright.ledger.run_ends import AttemptResult
from timewright.ports import Launch, RunHandle


class StopReason(StrEnum):
    """Why the engine stopped work itself; `outcome_after_stop` turns the reason into an outcome."""

    LEASE_LOST = "lease lost"
    NOT_RENEWED = "lease not renewed in time"
    TIME_LIMIT = "time limit reached"
    STOPPING = "stopping"
    RELEASED = "released at stop"


class InFlightRun(Struct, gc=False):
    """A leased run of this process; it drops its handle when the work ends, to leave no reference cycle."""

    lease: Lease
    started_at: datetime
    time_limit_at: float
    lease_ends_at: float
    lease_length_s: float
    fence_margin_s: float
    give_up_at: float = math.inf
    is_overdue: bool = False
    work: RunHandle | None = None
    is_started: bool = False
    work_started_at: float = 0.0
    stop_reason: str = ""
    has_ended: bool = False
    outcome: Outcome | None = None
    check: Outcome | None = None
    is_check: bool = False


def build_in_flight(lease: Lease, *, now: datetime, monotonic_now: float) -> InFlightRun:
    """The state of a lease that was granted at `now`; its work has not started."""
    run, length = lease.run, lease.terms.lease.length.total_seconds()
    assert run.lease_until is not None
    return InFlightRun(
        lease=lease,
        started_at=attempt_started_at(run, now=now),
        time_limit_at=math.inf,
        lease_ends_at=monotonic_now + (run.lease_until - now).total_seconds(),
        lease_length_s=length,
        fence_margin_s=min(FENCE_MARGIN_S, length / 6),
    )


def attempt_started_at(run: Run, *, now: datetime) -> datetime:
    """When the attempt of a leased run starts: never before its lease, which may be dated after `now`."""
    return max(now, run.leased_at or now)


def outcome_after_stop(outcome: Outcome, in_flight: InFlightRun) -> Outcome:
    """The outcome of work that the engine stopped: a cancel is replaced by the reason of the stop."""
    if not isinstance(outcome, Cancelled):
        return outcome
    reason, is_started = in_flight.stop_reason, in_flight.is_started
    if reason in (StopReason.LEASE_LOST, StopReason.NOT_RENEWED):
        return Lost(error=str(reason)) if is_started else Released(reason=str(reason))
    if reason == StopReason.TIME_LIMIT:
        return TimedOut()
    stopped = Released(reason=StopReason.RELEASED.value, interrupted=is_started)
    return stopped if reason == StopReason.STOPPING else outcome


@cache
def target_kind(target: type[RunTarget]) -> str:
    """The tag of a target type; cached, because msgspec computes it slowly."""
    return str(target.__struct_config__.tag)


def passes_check(one: InFlightRun, answer: Outcome) -> bool:
    """Whether the answer of a run's check lets its work start."""
    assert one.lease.schedule is not None
    rules, state = one.lease.schedule.answer_rules, one.lease.state or NO_STATE
    judged = judge(rules, answer, seen=state.seen, state=state.value, now=one.started_at)
    return isinstance(judged.outcome, Succeeded) and not judged.quiet


def build_launch(lease: Lease, *, check: bool = False) -> Launch:
    """What a target is given, or the check before it; without a schedule there is no name and no trigger."""
    run, schedule, terms = lease.run, lease.schedule, lease.terms
    trigger = schedule.trigger if schedule is not None else None
    state = lease.state
    kept: dict[str, Any] = {}
    if state is not None and schedule is not None and schedule.keep_state:
        previous = to_builtins(state.previous) if state.previous is not None else None
        kept = {"keeps_state": True, "state": state.value, "previous": previous}
        kept["state_version"] = state.version
    return Launch(
        **kept,
        checkpoint=lease.checkpoint,
        run_id=run.id,
        namespace=run.namespace,
        schedule_id=run.schedule_id,
        schedule_name=schedule.name if schedule is not None else "",
        target=terms.check if check and terms.check is not None else terms.target,
        fence=run.fence,
        attempt=run.attempts + 1,
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        dedupe_scope=run.dedupe_scope,
        trigger=trigger,
        zone=trigger.zone if isinstance(trigger, ZONED_TRIGGERS) else "UTC",
        missed=run.missed,
        fired_by=run.fired_by,
        source=run.source._value_,
        time_limit=terms.lease.time_limit,
        grace=terms.lease.grace,
        payload=None if check else run.payload,
        metadata=schedule.metadata if schedule is not None else {},
    )


class BlockedRuns:
    """Leased runs of which an earlier lease, that was lost, still runs here: no second copy runs beside it.

    The caller holds the lock of `in_flight`.
    """

    def __init__(self, in_flight: Mapping[tuple[str, int], InFlightRun]) -> None:
        self._in_flight = in_flight
        self._blocked: dict[str, InFlightRun] = {}

    def add(self, one: InFlightRun) -> bool:
        """Keep a run that has to wait; returns whether it has."""
        run = one.lease.run
        waits = run.fence > 1 and any(i == run.id and fence < run.fence for i, fence in self._in_flight)
        if waits:
            self._blocked[run.id] = one
        return waits

    def pop_after(self, ended: InFlightRun) -> list[InFlightRun]:
        """Return the run that may start now that an earlier lease of it has ended."""
        blocked = self._blocked.pop(ended.lease.run.id, None) if self._blocked else None
        return [] if blocked is None or blocked is ended or self.add(blocked) else [blocked]

    def clear(self) -> None:
        """Forget all of them."""
        self._blocked.clear()


class UnwrittenResults:
    """Results of ended runs, until the store has committed them.

    `lock` is that of the runs in flight, so that a run is always among one of the two. The caller of `add`
    and `leases` holds it.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: list[AttemptResult] = []
        self._being_written: list[list[AttemptResult]] = []

    def __len__(self) -> int:
        """How many results wait to be taken."""
        return len(self._waiting)

    @property
    def total(self) -> int:
        """How many results are not committed, also those that are being written."""
        with self._lock:
            return len(self._waiting) + sum(map(len, self._being_written))

    def add(self, result: AttemptResult) -> None:
        """Add the result of a run that has just ended."""
        self._waiting.append(result)

    def leases(self) -> Iterator[tuple[str, int]]:
        """The ids and fences of the runs that have ended."""
        for batch in (self._waiting, *self._being_written):
            yield from ((result.run.id, result.run.fence) for result in batch)

    def take(self) -> list[AttemptResult]:
        """Take the results that arrived since the last call; the caller writes them or puts them back."""
        with self._lock:
            taken, self._waiting = self._waiting, []
            if taken:
                self._being_written.append(taken)
        return taken

    def put_back(self, results: list[AttemptResult]) -> None:
        """Keep results that could not be written, for the next try."""
        with self._lock:
            self._waiting[:0] = results
            self._end_writing(results)

    def confirm(self, results: list[AttemptResult]) -> None:
        """Forget results that the store has committed."""
        with self._lock:
            self._end_writing(results)

    def _end_writing(self, results: list[AttemptResult]) -> None:
        self._being_written = [others for others in self._being_written if others is not results]


class PrefetchEstimator:
    """Measures how fast runs end, and from that how many to lease ahead of the running ones.

    Very short runs would otherwise wait for the store between batches. Time in which nothing ran is not
    counted. Long runs that happen to end together are not fast: the rate is at most what `max_running`
    runs of their duration can reach.
    """

    def __init__(self) -> None:
        self._rate = 0.0
        self._since = 0.0
        self._ended = 0
        self._busy_s = 0.0
        self._run_s = 0.0

    def start_measuring(self, monotonic_now: float) -> None:
        """A run starts while nothing else runs."""
        self._since = monotonic_now

    def record_end(self, *, monotonic_now: float, started_at: float, max_running: int) -> None:
        """A run ended. The estimate rises at once and at most halves per measurement."""
        self._busy_s += max(monotonic_now - self._since, 0.0)
        self._since = monotonic_now
        self._ended += 1
        self._run_s += monotonic_now - started_at
        has_samples = self._ended >= MIN_SAMPLES <= max_running
        if self._busy_s <= 0.0 or not (has_samples or self._busy_s >= PREFETCH_S):
            return
        rate = self._ended / max(self._busy_s, self._run_s / max_running) if has_samples else 0.0
        self._rate = max(rate, self._rate / 2)
        self._ended, self._busy_s, self._run_s = 0, 0.0, 0.0

    @property
    def prefetch_count(self) -> int:
        """How many runs end in `PREFETCH_S` seconds."""
        return min(int(self._rate * PREFETCH_S), MAX_PREFETCHED_RUNS)


class SlotLimits(Struct, frozen=True):
    """What runs would wait for in this process, such as worker processes, and how many of each there are.

    `slot_of` names the slot that a run with some needs takes; "" is none. `per_host` limits the requests to
    one host; 0 is no limit.
    """

    slot_of: Callable[[Needs], str] = no_slot
    counts: Mapping[str, int] = {}
    per_host: int = 0


class SlotUse:
    """Counts the slots in use. Of runs that end quickly, more may wait for a slot, as for the capacity."""

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        self._used = dict.fromkeys(limits.counts, 0)
        self._hosts: dict[str, int] = {}
        self._estimators = {slot: PrefetchEstimator() for slot in limits.counts}

    def lease_offer(self, offer: Offer, *, capacity: int, free: int) -> LeaseOffer:
        """What may be leased now, if `free` more runs may be in flight."""
        left = {
            slot: max(max(count, self._estimators[slot].prefetch_count) - self._used[slot], 0)
            for slot, count in self._limits.counts.items()
        }
        return LeaseOffer(
            offer=offer,
            free=left,
            slot_of=self._limits.slot_of,
            shares=share_capacity(
                capacity, free=free, used=dict(self._hosts), per_host=self._limits.per_host
            ),
        )

    def take(self, needs: Needs, *, monotonic_now: float) -> None:
        """A run is in flight."""
        slot = self._limits.slot_of(needs)
        if slot.startswith(HOST):
            self._hosts[slot] = self._hosts.get(slot, 0) + 1
        elif slot in self._used:
            if not self._used[slot]:
                self._estimators[slot].start_measuring(monotonic_now)
            self._used[slot] += 1

    def release(self, needs: Needs, *, started_at: float | None, monotonic_now: float) -> None:
        """A run has ended, or was released before it started."""
        slot = self._limits.slot_of(needs)
        if slot in self._hosts:
            self._hosts[slot] -= 1
            if self._hosts[slot] < 1:
                del self._hosts[slot]
        elif slot in self._used:
            self._used[slot] = max(self._used[slot] - 1, 0)
            if started_at is not None:
                count = max(self._limits.counts[slot], MIN_SAMPLES)
                self._estimators[slot].record_end(
                    monotonic_now=monotonic_now, started_at=started_at, max_running=count
                )

    def clear(self) -> None:
        """No run is in flight any more."""
        self._used = dict.fromkeys(self._used, 0)
        self._hosts = {}
