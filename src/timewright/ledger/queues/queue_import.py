"""Imports queue entries of another program as runs, with their order, attempts, leases and parked state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.input.queue_file import QueueEntry
from timewright.core.run.build import build_standalone_run
from timewright.core.run.run import TERMINAL_STATES, Run, RunState
from timewright.errors import NotAllowed
from timewright.ledger.fact_builders import new_run_facts
from timewright.ledger.manual_runs import CreatedRuns
from timewright.ledger.queues.limits import LimitResolver
from timewright.ledger.replan import Actor
from timewright.ports import Grant, Ids, RunChange, Store, Transaction


def import_queue(
    store: Store,
    entries: Sequence[QueueEntry],
    *,
    namespace: str,
    queue: str,
    ids: Ids,
    by: Actor,
    now: datetime,
) -> CreatedRuns:
    """Create runs from entries, all or none; entries that were imported before are left as they are."""
    # New ids are ascending, so entries of the same priority and instant keep the order of their own ids.
    ordered = sorted(entries, key=lambda entry: (entry.enqueued_at, entry.id.encode()))
    made = {ids.new("run", now=now): entry for entry in ordered}
    runs = [
        _build_run(entry, run_id=run_id, namespace=namespace, queue=queue, by=by, now=now)
        for run_id, entry in made.items()
    ]

    def work(tx: Transaction) -> CreatedRuns:
        resolver = LimitResolver(tx)
        uses = resolver.of_queue(namespace, queue)
        new = tx.add_runs([resolver.resolve(run, uses) for run in runs])
        fresh = [run for run in runs if run.id in new]
        tx.change_runs([_with_attempts(run, made[run.id]) for run in fresh if made[run.id].attempts])
        leased = _lease_again(tx, fresh, made, now=now)
        tx.add_audit(
            [
                by.audit_entry(
                    "queue.import", namespace=namespace, subject=queue, now=now, after=f"{len(fresh)} entries"
                )
            ]
        )
        written = [leased.get(run.id) or _with_attempts_of(run, made[run.id]) for run in fresh]
        facts: list[Fact] = [
            fact
            for run in written
            if run.state not in TERMINAL_STATES
            for fact in new_run_facts(run, now=now)
        ]
        return CreatedRuns(runs=tuple(written), facts=tuple(facts))

    return store.write(work)


def _build_run(
    entry: QueueEntry, *, run_id: str, namespace: str, queue: str, by: Actor, now: datetime
) -> Run:
    """The row of an entry; its own id is the dedupe scope, so that it is imported once."""
    return build_standalone_run(
        run_id=run_id,
        namespace=namespace,
        dedupe_scope=f"import:{namespace}/{queue}/{entry.id}",
        planned_at=entry.enqueued_at,
        fire_at=entry.next_eligible_at or entry.enqueued_at,
        state=RunState.READY if entry.state is RunState.LEASED else entry.state,
        reason=entry.reason,
        queue=queue,
        priority=entry.priority,
        created_at=entry.enqueued_at,
        finished_at=now if entry.state in TERMINAL_STATES | {RunState.PARKED} else None,
        made_by=by.name,
        payload={"id": entry.id, **entry.payload},
    )


def _with_attempts_of(run: Run, entry: QueueEntry) -> Run:
    return replace(run, attempts=entry.attempts)


def _with_attempts(run: Run, entry: QueueEntry) -> RunChange:
    return RunChange(_with_attempts_of(run, entry), run.state, run.fence)


def _lease_again(
    tx: Transaction, runs: Sequence[Run], made: dict[str, QueueEntry], *, now: datetime
) -> dict[str, Run]:
    """Keep the leases of the entries, under their own ids, if the queue's limit allows it."""
    leased = [run for run in runs if made[run.id].state is RunState.LEASED]
    if not leased:
        return {}
    (limit_key,) = leased[0].limit_keys
    free = tx.get_limits([limit_key], lock=True)[limit_key].free
    if len(leased) > free:
        raise NotAllowed(
            f"{len(leased)} entries are leased, but the queue has {free} free slots",
            field="entries",
            value=len(leased),
            rule="an import respects the limit of the queue",
            fix="raise max_running first: queue policy set",
        )
    grants = [_grant(_with_attempts_of(run, made[run.id]), made[run.id], now=now) for run in leased]
    return {run.id: run for run in tx.lease_runs(grants)}


def _grant(run: Run, entry: QueueEntry, *, now: datetime) -> Grant:
    assert entry.lease_until is not None
    return Grant(
        run=run,
        lease_id=entry.lease_id or f"lease-of-{entry.id}",
        holder="import",
        leased_at=now,
        lease_until=entry.lease_until,
    )
