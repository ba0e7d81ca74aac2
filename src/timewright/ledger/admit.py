"""Admits due schedules: their runs, skips and progress are written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.facts import Fact
from timewright.core.moments import ZERO
from timewright.core.run.fast_path import can_decide_early
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.shards import FULL_SHARD, Shard, check_shard
from timewright.errors import ClockBehind, Conflict, OutcomeUnknown
from timewright.ledger.admission_batch import AdmissionBatch, LocalCapacity
from timewright.ledger.alerts.deliveries import deliver_facts
from timewright.ledger.lease import find_leased_batch
from timewright.ledger.lookups import load_calendars
from timewright.ledger.pauses import load_pauses, set_aside_paused
from timewright.ledger.records.instances import FleetOffers
from timewright.ports import Ids, ScheduleRecord, Store, Transaction

MAX_WRITE_ATTEMPTS = 3


class AdmissionResult(Struct, frozen=True, kw_only=True):
    """What one admission did.

    `admit_again`: a limit was reached, so more may be due; or the store did not answer the commit, so it is
    unknown what was decided. `too_early`: nothing was decided, because that is possible only at the instant.
    """

    facts: tuple[Fact, ...] = ()
    leased: tuple[tuple[Run, Schedule], ...] = ()
    schedules_read: int = 0
    admit_again: bool = False
    too_early: bool = False


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
    commit_at: datetime | None = None,
    fleet: FleetOffers | None = None,
) -> AdmissionResult:
    """Decide every due occurrence of at most `limit` schedules.

    With `local_capacity`, new runs that may start at once are inserted leased to its holder. With `fleet`,
    schedules that no live instance can run are left out: until one can, they have an outage. Only schedules
    of `shard` (k, n) that are overdue by at least `overdue_by` are decided, and none that was due before
    `since`. With `commit_at`, which equals `now` and lies a few milliseconds in the future, the store commits
    at that instant. If other runs may still change what is decided, or the store's clock does not reach the
    instant, nothing is written, and the result is `too_early`.
    """
    check_shard(shard)
    lease_batch_id = ids.new("lease", now=now) if local_capacity is not None else ""

    def work(tx: Transaction) -> AdmissionResult:
        due = tx.due_schedules(until=now - overdue_by, limit=limit, since=since, shard=shard)
        if commit_at is not None and not all(can_decide_early(d.schedule, d.in_flight) for d in due):
            raise _TooEarly
        count = len(due)
        pauses = load_pauses(tx, now=now, records=due) if due else None
        due = set_aside_paused(tx, due, pauses) if pauses is not None else due
        due, unplaced_facts = fleet.set_aside_unplaced(tx, due, now=now) if fleet is not None else (due, [])
        calendars = load_calendars(tx, [d.schedule for d in due])
        can_lease = local_capacity is not None and _may_lease_at_once(
            due, free_slots=local_capacity.free_slots
        )
        lease_here = local_capacity if can_lease else None
        # A run that is leased here must not begin before the end of the run whose slot it takes. That one may
        # have ended after `now`, while this transaction waited for its locks.
        decided_at = max(now, tx.now()) if due and lease_here is not None else now
        batch = AdmissionBatch(
            tx, ids=ids, now=decided_at, local_capacity=lease_here, lease_batch=lease_batch_id, pauses=pauses
        )
        batch.load_follow_ups(due)
        batch.decide_all(due, calendars)
        delivered = deliver_facts(
            tx, batch.facts, {one.schedule.id: one.schedule for one in due}, now=decided_at
        )
        return AdmissionResult(
            facts=(*batch.facts, *unplaced_facts, *delivered),
            leased=batch.leased_runs(),
            schedules_read=count,
            admit_again=count >= limit or batch.more,
        )

    try:
        result = _write(store, work, commit_at=commit_at)
        if fleet is not None:
            fleet.mark_reported(result.facts)
        return result
    except (_TooEarly, ClockBehind):
        return AdmissionResult(too_early=True)
    except OutcomeUnknown:
        # Whether it was committed or not, admitting again is right: an occurrence has one row. Observers miss
        # the facts of a lost answer; notifications do not, because their runs are part of the transaction.
        if local_capacity is None:
            return AdmissionResult(admit_again=True)
        # The ids of all leases begin with a batch id that was chosen before the commit, so the store can tell
        # which runs it leased to us, if any. They must start: they hold slots until their leases end.
        holder = local_capacity.holder
        found = store.read(lambda tx: find_leased_batch(tx, lease_batch_id, holder=holder, now=now))
        leased = tuple((one.run, one.schedule) for one in found.leases if one.schedule is not None)
        return AdmissionResult(facts=found.facts, leased=leased, admit_again=True)


class _TooEarly(Exception):
    """Other runs may still change what is decided for a due schedule: it is decided at its instant."""


def _may_lease_at_once(due: Sequence[ScheduleRecord], *, free_slots: int) -> bool:
    """Whether due schedules may be leased as they are admitted: all fit, or all have the same priority.

    Otherwise a run of a lower priority could take the last slot: `lease` chooses later, by priority.
    """
    return len(due) <= free_slots or len({one.schedule.priority for one in due}) == 1


def _write(
    store: Store, work: Callable[[Transaction], AdmissionResult], *, commit_at: datetime | None = None
) -> AdmissionResult:
    """Run the transaction; repeat it if a manual run was inserted between its reads and writes."""
    for _ in range(MAX_WRITE_ATTEMPTS - 1):
        try:
            return store.write(work, commit_at=commit_at)
        except Conflict:
            continue
    return store.write(work, commit_at=commit_at)
