"""Instances: the processes that run schedules, their state, load and clock offset."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import DAY
from timewright.ledger.leader import current_leader
from timewright.ledger.records.instances import MAX_INSTANCES, InstanceHeartbeat, is_alive, read_instances
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations

SHOWN_FOR = DAY


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


@operations.add("instance", "list", ListInstances, scope="read", examples=({},))
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
