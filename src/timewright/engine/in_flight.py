"""Runs in flight in this process: their state, what a target is given, and how many runs to prefetch."""

from __future__ import annotations

import math
from datetime import datetime

from msgspec import Struct

from timewright.core.recurrence.triggers import ZONED_TRIGGERS
from timewright.core.run.run import Cancelled, Failed, Outcome, Released, Run, TimedOut
from timewright.ledger.lease import Lease
from timewright.ports import Launch, RunHandle

# Stop work this long before its lease expires, or a sixth of the lease: attempts must never overlap.
SELF_FENCE_MARGIN_S = 1.0

# Why the engine stopped work itself; `outcome_after_stop` turns the reason into an outcome.
REASON_LEASE_LOST = "lease lost"
REASON_NOT_RENEWED = "lease not renewed in time"
REASON_TIME_LIMIT = "time limit reached"
REASON_STOPPING = "stopping"
REASON_RELEASED_AT_STOP = "released at stop"

# Prefetch as many runs as end in this time, and at most this many.
PREFETCH_S = 0.2
MAX_PREFETCHED_RUNS = 2000
# Fewer ended runs are no measurement; with a lower capacity than this, nothing is prefetched.
MIN_SAMPLES = 32


class InFlightRun(Struct, gc=False):
    """A leased run of this process; it drops its handle when the work ends, to leave no reference cycle."""

    lease: Lease
    started_at: datetime
    time_limit_at: float
    lease_ends_at: float
    lease_length_s: float
    fence_margin_s: float
    work: RunHandle | None = None
    is_started: bool = False
    work_started_at: float = 0.0
    stop_reason: str = ""
    has_ended: bool = False
    outcome: Outcome | None = None


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
        fence_margin_s=min(SELF_FENCE_MARGIN_S, length / 6),
    )


def attempt_started_at(run: Run, *, now: datetime) -> datetime:
    """When the attempt of a leased run starts: never before its lease, which may be dated after `now`."""
    return max(now, run.leased_at or now)


def outcome_after_stop(outcome: Outcome, in_flight: InFlightRun) -> Outcome:
    """The outcome of work that the engine stopped: a cancel is replaced by the reason of the stop."""
    if not isinstance(outcome, Cancelled):
        return outcome
    if in_flight.stop_reason in (REASON_LEASE_LOST, REASON_NOT_RENEWED):
        return Failed(error=in_flight.stop_reason, unknown=in_flight.is_started)
    if in_flight.stop_reason == REASON_TIME_LIMIT:
        return TimedOut()
    return Released(reason=REASON_RELEASED_AT_STOP) if in_flight.stop_reason == REASON_STOPPING else outcome


def build_launch(lease: Lease) -> Launch:
    """What a target is given; without a schedule there is no name, no trigger and no metadata."""
    run, schedule, terms = lease.run, lease.schedule, lease.terms
    trigger = schedule.trigger if schedule is not None else None
    return Launch(
        run_id=run.id,
        namespace=run.namespace,
        schedule_id=run.schedule_id,
        schedule_name=schedule.name if schedule is not None else "",
        target=terms.target,
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
        payload=run.payload,
        metadata=schedule.metadata if schedule is not None else {},
    )


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
