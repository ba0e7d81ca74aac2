"""What happened lately in a queue, and the purge of what waits in it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.run.run import Run, RunState
from timewright.ledger.lease import MAX_PLANNED_RUNS
from timewright.ledger.settle import cancel
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.queues.policies import list_queue_names
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.ports import RunFilter, Transaction

MAX_PURGED = 1000
MAX_COUNTED = 1000
ACTIVITY_PERIOD = timedelta(minutes=15)
DAY = timedelta(days=1)


class PurgeQueue(WriteRequest, frozen=True, kw_only=True):
    """Which queue to empty; `parked` includes the parked entries."""

    queue: ObjectName
    parked: bool = False


class PurgedQueue(Struct, frozen=True, kw_only=True):
    """How many entries were cancelled; `more` if others still wait, because one call cancels at most 1000."""

    queue: str
    cancelled: int
    more: bool


class QueueActivity(Struct, frozen=True, kw_only=True):
    """What happened in a queue since an instant, counted in its newest 1000 entries of a day."""

    since: datetime
    added: int
    succeeded: int
    failed: int
    last_leased_at: datetime | None
    """When an entry was last leased, as far as it is known."""


@operations.write(
    "queue purge", scope="write", examples=({"queue": "mail", "reason": "sent twice", "dry_run": True},)
)
def purge_queue(context: OperationContext, tx: Transaction, request: PurgeQueue) -> PurgedQueue:
    """Cancel the entries of a queue that have not started; leased ones continue."""
    now = context.now()
    states = {RunState.READY, RunState.HELD} | ({RunState.PARKED} if request.parked else set())
    require_queue(tx, context.namespace, request.queue)
    rows = tx.queue_runs(context.namespace, request.queue, limit=MAX_PLANNED_RUNS)
    waiting = [run for run in rows if run.state in states]
    by = context.actor_with_reason(request.reason)
    for run in waiting[:MAX_PURGED]:
        context.notify(
            cancel(context.store, run.id, actor=by.name, origin=by.origin, reason=by.reason, now=now)
        )
    more = len(waiting) > MAX_PURGED or len(rows) >= MAX_PLANNED_RUNS
    return PurgedQueue(queue=request.queue, cancelled=len(waiting[:MAX_PURGED]), more=more)


def read_activity(
    tx: Transaction, namespace: str, queue: str, rows: Iterable[Run], *, now: datetime
) -> QueueActivity:
    """Count what was added and ended in a queue lately."""
    since = now - ACTIVITY_PERIOD
    recent = RunFilter(namespace=namespace, queue=queue, since=now - DAY, limit=MAX_COUNTED)
    newest = tx.find_runs(recent).rows
    ended = [run for run in newest if run.finished_at is not None and run.finished_at >= since]
    leased = [at for run in (*rows, *newest) if (at := run.leased_at or run.started_at) is not None]
    return QueueActivity(
        since=since,
        added=sum(run.created_at >= since for run in newest),
        succeeded=sum(run.state is RunState.SUCCEEDED for run in ended),
        failed=sum(run.state is RunState.FAILED for run in ended),
        last_leased_at=max(leased, default=None),
    )


def require_queue(tx: Transaction, namespace: str, queue: str) -> None:
    """Raise NotFound if there is no such queue."""
    known = list_queue_names(tx, namespace)
    if queue not in known and not tx.queue_runs(namespace, queue, limit=1):
        raise not_found("queue", queue, known, list_command="queue list")
