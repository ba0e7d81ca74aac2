"""Lease entries from a queue, reclaim expired leases, drain and purge a queue, and what happened lately."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.facts import LeaseLost
from timewright.core.moments import DAY, SECOND, check_duration, format_duration
from timewright.core.run.run import Run, RunState, Succeeded, run_idempotency_key
from timewright.core.target import Handoff
from timewright.errors import InvalidInput
from timewright.ledger.lease import MAX_PLANNED_RUNS, Lease, add_checkpoints, lease_ready
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import cancel, reclaim, settle_results
from timewright.ledger.workflow_runs.records import workflow_context
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.queues.policies import list_queue_names
from timewright.operations.registry import ObjectName, WriteRequest, answer_from, operations
from timewright.operations.views import RunSummary, summarize_runs
from timewright.ports import RunFilter, Transaction
from timewright.ports.rows import QueuedRuns

MAX_LEASED = 1000
MAX_DRAINED = 1000
RECLAIM_BATCH_SIZE = 1000

MAX_PURGED = 1000
MAX_COUNTED = 1000
ACTIVITY_PERIOD = timedelta(minutes=15)


class LeaseEntries(WriteRequest, frozen=True, kw_only=True):
    """Which queue, how many entries, the holder, and the lease length; the default length is the policy's."""

    queue: ObjectName
    limit: Annotated[int, Meta(ge=0, le=MAX_LEASED)] = 1
    holder: Annotated[str, Meta(max_length=255)] = ""
    length: timedelta | None = None


class LeaseDetail(Struct, frozen=True, kw_only=True):
    """A leased run: its payload, when the lease ends, and the fence to report with."""

    run: str
    lease: str
    fence: int
    attempt: int
    key: str
    queue: str
    schedule: str
    priority: int
    planned_at: datetime
    lease_until: datetime
    missed: int
    payload: Any
    metadata: dict[str, Any]
    checkpoint: Any = None
    """What an earlier lease of the run saved with `queue renew`."""


class LeasedEntries(Struct, frozen=True, kw_only=True):
    """The leased entries; `more` means that further entries could be leased now."""

    leases: tuple[LeaseDetail, ...]
    more: bool


class ReclaimLeases(WriteRequest, frozen=True, kw_only=True):
    """Which queue to show in the answer; expired leases of all queues are reclaimed."""

    queue: str = ""


class ReclaimedRuns(Struct, frozen=True, kw_only=True):
    """The runs of this namespace whose expired lease was reclaimed."""

    runs: tuple[RunSummary, ...]


class DrainQueue(WriteRequest, frozen=True, kw_only=True):
    """Which queue, and how many entries to mark as succeeded in order."""

    queue: ObjectName
    limit: Annotated[int, Meta(ge=1, le=MAX_DRAINED)] = 1


class DrainResult(Struct, frozen=True, kw_only=True):
    """The entries that were marked as succeeded, and how many remain in the queue."""

    drained: tuple[RunSummary, ...]
    remaining: int


@operations.add(
    "queue lease",
    scope="trigger",
    examples=({"queue": "mail"}, {"queue": "mail", "limit": 5, "holder": "worker-7", "length": "2m"}),
)
def lease_entries(context: OperationContext, request: LeaseEntries) -> LeasedEntries:
    """Lease entries within the queue's concurrency limit; expired leases are reclaimed first."""
    now = context.now()
    if request.length is not None and check_duration(request.length, field="length") < SECOND:
        raise InvalidInput(
            f"a lease of {format_duration(request.length)} is too short",
            field="length",
            value=format_duration(request.length),
            rule="at least 1s",
            fix="length: 5m",
        )
    _reclaim_expired(context, now=now)
    found = lease_ready(
        context.store,
        ids=context.ids,
        holder=request.holder or context.by.name,
        capacity=request.limit,
        now=now,
        handoff=True,
        queue=(context.namespace, request.queue),
        length=request.length,
        policy_file=context.queue_policy_file(),
    )
    context.notify(found.facts)
    leases = found.leases
    if any(lease.run.fence > 1 for lease in leases):
        leases = tuple(context.store.read(lambda tx: add_checkpoints(tx, found.leases)))
    return LeasedEntries(leases=tuple(_to_detail(lease) for lease in leases), more=found.more)


def _reclaim_expired(context: OperationContext, *, now: datetime) -> None:
    """Reclaim expired leases; writes only if there are any."""
    ends_at = context.store.read(lambda tx: tx.read_pending_work(with_lease_end=True).lease_expires_at)
    if ends_at is not None and ends_at <= now:
        context.notify(reclaim(context.store, now=now, limit=RECLAIM_BATCH_SIZE).facts)


@operations.add("queue reclaim", scope="trigger", examples=({}, {"queue": "mail"}))
def reclaim_leases(context: OperationContext, request: ReclaimLeases) -> ReclaimedRuns:
    """Reclaim every expired lease; each counts as a failed attempt."""
    now = context.now()
    settled = reclaim(context.store, now=now, limit=RECLAIM_BATCH_SIZE)
    context.notify(settled.facts)
    lost = [fact.run_id for fact in settled.facts if isinstance(fact, LeaseLost)]

    def work(tx: Transaction) -> ReclaimedRuns:
        runs = [run for run in tx.get_runs(lost).values() if run.namespace == context.namespace]
        shown = [run for run in runs if request.queue in ("", run.queue)]
        return ReclaimedRuns(runs=summarize_runs(tx, shown))

    return context.store.read(work)


@operations.write(
    "queue drain", scope="trigger", examples=({"queue": "mail"}, {"queue": "mail", "limit": 10})
)
def drain_queue(context: OperationContext, tx: Transaction, request: DrainQueue) -> DrainResult:
    """Lease and complete entries in order, within the concurrency limit and backoff."""
    now = context.now()
    done: list[str] = []
    _reclaim_expired(context, now=now)
    while len(done) < request.limit:
        found = lease_ready(
            context.store,
            ids=context.ids,
            holder=context.by.name,
            capacity=request.limit - len(done),
            now=now,
            handoff=True,
            queue=(context.namespace, request.queue),
            policy_file=context.queue_policy_file(),
        )
        context.notify(found.facts)
        if not found.leases:
            break
        answers = [
            AttemptResult(run=lease.run, outcome=Succeeded(), started_at=now) for lease in found.leases
        ]
        context.notify(settle_results(context.store, answers, now=now).facts)
        done += [lease.run.id for lease in found.leases]
    return _drain_result(tx, context.namespace, request.queue, done)


def _to_detail(lease: Lease) -> LeaseDetail:
    run, schedule, target = lease.run, lease.schedule, lease.terms.target
    assert run.lease_until is not None
    default_payload = target.payload if isinstance(target, Handoff) else None
    return answer_from(
        LeaseDetail,
        run,
        run=run.id,
        lease=run.lease_id,
        attempt=run.attempts + 1,
        key=run_idempotency_key(run),
        schedule=schedule.name if schedule is not None else "",
        payload=default_payload if run.payload is None or run.parent else run.payload,
        metadata=schedule.metadata if schedule is not None else _step_metadata(run),
        checkpoint=lease.checkpoint,
    )


def _step_metadata(run: Run) -> dict[str, Any]:
    """Which step of which workflow an entry is, if it is one."""
    context = workflow_context(run) if run.parent else None
    return {"workflow": context.workflow, "step": context.step} if context is not None else {}


def _drain_result(tx: Transaction, namespace: str, queue: str, done: list[str]) -> DrainResult:
    runs = tx.get_runs(done)
    remaining = tx.select(QueuedRuns(namespace, queue, limit=MAX_PLANNED_RUNS))
    waiting = [run for run in remaining if run.state is RunState.READY]
    drained = summarize_runs(tx, [runs[run_id] for run_id in done])
    return DrainResult(drained=drained, remaining=len(waiting))


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
    rows = tx.select(QueuedRuns(context.namespace, request.queue, limit=MAX_PLANNED_RUNS))
    waiting = [run for run in rows if run.state in states]
    by = context.by
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
    newest = tx.find(recent).rows
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
    if queue not in known and not tx.select(QueuedRuns(namespace, queue, limit=1)):
        raise not_found("queue", queue, known, list_command="queue list")
