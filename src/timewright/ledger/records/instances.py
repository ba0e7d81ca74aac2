"""Heartbeats of instances; an instance without one for a week is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from timewright.core.moments import DAY, SECOND, ZERO
from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.store import SessionLock

INSTANCE = "instance"
RETENTION = 7 * DAY
MAX_INSTANCES = 1000
# An instance sends a heartbeat every 15 s; after three missed ones it is silent.
SILENT_AFTER = 50 * SECOND
MAX_PRUNED_ROWS = 1000


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """What another process of the same host needs to prove that a process has ended.

    A pid is reused, so its start time belongs to it; it only has a meaning on one boot of one host, within
    one pid namespace. `user` decides who can see the environment of its children.
    """

    boot: str
    pid_namespace: str
    started: int
    user: int


class InstanceRecord(Struct, frozen=True, kw_only=True):
    """The state of an instance; `clock_offset` is how far the store's clock is ahead of its own."""

    id: str
    host: str
    pid: int = 0
    version: str
    started_at: datetime
    capacity: int
    under_way: int = 0
    clock_offset: timedelta = ZERO
    stopped: bool = False
    admit: str = "any"
    shard: str = ""
    offer: str = ""
    """The id of what it offers."""
    process: ProcessIdentity | None = None
    """None where the host does not show its processes; then nobody can prove that it ended."""
    session: SessionLock | None = None
    """Its lock on the database server; None on SQLite and behind a pooler."""
    store_free_mb: int | None = None
    """Free space where the store is, in MiB; None if the store is on a server."""


class InstanceHeartbeat(Struct, frozen=True, kw_only=True):
    """An instance, and the time of its last heartbeat by the store's clock."""

    instance: InstanceRecord
    at: datetime


def record_heartbeat(tx: Transaction, instance: InstanceRecord, *, now: datetime) -> None:
    """Store the heartbeat of an instance, and delete instances whose last one is too old."""
    row = StoredObject(
        kind=INSTANCE,
        namespace=GLOBAL_NAMESPACE,
        name=instance.id,
        revision=1,
        body=msgspec.json.encode(instance),
        at=now,
    )
    tx.put_objects([row])
    # Pruning scans the first names, and the oldest instances have them: ids ascend with time.
    tx.prune_objects(INSTANCE, namespace=GLOBAL_NAMESPACE, older_than=now - RETENTION, limit=MAX_PRUNED_ROWS)


def is_alive(seen: InstanceHeartbeat, *, now: datetime) -> bool:
    """Return whether an instance sent a heartbeat recently and has not stopped."""
    return not seen.instance.stopped and now - seen.at <= SILENT_AFTER


def read_instances(tx: Transaction, *, limit: int) -> list[InstanceHeartbeat]:
    """The instances with a heartbeat, newest first."""
    rows = tx.get_objects(INSTANCE, namespace=GLOBAL_NAMESPACE, newest=limit)
    return [
        InstanceHeartbeat(instance=msgspec.json.decode(row.body, type=InstanceRecord), at=row.at)
        for row in rows
    ]
