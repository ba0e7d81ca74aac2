"""Instances: who runs what is due, whether each is alive, how full it is, how true its clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import SECOND
from timewright.ledger.leader import leader_of
from timewright.ledger.roster import Seen, roster
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations

MOST = 1000
# An instance tells of itself every 15 s; whoever was not heard three times over is silent.
SILENT = 50 * SECOND


class List(Request, frozen=True, kw_only=True):
    """Which instances: all that told of themselves within a day."""


class InstanceRow(Struct, frozen=True, kw_only=True):
    """An instance; `clock_offset` is how far the store's clock is ahead of its own.

    It decides what is due of its `shard`, or of everything; with `admit: leader`, only while it `leads`.
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


class Instances(Struct, frozen=True, kw_only=True):
    """The instances of the store, the youngest first."""

    instances: tuple[InstanceRow, ...]


@operations.add("instance", "list", List, scope="read", examples=({},))
def list_instances(context: Context, _ask: List) -> Instances:
    """List the instances that run what is due, with how full each is and when it was last heard of."""
    now = context.now()
    seen, leader = context.store.read(lambda tx: (roster(tx, limit=MOST), leader_of(tx, now=now)))
    return Instances(instances=tuple(_row(one, leader=leader, now=now) for one in seen))


def is_alive(seen: Seen, *, now: datetime) -> bool:
    """Whether an instance was heard of lately and has not said that it is gone."""
    return not seen.instance.stopped and now - seen.at <= SILENT


def _row(seen: Seen, *, leader: str, now: datetime) -> InstanceRow:
    one = seen.instance
    silent: Literal["alive", "silent"] = "alive" if is_alive(seen, now=now) else "silent"
    return InstanceRow(
        instance=one.id,
        state="stopped" if one.stopped else silent,
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
