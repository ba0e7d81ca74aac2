"""Periodic work of an instance: renew its leases, write its heartbeat, prune old history."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Sized
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.metadata import version

from msgspec.structs import replace

from timewright.engine.in_flight import InFlightRun
from timewright.engine.launch import Launcher
from timewright.ledger.lease import renew_leases
from timewright.ledger.records.instances import InstanceRecord, record_heartbeat
from timewright.ports import Clock, PruneRequest, Renewal, Store

HEARTBEAT_INTERVAL_S = 15.0
MAX_LISTED_FUNCTIONS = 500
PRUNE_INTERVAL = timedelta(minutes=1)
# Per interval, so that a first prune of a large store does not block other writers for long.
MAX_PRUNE_BATCHES = 20


def renew_due(store: Store, launcher: Launcher, *, now: datetime, monotonic_now: float) -> None:
    """Renew every lease here that has used a third of its length; stop work that has lost its lease.

    `monotonic_now` was read before `now`.
    """
    due = [one for one in launcher.in_flight_runs() if _is_renewal_due(one, monotonic_now=monotonic_now)]
    if not due:
        return
    renewals = [
        Renewal(one.lease.run.id, one.lease.run.fence, now + one.lease.terms.lease.length) for one in due
    ]
    kept, lost = renew_leases(store, renewals, now=now)
    lengths = {one.lease.run.id: one.lease.terms.lease.length.total_seconds() for one in due}
    for renewed in kept:
        if renewed.cancel_at is None:
            ends_at = monotonic_now + lengths[renewed.run_id]
            launcher.record_renewal(renewed.run_id, renewed.fence, ends_at=ends_at)
    for renewal in lost:
        launcher.stop_lost(renewal.run_id, renewal.fence)


def _is_renewal_due(one: InFlightRun, *, monotonic_now: float) -> bool:
    terms = one.lease.terms.lease
    used = terms.length.total_seconds() - (one.lease_ends_at - monotonic_now)
    return used >= terms.renew_every.total_seconds()


class Heartbeat:
    """Writes that this instance is alive and how full it is, every 15 seconds and once when it stops."""

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
        functions: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self._store = store
        self._id = instance_id
        self._clock = clock
        self._capacity = capacity
        self._in_flight = in_flight
        self._admit = admit
        self._shard = shard
        self._functions = functions
        self._record: InstanceRecord | None = None
        self._sent_at = 0.0

    def send_if_due(self) -> None:
        """Write a heartbeat if the last one is 15 seconds old."""
        monotonic_now = self._clock.monotonic()
        if self._record is None or monotonic_now - self._sent_at >= HEARTBEAT_INTERVAL_S:
            self._sent_at = monotonic_now
            self._send(stopped=False)

    def send_stopped(self) -> None:
        """Write that this instance has stopped, unless it never wrote a heartbeat."""
        # Errors do not matter here: an instance without heartbeats counts as stopped after a while.
        with suppress(Exception):
            if self._record is not None:
                self._send(stopped=True)

    def _send(self, *, stopped: bool) -> None:
        now = self._store.now()
        if self._record is None:
            self._record = InstanceRecord(
                id=self._id,
                host=platform.node(),
                version=version("timewright"),
                started_at=now,
                capacity=self._capacity,
                admit=self._admit,
                shard=self._shard,
            )
        record = replace(
            self._record,
            under_way=len(self._in_flight),
            clock_offset=now - self._clock.now(),
            stopped=stopped,
            functions=self._function_names(),
        )
        self._store.write(lambda tx: record_heartbeat(tx, record, now=now))

    def _function_names(self) -> tuple[str, ...] | None:
        """The functions that this instance can call; None if there are too many to list."""
        names = self._functions() if self._functions is not None else None
        return tuple(sorted(names)) if names is not None and len(names) <= MAX_LISTED_FUNCTIONS else None


class Pruner:
    """Removes finished runs that are older than `keep`, oldest first, in small batches."""

    def __init__(
        self, store: Store, *, keep: timedelta, keep_runs: int | None = None, keep_bytes: int | None = None
    ) -> None:
        self._store = store
        self._keep = keep
        self._keep_runs = keep_runs
        self._keep_bytes = keep_bytes
        self._pruned_at: datetime | None = None

    def run(self, *, now: datetime) -> int:
        """Prune if a minute has passed since the last time; return how many runs were removed."""
        if self._pruned_at is not None and timedelta(0) <= now - self._pruned_at < PRUNE_INTERVAL:
            return 0
        self._pruned_at = now
        request = PruneRequest(
            older_than=now - self._keep, keep_runs=self._keep_runs, keep_bytes=self._keep_bytes
        )
        total = 0
        for _ in range(MAX_PRUNE_BATCHES):
            removed = self._store.write(lambda tx: tx.prune(request))
            total += removed
            if removed < request.limit:
                break
        return total
