"""Queue policies, named limits and calendars: stored with a revision, in force at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from timewright.core.calendars import Calendar
from timewright.core.policies.policies import QueuePolicy
from timewright.core.schedule.schedule import named_limit_key, queue_limit_key
from timewright.errors import InvalidInput
from timewright.ledger.lookups import CALENDAR, LIMIT, QUEUE
from timewright.ledger.queues.policy_file import PolicyFile
from timewright.ledger.replan import Actor
from timewright.ports import Store, StoredObject, Transaction

MAX_LIMIT = 100_000


def set_queue_policy(
    store: Store, *, namespace: str, queue: str, policy: QueuePolicy, by: Actor, now: datetime
) -> None:
    """Store a queue's policy; its limit is in force from this commit on."""
    store.write(lambda tx: _save_policies(tx, {queue: policy}, namespace=namespace, by=by, now=now))


def apply_policy_file(
    store: Store,
    file: PolicyFile,
    *,
    namespace: str = "default",
    by: Actor = Actor(origin="file"),  # noqa: B008 - a frozen value
    now: datetime,
) -> tuple[str, ...]:
    """Store the policies of a file, all or none; return the queues whose policy changed.

    A queue that the file no longer names gets the default policy.
    """
    file.check()
    by = Actor(name=by.name, origin="file", reason=by.reason or file.path)

    def work(tx: Transaction) -> tuple[str, ...]:
        changed, dropped, _ = _differences(tx, file, namespace=namespace)
        _save_policies(tx, changed, namespace=namespace, by=by, now=now)
        delete_policies(tx, dropped, namespace=namespace, by=by, now=now)
        tx.put_meta(_file_queues_key(namespace), json.dumps(sorted(file.policies)))
        return tuple(sorted({*changed, *dropped}))

    differs = any(store.read(lambda tx: _differences(tx, file, namespace=namespace)))
    return store.write(work) if differs else ()


def set_limit(store: Store, *, namespace: str, name: str, capacity: int, by: Actor, now: datetime) -> None:
    """Store a named limit; it is in force from this commit on."""
    if not 1 <= capacity <= MAX_LIMIT:
        raise InvalidInput(
            f"limit {name} cannot be {capacity}",
            field="max",
            value=capacity,
            rule=f"a limit is 1 to {MAX_LIMIT}",
            fix=f"limit set {name} 5",
        )

    def work(tx: Transaction) -> None:
        save_objects(tx, LIMIT, {name: {"capacity": capacity}}, namespace=namespace, by=by, now=now)
        tx.set_limits({named_limit_key(namespace, name): capacity})

    store.write(work)


def put_calendar(store: Store, calendar: Calendar, *, by: Actor, now: datetime) -> None:
    """Store a calendar; the schedules that name it use it from their next decision on."""
    rows = {calendar.name: calendar}
    store.write(lambda tx: save_objects(tx, CALENDAR, rows, namespace=calendar.namespace, by=by, now=now))


def delete_calendar(tx: Transaction, calendar: Calendar, *, by: Actor, now: datetime) -> None:
    """Delete a calendar; the caller has checked in this transaction that no schedule names it."""
    namespace, name = calendar.namespace, calendar.name
    tx.delete_object(CALENDAR, namespace=namespace, name=name)
    body = _encode(calendar).decode()
    tx.add_audit([by.audit_entry("calendar.delete", namespace=namespace, subject=name, now=now, before=body)])


def save_objects(
    tx: Transaction, kind: str, values: Mapping[str, Any], *, namespace: str, by: Actor, now: datetime
) -> None:
    """Write named objects, each with its next revision and an audit entry."""
    if not values:
        return
    last = {row.name: row for row in tx.get_objects(kind, namespace=namespace, names=sorted(values))}
    revisions = {name: last[name].revision if name in last else 0 for name in values}
    bodies = {name: _encode(value) for name, value in values.items()}
    tx.put_objects(
        [
            StoredObject(
                kind=kind, namespace=namespace, name=name, revision=revisions[name] + 1, body=body, at=now
            )
            for name, body in bodies.items()
        ],
        replaces=revisions,
    )
    tx.add_audit(
        [
            by.audit_entry(
                f"{kind}.put",
                namespace=namespace,
                subject=name,
                now=now,
                before=last[name].body.decode() if name in last else "",
                after=body.decode(),
            )
            for name, body in bodies.items()
        ]
    )


def _save_policies(
    tx: Transaction, policies: Mapping[str, QueuePolicy], *, namespace: str, by: Actor, now: datetime
) -> None:
    save_objects(tx, QUEUE, policies, namespace=namespace, by=by, now=now)
    tx.set_limits(
        {queue_limit_key(namespace, name): policy.max_concurrent for name, policy in policies.items()}
    )


def _differences(
    tx: Transaction, file: PolicyFile, *, namespace: str
) -> tuple[dict[str, QueuePolicy], list[str], bool]:
    """The policies that differ from the stored ones, the dropped queues, and whether names changed."""
    before = set(json.loads(tx.get_meta(_file_queues_key(namespace)) or "[]"))
    names = sorted(before | file.policies.keys())
    rows = tx.get_objects(QUEUE, namespace=namespace, names=names) if names else ()
    kept = {row.name: row.body for row in rows}
    changed = {name: policy for name, policy in file.policies.items() if kept.get(name) != _encode(policy)}
    return changed, sorted(before - file.policies.keys()), before != file.policies.keys()


def delete_policies(
    tx: Transaction, names: Sequence[str], *, namespace: str, by: Actor, now: datetime
) -> None:
    if not names:
        return
    kept = {row.name: row.body.decode() for row in tx.get_objects(QUEUE, namespace=namespace, names=names)}
    for name in kept:
        tx.delete_object(QUEUE, namespace=namespace, name=name)
    tx.set_limits({queue_limit_key(namespace, name): QueuePolicy().max_concurrent for name in kept})
    tx.add_audit(
        [
            by.audit_entry(f"{QUEUE}.delete", namespace=namespace, subject=name, now=now, before=body)
            for name, body in kept.items()
        ]
    )


def _file_queues_key(namespace: str) -> str:
    return f"policy_file:{namespace}"


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)
