"""Renew, complete and release leases, and reset parked entries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from timewright.core.budgets.costs import Cost
from timewright.core.moments import check_duration
from timewright.core.run.run import Attempt, Failed, Outcome, Released, Run, RunState, Succeeded
from timewright.core.sensitive_keys import redact_text
from timewright.core.target import Workflow
from timewright.errors import InvalidInput, NotAllowed, NotFound, Stale
from timewright.ledger.lease import renew_leases
from timewright.ledger.lookups import load_terms
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import reset, settle_results
from timewright.ledger.workflow_runs.control import as_reported_run, record_executor_start
from timewright.ledger.workflow_runs.records import HELD_BY_WAIT, HELD_BY_WORKFLOW
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_run
from timewright.operations.registry import (
    LEASE,
    LEASED_RUN,
    PARKED_RUN,
    RunAction,
    Text,
    WriteRequest,
    operations,
)
from timewright.operations.views import RunSummary, summarize_runs
from timewright.ports import Renewal, Transaction
from timewright.ports.attempt_output import MAX_CHECKPOINT_BYTES, MAX_NOTE_CHARS, RunProgress
from timewright.ports.rows import LeasedRuns

Fence = Annotated[int, Meta(ge=1)]


class LeaseRequest(WriteRequest, frozen=True, kw_only=True):
    """Which lease: by its id, or by its run and fence."""

    lease: str = ""
    run: str = ""
    fence: Fence | None = None


class RenewLease(LeaseRequest, frozen=True, kw_only=True):
    """Which lease to renew, and for how long from now; the default is the lease's original length.

    `progress` (0 to 1), `note` and `checkpoint` say how far the work is. The next lease of the run gets the
    checkpoint.
    """

    length: timedelta | None = None
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: Annotated[str, Meta(max_length=MAX_NOTE_CHARS)] = ""
    checkpoint: Any = None


class RenewedLease(Struct, frozen=True, kw_only=True):
    """A renewed lease; `cancel_at` is set if the run was cancelled and should stop."""

    run: str
    fence: int
    lease_until: datetime
    cancel_at: datetime | None


class CompleteLease(LeaseRequest, frozen=True, kw_only=True):
    """Which lease succeeded, its result and its cost."""

    result: Any = None
    cost: Cost | None = None


class ReleaseLease(LeaseRequest, frozen=True, kw_only=True):
    """Which lease to release; `failed` counts an attempt, and the run waits for its backoff or is parked."""

    failed: bool = False
    error: Text = ""
    cost: Cost | None = None


class ReportedRun(Struct, frozen=True, kw_only=True):
    """A run after a report about its lease."""

    run: RunSummary


@operations.write(
    "queue renew",
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1},
        {"lease": LEASE, "length": "10m"},
        {"run": LEASED_RUN, "fence": 1, "progress": 0.4, "note": "page 12", "checkpoint": {"page": 12}},
    ),
)
def renew_lease(context: OperationContext, tx: Transaction, request: RenewLease) -> RenewedLease:
    """Renew a lease while its work continues; the answer tells whether the run was cancelled."""
    now = context.now()
    run = _find_held(tx, context.namespace, *_run_and_fence(tx, context.namespace, request))
    length = request.length
    if length is None:
        length = load_terms(tx, [run])[run.id].terms.lease.length
    until = now + check_duration(length, field="length")
    renewed_ids, _ = renew_leases(context.store, [Renewal(run.id, run.fence, until)])
    if not renewed_ids:
        raise _stale_error(run.id, run.fence)
    report = _progress_of(request, run, now=now)
    if report is not None:
        tx.put_run_rows([report])
    renewed = tx.get_runs([run.id])[run.id]
    return RenewedLease(
        run=run.id,
        fence=run.fence,
        lease_until=renewed.lease_until or until,
        cancel_at=renewed.cancel_at,
    )


@operations.add(
    "queue complete",
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1, "result": {"sent": 1}, "cost": {"tokens": 1200, "money": "0.02"}},
        {"lease": LEASE},
    ),
)
def complete_lease(context: OperationContext, request: CompleteLease) -> ReportedRun:
    """Complete a lease as succeeded."""
    return _settle(context, request, Succeeded(result=request.result, cost=request.cost))


@operations.add(
    "queue release",
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1},
        {"lease": LEASE, "failed": True, "error": "mailbox is full"},
    ),
)
def release_lease(context: OperationContext, request: ReleaseLease) -> ReportedRun:
    """Release a lease: the run is ready again, or with `failed`, the attempt counts as failed."""
    error = redact_text(request.error or request.reason)
    outcome: Outcome = Released(reason=error, cost=request.cost)
    if request.failed:
        outcome = Failed(error=error or "released as failed", cost=request.cost)
    return _settle(context, request, outcome)


@operations.write("queue reset", scope="trigger", examples=({"run": PARKED_RUN, "reason": "fixed"},))
def reset_entry(context: OperationContext, tx: Transaction, request: RunAction) -> ReportedRun:
    """Reset the attempts of a parked entry, so that it can start again."""
    now = context.now()
    run = find_run(tx, context.namespace, request.run)
    by = context.by
    context.notify(reset(context.store, run.id, actor=by.name, origin=by.origin, reason=by.reason, now=now))
    return _reported(context, run.id)


def settle_lease(context: OperationContext, run_id: str, fence: int, outcome: Outcome) -> ReportedRun:
    """Settle a live lease; the same outcome again changes nothing, another one raises Stale."""
    if getattr(outcome, "artifacts", ()):
        raise InvalidInput(
            "a report cannot refer to artifacts",
            field="outcome.artifacts",
            rule="an artifact is written by a function that this scheduler runs",
            fix="report the address of the data as the result",
        )
    now = context.now()

    def read(tx: Transaction) -> tuple[Run, Run | None]:
        run = find_run(tx, context.namespace, run_id)
        return run, as_reported_run(tx, run) if _is_held(tx, run, fence) else None

    run, live = context.store.read(read)
    if live is None:
        if not context.store.read(lambda tx: _is_recorded(tx, run_id, fence, outcome)):
            raise _stale_error(run_id, fence)
        return _reported(context, run_id)
    answer = AttemptResult(run=live, outcome=outcome, started_at=run.started_at or run.leased_at)
    settled = settle_results(context.store, [answer], now=now)
    context.notify(settled.facts)
    if settled.stale:
        raise _stale_error(run_id, fence)
    return _reported(context, run_id)


def start_lease(context: OperationContext, run_id: str, fence: int) -> ReportedRun:
    """Record that the work of a live lease started; its time limit counts from now."""
    now = context.now()
    run = context.store.read(lambda tx: _find_held(tx, context.namespace, run_id, fence))
    record_executor_start(context.store, run, now=now)
    return _reported(context, run_id)


def _settle(context: OperationContext, request: LeaseRequest, outcome: Outcome) -> ReportedRun:
    run_id, fence = context.store.read(lambda tx: _run_and_fence(tx, context.namespace, request))
    return settle_lease(context, run_id, fence, outcome)


def _progress_of(request: RenewLease, run: Run, *, now: datetime) -> RunProgress | None:
    """What a renewal reports about the work; None if it reports nothing."""
    if request.progress is None and not request.note and request.checkpoint is None:
        return None
    size = len(msgspec.json.encode(request.checkpoint))
    if size > MAX_CHECKPOINT_BYTES:
        raise InvalidInput(
            f"the checkpoint has {size} bytes",
            field="checkpoint",
            value=size,
            rule=f"at most {MAX_CHECKPOINT_BYTES} bytes as JSON",
            fix="store the data elsewhere, and keep in the checkpoint where it is",
        )
    return RunProgress(
        run_id=run.id,
        fence=run.fence,
        at=now,
        fraction=request.progress,
        note=redact_text(request.note),
        checkpoint=request.checkpoint,
    )


def _find_held(tx: Transaction, namespace: str, run_id: str, fence: int) -> Run:
    run = find_run(tx, namespace, run_id)
    if not _is_held(tx, run, fence):
        raise _stale_error(run_id, fence)
    return run


def _is_held(tx: Transaction, run: Run, fence: int) -> bool:
    """Whether a lease is current and its work is outside.

    A step that waits is ended by an answer or an event. The work of an instance ends only there: a report
    would let it run twice at once.
    """
    if run.state is not RunState.LEASED or run.fence != fence or run.holder == HELD_BY_WAIT:
        return False
    target = None if run.handoff else load_terms(tx, [run])[run.id].terms.target
    is_launch = run.holder != HELD_BY_WORKFLOW and isinstance(target, Workflow)
    if not run.handoff and not is_launch:
        raise NotAllowed(
            f"the work of run {run.id} is done by this scheduler",
            field="run",
            value=run.id,
            rule="only work done outside is reported: a lease from a queue, or an executor's workflow",
            fix=f"run cancel {run.id} stops it",
        )
    return True


def _run_and_fence(tx: Transaction, namespace: str, request: LeaseRequest) -> tuple[str, int]:
    """Return the run and the fence of the lease that a request names, by its id or by these two."""
    if request.lease and request.run:
        # The run beside a lease id might be another one's.
        raise InvalidInput(
            "the request names a lease and a run",
            field="run",
            value=request.run,
            rule="either a lease id, or a run and its fence",
            fix="give one of them; over HTTP, - in the path stands for no lease id",
        )
    if request.lease:
        run = _find_by_lease_id(tx, namespace, request)
        return run.id, run.fence
    if not request.run or request.fence is None:
        raise InvalidInput(
            "the request names no lease",
            field="lease",
            rule="give a lease id, or a run and its fence",
            fix="use the run and fence from the answer of queue lease",
        )
    return request.run, request.fence


def _is_recorded(tx: Transaction, run_id: str, fence: int, outcome: Outcome) -> bool:
    """Return whether exactly this outcome is already recorded: the worker may have lost the first answer."""
    tag = str(type(outcome).__struct_config__.tag)
    attempts = tx.get_run_rows(Attempt, [run_id]).get(run_id, ())
    return any((a.fence, a.outcome, a.result) == (fence, tag, outcome.result) for a in attempts)


def _find_by_lease_id(tx: Transaction, namespace: str, request: LeaseRequest) -> Run:
    lease_id = request.lease
    run = next(iter(tx.select(LeasedRuns(lease_id=lease_id))), None)
    if run is not None and run.namespace == namespace and _is_held(tx, run, run.fence):
        if request.fence not in (None, run.fence):
            raise _stale_error(run.id, request.fence)
        return run
    raise NotFound(
        f"no live lease {lease_id[:255]!r}",
        field="lease",
        value=lease_id[:255],
        rule="a lease of this namespace that is neither settled nor expired",
        fix="stop this work; if your report got no answer, repeat it with run and fence instead of lease",
    )


def _stale_error(run_id: str, fence: int) -> Stale:
    return Stale(
        f"the lease of {run_id} with fence {fence} has ended",
        field="fence",
        value=fence,
        rule="only the newest lease of a run may report, and only once",
        fix="stop this work; run get shows its current state",
    )


def _reported(context: OperationContext, run_id: str) -> ReportedRun:
    # The run may have been pruned since its report.
    (run,) = context.store.read(lambda tx: summarize_runs(tx, [find_run(tx, context.namespace, run_id)]))
    return ReportedRun(run=run)
