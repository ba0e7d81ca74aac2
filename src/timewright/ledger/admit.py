"""Admits due schedules: their runs, skips and progress are written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from timewright.core.facts import Fact
from timewright.core.moments import ZERO
from timewright.core.run.fast_path import is_independent
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.shards import FULL_SHARD, Shard, check_shard
from timewright.errors import Conflict, OutcomeUnknown
from timewright.ledger.admission_batch import AdmissionBatch, LocalCapacity
from timewright.ledger.lease import find_leased_batch
from timewright.ledger.lookups import load_calendars
from timewright.ports import Ids, ScheduleRecord, Store, Transaction

MAX_WRITE_ATTEMPTS = 3


class WaitForInstant(Protocol):
    """Blocks until a clock shows an instant; returns False and sets `is_behind` if it does not get there."""

    is_behind: bool

    def __call__(self, read_clock: Callable[[], datetime]) -> bool:
        """Block until `read_clock` returns the instant or later."""
        ...


class AdmissionResult(Struct, frozen=True, kw_only=True):
    """What one admission did; `more_due` says that more schedules may be due."""

    facts: tuple[Fact, ...] = ()
    leased: tuple[tuple[Run, Schedule], ...] = ()
    schedules_read: int = 0
    more_due: bool = False


def admit_due(
    store: Store,
    *,
    ids: Ids,
    now: datetime,
    limit: int,
    since: datetime | None = None,
    local_capacity: LocalCapacity | None = None,
    shard: Shard = FULL_SHARD,
    overdue_by: timedelta = ZERO,
    wait_for_instant: WaitForInstant | None = None,
) -> AdmissionResult:
    """Decide every due occurrence of at most `limit` schedules.

    Only schedules of `shard` (k, n) that are overdue by `overdue_by` are decided. If `now` lies slightly
    ahead, `wait_for_instant` waits for it after everything is written and before the commit; if the store's
    clock does not reach it, nothing is committed.
    """
    check_shard(shard)
    lease_batch = ids.new("lease", now=now) if local_capacity is not None else ""

    def work(tx: Transaction) -> AdmissionResult:
        due = tx.due_schedules(now=now - overdue_by, limit=limit, since=since, shard=shard)
        if wait_for_instant is not None and not all(is_independent(d.schedule, d.in_flight) for d in due):
            raise _TooEarly
        calendars = load_calendars(tx, [d.schedule for d in due])
        can_lease = local_capacity is not None and _keeps_order(due, free_slots=local_capacity.capacity)
        capacity = local_capacity if can_lease else None
        # Runs that start here may take slots of runs that ended while we waited for the store.
        decided_at = max(now, tx.now()) if due and capacity is not None else now
        batch = AdmissionBatch(tx, ids=ids, now=decided_at, local_capacity=capacity, lease_batch=lease_batch)
        batch.load_follow_ups(due)
        for record in due:
            if not batch.add_on_time_step(record):
                batch.decide(record, calendars)
        batch.write()
        result = AdmissionResult(
            facts=tuple(batch.facts),
            leased=batch.leased_runs(),
            schedules_read=len(due),
            more_due=len(due) >= limit or batch.more,
        )
        if wait_for_instant is not None:
            tx.prepare_commit()
            if not wait_for_instant(tx.now):
                raise _ClockBehind
        return result

    try:
        return _write(store, work)
    except _ClockBehind:
        return AdmissionResult()
    except _TooEarly:
        assert wait_for_instant is not None
        if not wait_for_instant(store.now):
            return AdmissionResult()
        return admit_due(
            store,
            ids=ids,
            now=now,
            limit=limit,
            since=since,
            local_capacity=local_capacity,
            shard=shard,
            overdue_by=overdue_by,
        )
    except OutcomeUnknown:
        if local_capacity is None:
            return AdmissionResult(more_due=True)
        # The lease ids were chosen before the commit, so the store can tell whether it succeeded.
        holder = local_capacity.holder
        found = store.read(lambda tx: find_leased_batch(tx, lease_batch, holder=holder, now=now))
        leased = tuple((one.run, one.schedule) for one in found.leases if one.schedule is not None)
        return AdmissionResult(facts=found.facts, leased=leased, more_due=True)


def merge_results(results: Sequence[AdmissionResult]) -> AdmissionResult:
    """The results of several admissions as one."""
    return AdmissionResult(
        facts=tuple(fact for one in results for fact in one.facts),
        leased=tuple(pair for one in results for pair in one.leased),
        schedules_read=sum(one.schedules_read for one in results),
        more_due=any(one.more_due for one in results),
    )


class _ClockBehind(Exception):
    """The store's clock did not reach the instant that was decided ahead."""


class _TooEarly(Exception):
    """A due schedule cannot be decided before its instant, because other runs may still change it."""


def _keeps_order(due: Sequence[ScheduleRecord], *, free_slots: int) -> bool:
    """Whether runs may start in the order of their instants: all fit, or all have the same priority."""
    return len(due) <= free_slots or len({one.schedule.priority for one in due}) == 1


def _write(store: Store, work: Callable[[Transaction], AdmissionResult]) -> AdmissionResult:
    """Run the transaction; repeat it if a manual run was inserted between its reads and writes."""
    for _ in range(MAX_WRITE_ATTEMPTS - 1):
        try:
            return store.write(work)
        except Conflict:
            continue
    return store.write(work)
