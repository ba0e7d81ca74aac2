"""System health and instances: how late the engine is, which processes run, what waits for a person."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import DAY, ZERO
from timewright.ledger.leader import current_leader
from timewright.ledger.records.instances import MAX_INSTANCES, InstanceHeartbeat, is_alive, read_instances
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import Transaction

MAX_COUNT = 1000
# Per kind, across namespaces: counting this many rows takes a few milliseconds.
MAX_ROWS_SCANNED = 20_000

SHOWN_FOR = DAY


class GetHealth(OperationRequest, frozen=True, kw_only=True):
    """No parameters."""


class SystemHealth(Struct, frozen=True, kw_only=True):
    """The health of the system. Counts are those of the namespace and stop at 1000.

    `late_by` is how long the most overdue schedule has been waiting: more than a few seconds means that no
    engine is running, or that it cannot keep up. `leader` is the leading instance, if instances elect one;
    `policy_file` is the error of the policy file, because of which no queue leases anything.
    """

    alive: bool
    now: datetime
    next_wake: datetime | None
    late_by: timedelta
    next_lease_end: datetime | None
    parked_schedules: int
    parked_runs: int
    ready_runs: int
    leased_runs: int
    held_runs: int
    leader: str
    policy_file: str


@operations.read("health", scope="read", examples=({},))
def health(context: OperationContext, tx: Transaction, _request: GetHealth) -> SystemHealth:
    """Show whether the store answers, how late the engine is, and how much waits for a person."""
    now = context.now()
    file = context.queue_policy_file()
    error = file.error if file is not None else None
    wake = tx.read_pending_work().wake_at
    counts: Counter[str] = Counter()
    for one in tx.count_live(now=now, max_rows=MAX_ROWS_SCANNED):
        if one.namespace == context.namespace:
            counts[one.kind] += one.count
    counted = {kind: min(count, MAX_COUNT) for kind, count in counts.items()}
    return SystemHealth(
        alive=True,
        now=now,
        next_wake=wake,
        late_by=max(now - wake, ZERO) if wake is not None else ZERO,
        next_lease_end=tx.read_pending_work(with_lease_end=True).lease_expires_at,
        parked_schedules=counted.get("parked_schedule", 0),
        parked_runs=counted.get("parked", 0),
        ready_runs=min(counted.get("ready", 0) + counted.get("waiting", 0), MAX_COUNT),
        leased_runs=counted.get("leased", 0),
        held_runs=counted.get("held", 0),
        leader=current_leader(tx, now=now),
        policy_file=error.message if error is not None else "",
    )


class ListInstances(OperationRequest, frozen=True, kw_only=True):
    """List the instances that sent a heartbeat within a day."""


class InstanceSummary(Struct, frozen=True, kw_only=True):
    """An instance; `clock_offset` is how far the store's clock is ahead of the instance's.

    It admits due schedules of its `shard`, or of all; with `admit: leader`, only while it `leads`.
    """

    instance: str
    state: Literal["alive", "silent", "stopped"]
    host: str
    version: str
    started_at: datetime
    seen_at: datetime
    capacity: int
    under_way: int
    clock_offset: timedelta
    admit: str
    shard: str
    leads: bool


class InstanceList(Struct, frozen=True, kw_only=True):
    """The instances of the store, newest first."""

    instances: tuple[InstanceSummary, ...]


@operations.add("instance list", scope="read", examples=({},))
def list_instances(context: OperationContext, _request: ListInstances) -> InstanceList:
    """List the instances with their load and the time of their last heartbeat."""
    now = context.now()
    seen, leader = context.store.read(
        lambda tx: (read_instances(tx, limit=MAX_INSTANCES), current_leader(tx, now=now))
    )
    recent = (one for one in seen if now - one.at <= SHOWN_FOR)
    return InstanceList(instances=tuple(_to_summary(one, leader=leader, now=now) for one in recent))


def _to_summary(seen: InstanceHeartbeat, *, leader: str, now: datetime) -> InstanceSummary:
    one = seen.instance
    liveness: Literal["alive", "silent"] = "alive" if is_alive(seen, now=now) else "silent"
    return InstanceSummary(
        instance=one.id,
        state="stopped" if one.stopped else liveness,
        host=one.host,
        version=one.version,
        started_at=one.started_at,
        seen_at=seen.at,
        capacity=one.capacity,
        under_way=one.under_way,
        clock_offset=one.clock_offset,
        admit=one.admit,
        shard=one.shard,
        leads=one.id == leader,
    )
