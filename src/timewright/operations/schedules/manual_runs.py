"""Manual changes to occurrences: run now, backfill, skip and move."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.run.run import Run, RunState
from timewright.errors import Conflict
from timewright.ledger.manual_runs import ManualRun, move_next, run_many, run_now, skip_next
from timewright.ledger.records.notes import move_note
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.operations.schedules.agent_rules import check_approved
from timewright.operations.schedules.writes import read_schedule_detail
from timewright.operations.views import RunDetail, RunSummary, ScheduleDetail, build_run_detail, summarize_run
from timewright.ports import ScheduleRecord, Transaction

MAX_SKIPPED = 100
MAX_RUNS = 10_000


class RunSchedule(WriteRequest, frozen=True, kw_only=True):
    """Which schedule to run once more, now or `at` a future instant.

    `force` ignores its overlap policy; the same client key returns the same run.
    """

    schedule: ObjectName
    at: datetime | None = None
    force: bool = False
    payload: Any = None
    client_key: Annotated[str, Meta(max_length=255)] = ""


class RunItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of `schedule run-many`, with the fields of `schedule run`."""

    schedule: ObjectName
    at: datetime | None = None
    force: bool = False
    payload: Any = None
    client_key: Annotated[str, Meta(max_length=255)] = ""


class RunManySchedules(WriteRequest, frozen=True, kw_only=True):
    """Which schedules to run once more; a schedule may be named many times, with different payloads."""

    runs: Annotated[tuple[RunItem, ...], Meta(min_length=1, max_length=MAX_RUNS)]


class NewRun(Struct, frozen=True, kw_only=True):
    """A run that was created; it is skipped if the overlap policy says so."""

    id: str
    schedule: str
    state: RunState
    reason: str = ""


class NewRuns(Struct, frozen=True, kw_only=True):
    """The runs, in the order of the request."""

    runs: tuple[NewRun, ...]


class SkipOccurrences(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, and how many of its next occurrences to skip."""

    schedule: ObjectName
    count: Annotated[int, Meta(ge=1, le=MAX_SKIPPED)] = 1


class MoveOccurrence(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, and the new instant of its next occurrence."""

    schedule: ObjectName
    to: datetime


class MovedOccurrence(Struct, frozen=True, kw_only=True):
    """The occurrence that is skipped, and the run that replaces it."""

    left_out: RunSummary
    run: RunSummary


@operations.write(
    "schedule run",
    scope="trigger",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "client_key": "ticket-17", "payload": {"day": "2026-03-09"}},
        {"schedule": "nightly-report", "at": "2026-03-10T18:00:00Z", "reason": "month end"},
    ),
)
def run_schedule(context: OperationContext, tx: Transaction, request: RunSchedule) -> RunDetail:
    """Run a schedule once more, now or at a future instant; its next occurrence does not change."""
    now = context.now()
    record = _find_approved(tx, context.namespace, request.schedule)
    result = run_now(
        context.store,
        record.schedule.id,
        ids=context.ids,
        by=context.actor_with_reason(request.reason),
        now=now,
        force=request.force,
        at=request.at,
        client_key=request.client_key,
        payload=request.payload,
    )
    _check_same_payload(result.runs[0], request)
    context.notify(result.facts)
    return build_run_detail(tx, result.runs[0])


@operations.write(
    "schedule run-many",
    scope="trigger",
    examples=(
        {
            "runs": [
                {"schedule": "nightly-report", "payload": {"day": "2026-03-09"}},
                {"schedule": "nightly-report", "payload": {"day": "2026-03-10"}},
            ]
        },
    ),
)
def run_many_schedules(context: OperationContext, tx: Transaction, request: RunManySchedules) -> NewRuns:
    """Run schedules once more, many runs in one transaction; each obeys overlap, as if made one by one."""
    now = context.now()
    ids = {
        name: _find_approved(tx, context.namespace, name).schedule.id
        for name in {one.schedule for one in request.runs}
    }
    wanted = [
        ManualRun(
            schedule_id=ids[one.schedule],
            at=one.at,
            force=one.force,
            client_key=one.client_key,
            payload=one.payload,
        )
        for one in request.runs
    ]
    by = context.actor_with_reason(request.reason)
    made = run_many(context.store, wanted, ids=context.ids, by=by, now=now)
    for one, run in zip(request.runs, made.runs, strict=True):
        _check_same_payload(run, one)
    context.notify(made.facts)
    return NewRuns(
        runs=tuple(
            NewRun(id=run.id, schedule=one.schedule, state=run.state, reason=run.reason)
            for one, run in zip(request.runs, made.runs, strict=True)
        )
    )


@operations.write("schedule skip", scope="trigger", examples=({"schedule": "nightly-report"},))
def skip_occurrences(context: OperationContext, tx: Transaction, request: SkipOccurrences) -> ScheduleDetail:
    """Skip the next occurrences; they are recorded as skipped manually."""
    now = context.now()
    schedule_id = find_schedule(tx, context.namespace, request.schedule).schedule.id
    for _ in range(request.count):
        by = context.actor_with_reason(request.reason)
        context.notify(skip_next(context.store, schedule_id, ids=context.ids, by=by, now=now).facts)
    return read_schedule_detail(context, schedule_id, now=now)


@operations.write(
    "schedule move", scope="trigger", examples=({"schedule": "nightly-report", "to": "2026-03-11T05:00:00Z"},)
)
def move_occurrence(context: OperationContext, tx: Transaction, request: MoveOccurrence) -> MovedOccurrence:
    """Move the next occurrence to another instant: it is skipped, and a manual run replaces it."""
    now = context.now()
    record = _find_approved(tx, context.namespace, request.schedule)
    result = move_next(
        context.store,
        record.schedule.id,
        to=request.to,
        ids=context.ids,
        by=context.actor_with_reason(request.reason),
        now=now,
    )
    context.notify(result.facts)
    skipped_at = result.runs[0].planned_at
    by = context.actor_with_reason(request.reason)
    move_note(tx, record.schedule, skipped_at, to=request.to, by=by, now=now)
    skipped, run = (summarize_run(one, schedule=record.schedule.name) for one in result.runs)
    return MovedOccurrence(left_out=skipped, run=run)


def _find_approved(tx: Transaction, namespace: str, wanted: str) -> ScheduleRecord:
    record = find_schedule(tx, namespace, wanted)
    check_approved(record)
    return record


def _check_same_payload(run: Run, request: RunSchedule | RunItem) -> None:
    if request.client_key and run.payload != request.payload:
        raise Conflict(
            f"client key {request.client_key!r} was used for {run.id}, which has another payload",
            field="client_key",
            value=request.client_key,
            rule="a client key belongs to one payload",
            fix="use another client key",
        )
