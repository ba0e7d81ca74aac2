"""The policies of queues, named limits and calendars: kept with a revision, and in force at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from timewright.core.calendars import Calendar
from timewright.core.policies import QueuePolicy
from timewright.core.schedule import limit_gate, queue_gate
from timewright.errors import InvalidInput
from timewright.ledger.policy_file import PolicyFile
from timewright.ledger.replan import By
from timewright.ledger.shelf import CALENDAR, LIMIT, QUEUE
from timewright.ports import Store, Stored, Transaction

MOST_LEASES = 100_000


def set_queue_policy(
    store: Store, *, namespace: str, queue: str, policy: QueuePolicy, by: By, now: datetime
) -> None:
    """Keep a queue's policy, and let its ceiling hold from this commit on."""
    store.write(lambda tx: _keep_policies(tx, {queue: policy}, namespace=namespace, by=by, now=now))


def apply_policy_file(
    store: Store,
    file: PolicyFile,
    *,
    namespace: str = "default",
    by: By = By(origin="file"),  # noqa: B008 - a frozen value
    now: datetime,
) -> tuple[str, ...]:
    """Keep what a policy file says, all or nothing; gives back the queues whose policy that changed.

    A queue that the file named before and no longer does stands under the cautious policy again.
    """
    file.check()
    by = By(actor=by.actor, origin="file", reason=by.reason or file.path)

    def work(tx: Transaction) -> tuple[str, ...]:
        changed, gone, _ = _differences(tx, file, namespace=namespace)
        _keep_policies(tx, changed, namespace=namespace, by=by, now=now)
        _forget_policies(tx, gone, namespace=namespace, by=by, now=now)
        tx.put_meta(_named_by_file(namespace), json.dumps(sorted(file.policies)))
        return tuple(sorted({*changed, *gone}))

    differs = any(store.read(lambda tx: _differences(tx, file, namespace=namespace)))
    return store.write(work) if differs else ()


def set_limit(store: Store, *, namespace: str, name: str, most: int, by: By, now: datetime) -> None:
    """Keep a named limit, and let it hold from this commit on."""
    if not 1 <= most <= MOST_LEASES:
        raise InvalidInput(
            f"limit {name} of {most}",
            field="most",
            value=most,
            rule=f"1 to {MOST_LEASES}",
            fix=f"limit set {name} 5",
        )

    def work(tx: Transaction) -> None:
        keep_objects(tx, LIMIT, {name: {"most": most}}, namespace=namespace, by=by, now=now)
        tx.set_gates({limit_gate(namespace, name): most})

    store.write(work)


def put_calendar(store: Store, calendar: Calendar, *, by: By, now: datetime) -> None:
    """Keep a calendar; schedules that name it see it at their next decision."""
    rows = {calendar.name: calendar}
    store.write(lambda tx: keep_objects(tx, CALENDAR, rows, namespace=calendar.namespace, by=by, now=now))


def delete_calendar(tx: Transaction, calendar: Calendar, *, by: By, now: datetime) -> None:
    """Remove a calendar; whether anyone still names it is asked in the same transaction."""
    namespace, name = calendar.namespace, calendar.name
    tx.delete_object(CALENDAR, namespace=namespace, name=name)
    body = _body(calendar).decode()
    tx.add_audit([by.entry("calendar.delete", namespace=namespace, subject=name, now=now, before=body)])


def keep_objects(
    tx: Transaction, kind: str, values: Mapping[str, Any], *, namespace: str, by: By, now: datetime
) -> None:
    """Write named objects, each with its next revision and its line in the audit log."""
    if not values:
        return
    last = {row.name: row for row in tx.get_objects(kind, namespace=namespace, names=sorted(values))}
    revisions = {name: last[name].revision if name in last else 0 for name in values}
    bodies = {name: _body(value) for name, value in values.items()}
    tx.put_objects(
        [
            Stored(kind=kind, namespace=namespace, name=name, revision=revisions[name] + 1, body=body, at=now)
            for name, body in bodies.items()
        ],
        replaces=revisions,
    )
    tx.add_audit(
        [
            by.entry(
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


def _keep_policies(
    tx: Transaction, policies: Mapping[str, QueuePolicy], *, namespace: str, by: By, now: datetime
) -> None:
    keep_objects(tx, QUEUE, policies, namespace=namespace, by=by, now=now)
    tx.set_gates({queue_gate(namespace, name): policy.max_concurrent for name, policy in policies.items()})


def _differences(
    tx: Transaction, file: PolicyFile, *, namespace: str
) -> tuple[dict[str, QueuePolicy], list[str], bool]:
    """The policies that are kept otherwise, the queues no longer named, and whether others are named."""
    before = set(json.loads(tx.get_meta(_named_by_file(namespace)) or "[]"))
    names = sorted(before | file.policies.keys())
    rows = tx.get_objects(QUEUE, namespace=namespace, names=names) if names else ()
    kept = {row.name: row.body for row in rows}
    changed = {name: policy for name, policy in file.policies.items() if kept.get(name) != _body(policy)}
    return changed, sorted(before - file.policies.keys()), before != file.policies.keys()


def _forget_policies(tx: Transaction, names: Sequence[str], *, namespace: str, by: By, now: datetime) -> None:
    if not names:
        return
    kept = {row.name: row.body.decode() for row in tx.get_objects(QUEUE, namespace=namespace, names=names)}
    for name in kept:
        tx.delete_object(QUEUE, namespace=namespace, name=name)
    tx.set_gates({queue_gate(namespace, name): QueuePolicy().max_concurrent for name in kept})
    tx.add_audit(
        [
            by.entry(f"{QUEUE}.delete", namespace=namespace, subject=name, now=now, before=body)
            for name, body in kept.items()
        ]
    )


def _named_by_file(namespace: str) -> str:
    return f"policy_file:{namespace}"


def _body(value: Any) -> bytes:
    return msgspec.json.encode(value)
