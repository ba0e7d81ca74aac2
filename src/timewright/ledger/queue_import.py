"""Entries of a queue as another program kept them become runs: same order, attempts, leases and park."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.decision import Source
from timewright.core.facts import Fact
from timewright.core.queue_file import QueueEntry
from timewright.core.run import TERMINAL, Run, RunState
from timewright.core.schedule import queue_gate
from timewright.errors import NotAllowed
from timewright.ledger.by_hand import Made
from timewright.ledger.replan import By
from timewright.ledger.telling import new_run
from timewright.ports import Change, Grant, Ids, Store, Transaction


def import_queue(
    store: Store,
    entries: Sequence[QueueEntry],
    *,
    namespace: str,
    queue: str,
    ids: Ids,
    by: By,
    now: datetime,
) -> Made:
    """Make runs of entries, all or none; an entry that was imported before is left as it is now."""
    # New ids rise, so entries of one priority and instant stay in the order of their own ids.
    ordered = sorted(entries, key=lambda entry: (entry.enqueued_at, entry.id.encode()))
    made = {ids.new("run", now=now): entry for entry in ordered}
    runs = [
        _run_of(entry, run_id=run_id, namespace=namespace, queue=queue, by=by, now=now)
        for run_id, entry in made.items()
    ]

    def work(tx: Transaction) -> Made:
        new = tx.add_runs(runs)
        fresh = [run for run in runs if run.id in new]
        tx.change_runs([_with_attempts(run, made[run.id]) for run in fresh if made[run.id].attempts])
        leased = _lease_again(tx, fresh, made, now=now)
        tx.add_audit(
            [
                by.entry(
                    "queue.import", namespace=namespace, subject=queue, now=now, after=f"{len(fresh)} entries"
                )
            ]
        )
        written = [leased.get(run.id) or _as_written(run, made[run.id]) for run in fresh]
        facts: list[Fact] = [
            fact for run in written if run.state not in TERMINAL for fact in new_run(run, now=now)
        ]
        return Made(runs=tuple(written), facts=tuple(facts))

    return store.write(work)


def _run_of(entry: QueueEntry, *, run_id: str, namespace: str, queue: str, by: By, now: datetime) -> Run:
    """The row of an entry; its own id makes the lane, so that it is imported once."""
    return Run(
        id=run_id,
        namespace=namespace,
        lane=f"import:{namespace}/{queue}/{entry.id}",
        planned_at=entry.enqueued_at,
        fire_at=entry.next_eligible_at or entry.enqueued_at,
        state=RunState.READY if entry.state is RunState.LEASED else entry.state,
        reason=entry.reason,
        source=Source.MANUAL,
        queue=queue,
        gates=(queue_gate(namespace, queue),),
        priority=entry.priority,
        alone=False,
        handoff=True,
        created_at=entry.enqueued_at,
        finished_at=now if entry.state in TERMINAL | {RunState.PARKED} else None,
        made_by=by.actor,
        payload={"id": entry.id, **entry.payload},
    )


def _as_written(run: Run, entry: QueueEntry) -> Run:
    return replace(run, attempts=entry.attempts)


def _with_attempts(run: Run, entry: QueueEntry) -> Change:
    return Change(_as_written(run, entry), run.state, run.fence)


def _lease_again(
    tx: Transaction, runs: Sequence[Run], made: dict[str, QueueEntry], *, now: datetime
) -> dict[str, Run]:
    """Leases that were out stay out, under their own ids, if the queue's ceiling has room for them."""
    out = [run for run in runs if made[run.id].state is RunState.LEASED]
    if not out:
        return {}
    (gate,) = out[0].gates
    room = tx.hold_gates([gate])[gate].free
    if len(out) > room:
        raise NotAllowed(
            f"{len(out)} entries are leased and the queue has room for {room}",
            field="entries",
            value=len(out),
            rule="a ceiling is never passed, also not by an import",
            fix="queue policy set with a higher max_concurrent first",
        )
    grants = [_grant(_as_written(run, made[run.id]), made[run.id], now=now) for run in out]
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
