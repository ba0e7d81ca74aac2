"""Named limits: stored with a revision, in force at once, and resolved once for every new run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from timewright.core.policies.limits import (
    LIMIT,
    Limit,
    LimitUse,
    decode_limit,
    limit_names,
    resolve_limit_keys,
)
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule, own_limits
from timewright.errors import TimewrightError
from timewright.ledger.lookups import QueueKey, load_queue_policies
from timewright.ports import Store, StoredObject, Transaction

if TYPE_CHECKING:
    from timewright.ledger.replan import Actor


class LimitResolver:
    """The limits of new runs, with the values of their keys. Reads each definition once per transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._limits: dict[QueueKey, Limit | None] = {}
        self._queues: dict[QueueKey, tuple[LimitUse, ...]] = {}

    def of_schedule(self, schedule: Schedule) -> tuple[LimitUse, ...]:
        """The limits of the runs of a schedule: its own and those of its queue."""
        if not schedule.queue:
            return schedule.limits
        return (*schedule.limits, *self.of_queue(schedule.namespace, schedule.queue))

    def has_fixed_keys(self, schedule: Schedule) -> bool:
        """Whether every run of a schedule has the limit keys of the schedule: none depends on the run."""
        if len(self.of_schedule(schedule)) > len(schedule.limits):
            return False
        limits = self._load(schedule.namespace, limit_names(schedule.limits))
        return not any(limit.is_grouped for limit in limits.values())

    def of_queue(self, namespace: str, queue: str) -> tuple[LimitUse, ...]:
        """The limits of the entries of a queue; none if its policy cannot be read: it leases nothing then."""
        key = (namespace, queue)
        if key not in self._queues:
            policy = load_queue_policies(self._tx, [key]).get(key)
            self._queues[key] = policy.limits if policy is not None else ()
        return self._queues[key]

    def resolve(
        self, run: Run, uses: Sequence[LimitUse], *, schedule: Schedule | None = None, payload: Any = None
    ) -> Run:
        """The run with its limit keys; one that was skipped has none."""
        if not uses or run.state not in (RunState.READY, RunState.HELD):
            return run
        names = limit_names(uses)
        limits = self._load(run.namespace, names)
        keys = resolve_limit_keys(run, uses, limits, schedule=schedule, payload=payload)
        return replace(run, limit_keys=keys)

    def resolve_all(self, runs: Iterable[Run], schedule: Schedule) -> list[Run]:
        """The runs of one schedule with their limit keys."""
        uses = self.of_schedule(schedule)
        return [self.resolve(run, uses, schedule=schedule) for run in runs]

    def _load(self, namespace: str, names: Sequence[str]) -> dict[str, Limit]:
        missing = [name for name in names if (namespace, name) not in self._limits]
        if missing:
            self._limits |= {(namespace, name): None for name in missing}
            for row in self._tx.get_objects(LIMIT, namespace=namespace, names=missing):
                self._limits[namespace, row.name] = _readable(row)
        found = ((name, self._limits[namespace, name]) for name in names)
        return {name: limit for name, limit in found if limit is not None}


def save_limits(
    tx: Transaction, limits: Iterable[Limit], *, namespace: str, by: Actor, now: datetime
) -> None:
    """Store named limits that differ from the stored ones; they are in force from this commit on."""
    wanted = {limit.name: limit for limit in limits}
    if not wanted:
        return
    stored = tx.get_objects(LIMIT, namespace=namespace, names=sorted(wanted))
    same = {row.name for row in stored if _readable(row) == wanted[row.name]}
    changed = {name: limit for name, limit in wanted.items() if name not in same}
    save_objects(tx, LIMIT, changed, namespace=namespace, by=by, now=now)


def set_limit(store: Store, limit: Limit, *, namespace: str, by: Actor, now: datetime) -> None:
    """Store one named limit; it is in force from this commit on."""
    store.write(lambda tx: save_limits(tx, [limit], namespace=namespace, by=by, now=now))


def remove_limit(tx: Transaction, name: str, *, namespace: str, by: Actor, now: datetime) -> bool:
    """Delete a named limit; runs that still name it start one at a time. Returns whether it existed."""
    return bool(delete_objects(tx, LIMIT, [name], namespace=namespace, by=by, now=now))


def save_own_limits(
    tx: Transaction, schedules: Sequence[Schedule], *, by: Actor, now: datetime, had: int | None = None
) -> None:
    """Put the `max_running` of schedules into force, and store the limits that they define themselves.

    `had` is the `max_running` of an earlier revision.
    """
    tx.set_limits(own_limits(one for one in schedules if one.max_running or had))
    for schedule in schedules:
        inline = [use for use in schedule.limits if isinstance(use, Limit)]
        if inline:
            save_limits(tx, inline, namespace=schedule.namespace, by=by, now=now)


def save_objects(
    tx: Transaction, kind: str, values: Mapping[str, Any], *, namespace: str, by: Actor, now: datetime
) -> None:
    """Write named objects, each with its next revision and an audit entry."""
    if not values:
        return
    last = {row.name: row for row in tx.get_objects(kind, namespace=namespace, names=sorted(values))}
    revisions = {name: last[name].revision if name in last else 0 for name in values}
    rows = [
        StoredObject.of(kind, name, value, namespace=namespace, revision=revisions[name] + 1, at=now)
        for name, value in values.items()
    ]
    tx.put_objects(rows, replaces=revisions)
    tx.add_audit(
        [
            by.audit_entry(
                f"{kind}.put",
                namespace=namespace,
                subject=row.name,
                now=now,
                before=last[row.name].body.decode() if row.name in last else "",
                after=row.body.decode(),
            )
            for row in rows
        ]
    )


def delete_objects(
    tx: Transaction, kind: str, names: Sequence[str], *, namespace: str, by: Actor, now: datetime
) -> list[str]:
    """Delete named objects, each with an audit entry; returns the names of those that existed."""
    stored = tx.get_objects(kind, namespace=namespace, names=names) if names else []
    for row in stored:
        tx.delete_object(kind, namespace=namespace, name=row.name)
    tx.add_audit(
        [
            by.audit_entry(
                f"{kind}.delete", namespace=namespace, subject=row.name, now=now, before=row.body.decode()
            )
            for row in stored
        ]
    )
    return [row.name for row in stored]


def _readable(row: StoredObject) -> Limit | None:
    try:
        return decode_limit(row.body)
    except (msgspec.MsgspecError, TimewrightError):
        return None
