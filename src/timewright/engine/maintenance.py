"""Periodic work of an instance: renew leases, send heartbeats, look for incidents, count and prune runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sized
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.run.needs import Offer, offer_anything
from timewright.engine.constants import (
    DEAD_HOLDER_INTERVAL_S,
    HEARTBEAT_INTERVAL_S,
    KEEP_ANSWERS,
    LIMIT_KEY_IDLE,
    PRUNE_INTERVAL,
    PRUNE_PAUSE,
    RECLAIM_BATCH_RUNS,
    SESSION_RECHECK_S,
)
from timewright.engine.in_flight import InFlightRun, StopReason
from timewright.engine.launch import Launcher
from timewright.engine.pending_work import has_elapsed
from timewright.ledger.alerts.incidents import CHECK_INTERVAL, check_incidents
from timewright.ledger.lease import renew_leases
from timewright.ledger.records.instances import (
    MAX_INSTANCES,
    REFRESH_AFTER,
    FleetOffers,
    InstanceRecord,
    ProcessIdentity,
    offer_id,
    read_instances,
    record_heartbeat,
    record_offer,
)
from timewright.ledger.records.run_counts import count_runs, floor_minute, is_counting_due
from timewright.ledger.settle import reclaim
from timewright.ports import Clock, Ids, PruneRequest, Renewal, Store, Transaction, must_return
from timewright.ports.host_info import package_version
from timewright.ports.objects import GLOBAL_NAMESPACE, STORED_ANSWER
from timewright.ports.rows import LeasedRuns, LimitKeyPrune, ObjectPrune
from timewright.ports.store import SessionLocks


def renew_due(store: Store, launcher: Launcher, *, now: datetime, monotonic_now: float) -> None:
    """Renew every lease here that has used a third of its length; stop work that has lost its lease.

    `monotonic_now` was read before `now`.
    """
    due = [one for one in launcher.in_flight_runs() if _is_renewal_due(one, monotonic_now=monotonic_now)]
    if not due:
        return
    renewals = {(one.lease.run.id, one.lease.run.fence): _renewal(one, now=now) for one in due}
    kept, lost = renew_leases(store, list(renewals.values()))
    for renewed in kept:
        renewal = renewals[renewed.run_id, renewed.fence]
        if renewed.cancel_at is None or renewal.despite_cancel:
            ends_at = monotonic_now + (renewal.lease_until - now).total_seconds()
            launcher.record_renewal(renewed.run_id, renewed.fence, ends_at=ends_at)
    for renewal in lost:
        launcher.stop_lost(renewal.run_id, renewal.fence)


def _renewal(one: InFlightRun, *, now: datetime) -> Renewal:
    run = one.lease.run
    return Renewal(run.id, run.fence, now + one.lease.terms.lease.length, must_return(one.work))


def _is_renewal_due(one: InFlightRun, *, monotonic_now: float) -> bool:
    terms = one.lease.terms.lease
    if one.stop_reason == StopReason.LEASE_LOST:
        return False
    used = terms.length.total_seconds() - (one.lease_ends_at - monotonic_now)
    return used >= terms.renew_every.total_seconds()


class Heartbeat:
    """Writes that this instance is alive, how full it is and what it offers: every 15 seconds and at stop."""

    def __init__(
        self,
        store: Store,
        instance_id: str,
        *,
        clock: Clock,
        capacity: int,
        in_flight: Sized,
        admit: str = "any",
        shard: str = "",
        offer: Callable[[], Offer] = offer_anything,
        fleet: FleetOffers | None = None,
        free_mb: Callable[[], int | None] = lambda: None,
        process: ProcessIdentity | None = None,
        sessions: SessionLocks | None = None,
    ) -> None:
        self._sessions = sessions
        self._free_mb = free_mb
        self._process = process
        self._store = store
        self._id = instance_id
        self._clock = clock
        self._capacity = capacity
        self._in_flight = in_flight
        self._admit = admit
        self._shard = shard
        self._offer = offer
        self._fleet = fleet
        self._stored_offer: Offer | None = None
        self._stored_at = 0.0
        self._record: InstanceRecord | None = None
        self._sent_at = 0.0

    def send_if_due(self) -> list[Fact]:
        """Write a heartbeat if the last one is 15 seconds old, or if we offer something else since.

        Returns which ready runs wait because no live instance can run them.
        """
        monotonic_now = self._clock.monotonic()
        is_changed = self._offer() is not self._stored_offer
        if not is_changed and monotonic_now - self._sent_at < HEARTBEAT_INTERVAL_S:
            return []
        self._sent_at = monotonic_now
        now = self._send(stopped=False)
        fleet = self._fleet
        if fleet is None:
            return []
        waiting = self._store.read(lambda tx: fleet.report_waiting(tx, now=now))
        fleet.mark_reported(waiting)
        return [*waiting]

    def send_stopped(self) -> None:
        """Write that this instance has stopped, unless it never wrote a heartbeat."""
        # Errors do not matter here: an instance without heartbeats counts as stopped after a while.
        with suppress(Exception):
            if self._record is not None:
                self._send(stopped=True)

    def _send(self, *, stopped: bool) -> datetime:
        now, offer = self._store.now(), self._offer()
        if self._record is None:
            self._record = InstanceRecord(
                id=self._id,
                host=platform.node(),
                pid=os.getpid(),
                version=package_version(),
                started_at=now,
                capacity=self._capacity,
                admit=self._admit,
                shard=self._shard,
                process=self._process,
            )
        record = replace(
            self._record,
            under_way=len(self._in_flight),
            clock_offset=now - self._clock.now(),
            stopped=stopped,
            store_free_mb=self._free_mb(),
            offer=offer_id(offer),
            # Read at each heartbeat, because a restart of the server ends the sessions of all.
            session=self._sessions.session_lock() if self._sessions is not None else None,
        )
        must_store = (
            offer is not self._stored_offer
            or self._sent_at - self._stored_at >= REFRESH_AFTER.total_seconds()
        )

        def work(tx: Transaction) -> None:
            if must_store:
                record_offer(tx, offer, now=now)
            record_heartbeat(tx, record, now=now)

        self._store.write(work)
        self._store.write(lambda tx: tx.seal_audit())
        if must_store:
            self._stored_offer, self._stored_at = offer, self._sent_at
        return now


class DeadHolderCheck:
    """Reclaims the leases of instances whose process has provably ended, without waiting for their end.

    `is_proven_dead` knows processes of this host. On a database server, `sessions` prove it for any host: a
    process without a session in two checks in a row has ended, because a living one reconnects meanwhile.
    A silent instance keeps its leases: it may be suspended or cut off, and work on.
    """

    def __init__(
        self,
        store: Store,
        own_id: str,
        *,
        clock: Clock,
        is_proven_dead: Callable[[InstanceRecord], bool],
        sessions: SessionLocks | None = None,
    ) -> None:
        self._store = store
        self._own_id = own_id
        self._clock = clock
        self._is_proven_dead = is_proven_dead
        self._sessions = sessions
        self._without_session: frozenset[str] = frozenset()
        self._checked_at: float | None = None

    def run_if_due(self) -> list[Fact]:
        """Check every 5 seconds, or again after 4 if a session was missing; return what was reclaimed."""
        monotonic_now = self._clock.monotonic()
        interval = SESSION_RECHECK_S if self._without_session else DEAD_HOLDER_INTERVAL_S
        if self._checked_at is not None and monotonic_now - self._checked_at < interval:
            return []
        self._checked_at = monotonic_now
        seen = self._store.read(lambda tx: read_instances(tx, limit=MAX_INSTANCES))
        others = [
            one.instance for one in seen if not one.instance.stopped and one.instance.id != self._own_id
        ]
        facts: list[Fact] = []
        dead = [one for one in others if self._is_proven_dead(one)]
        for instance in dead:
            facts += self._replace(instance)
        missing = self._find_without_session([one for one in others if one not in dead])
        for instance in missing:
            if instance.id in self._without_session:
                facts += self._replace(instance, from_elsewhere=True)
        self._without_session = frozenset(one.id for one in missing) - self._without_session
        return facts

    def _find_without_session(self, others: list[InstanceRecord]) -> list[InstanceRecord]:
        """Those that held a lock of this start of the server, and hold it no more."""
        if self._sessions is None or not any(one.session is not None for one in others):
            return []
        held = self._sessions.held_session_locks()
        servers = {lock.server for lock in held}
        return [
            one
            for one in others
            if one.session is not None and one.session.server in servers and one.session not in held
        ]

    def _replace(self, dead: InstanceRecord, *, from_elsewhere: bool = False) -> list[Fact]:
        """Reclaim its leases. From another host we cannot see its commands, which may outlive it."""
        facts: list[Fact] = []
        while found := reclaim(
            self._store,
            now=self._store.now(),
            limit=RECLAIM_BATCH_RUNS,
            dead_holder=dead.id,
            keeps_commands=from_elsewhere,
        ).facts:
            facts += found
        if from_elsewhere and self._store.read(lambda tx: tx.select(LeasedRuns(holder=dead.id))):
            return facts
        stopped, now = replace(dead, stopped=True, under_way=0), self._store.now()
        self._store.write(lambda tx: record_heartbeat(tx, stopped, now=now))
        return facts


class IncidentWatch:
    """Looks for incidents once a minute, unless another instance did."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids
        self._checked_at: datetime | None = None

    def run(self, *, now: datetime) -> tuple[Fact, ...]:
        """Check if a minute has passed since the last time; return what is told."""
        if self._checked_at is not None and timedelta(0) <= now - self._checked_at < CHECK_INTERVAL:
            return ()
        self._checked_at = now
        return check_incidents(self._store, ids=self._ids, now=now)


class RunCounter:
    """Counts the ended runs of each minute once it is over, unless another instance did."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: datetime | None = None

    def run(self, *, now: datetime) -> None:
        """Count if a minute has ended since the last time."""
        if self._counted is not None and self._counted > now:
            self._counted = None  # the clock stepped back
        if is_counting_due(self._counted, now=now):
            counted = count_runs(self._store, now=now)
            # Another instance was faster: look again when the next minute is over.
            self._counted = floor_minute(now) if counted is None else counted


class Pruner:
    """Removes finished runs that are older than `keep`, and old answers, oldest first, in small batches."""

    def __init__(
        self,
        store: Store,
        *,
        keep: timedelta,
        keep_runs: int | None = None,
        keep_bytes: int | None = None,
        sweep_files: Callable[[], int] | None = None,
    ) -> None:
        self._store = store
        self._sweep_files = sweep_files
        self._keep = keep
        self._keep_runs = keep_runs
        self._keep_bytes = keep_bytes
        self._pruned_at: datetime | None = None
        self._keys_pruned_at: datetime | None = None
        self._has_more = False

    def run(self, *, now: datetime) -> bool:
        """Remove one batch if it is time, and return whether more may be left.

        One batch at a time, because the tick waits for it, and on SQLite every other writer.
        """
        if not has_elapsed(self._pruned_at, PRUNE_PAUSE if self._has_more else PRUNE_INTERVAL, now=now):
            return self._has_more
        self._pruned_at, self._has_more = now, False
        request = PruneRequest(
            older_than=now - self._keep, keep_runs=self._keep_runs, keep_bytes=self._keep_bytes
        )
        answers = ObjectPrune(
            kind=STORED_ANSWER,
            namespace=GLOBAL_NAMESPACE,
            older_than=now - KEEP_ANSWERS,
            limit=request.limit,
        )
        removed = self._store.write(lambda tx: max(tx.prune(request), tx.prune(answers)))
        self._has_more = removed >= request.limit
        if self._has_more:
            return True
        if self._sweep_files is not None:
            with suppress(OSError):  # the folder may be away for a while
                self._sweep_files()
        if has_elapsed(self._keys_pruned_at, LIMIT_KEY_IDLE, now=now):
            self._keys_pruned_at = now
            self._store.write(lambda tx: tx.prune(LimitKeyPrune(now - LIMIT_KEY_IDLE)))
        return False
