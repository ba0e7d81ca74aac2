"""Manual changes to occurrences: run now, skip and move; and a test of the target, which records no run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import SECOND, ZERO
from timewright.core.recurrence.triggers import ZONED_TRIGGERS
from timewright.core.run.run import Outcome, Reason, Run, RunState
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Handoff
from timewright.errors import Conflict, NotAllowed
from timewright.ledger.manual_runs import ManualRun, move_next, run_many, run_now, skip_next
from timewright.ledger.records.notes import move_note
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.operations.request_parsing import check_length
from timewright.operations.schedules.agent_rules import check_approved
from timewright.operations.schedules.writes import read_schedule_detail
from timewright.operations.views import RunDetail, RunSummary, ScheduleDetail, build_run_detail, summarize_run
from timewright.ports import Launch, ScheduleRecord, Transaction

MAX_SKIPPED = 100
MAX_RUNS = 10_000

MAX_TIME_LIMIT = timedelta(minutes=5)
NO_TARGETS_HERE = "this process does not run targets; send the request to one that does"
DRY_RUN_REASON = "this was a dry run"


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
    """The runs, in the order of the request, and why some were skipped."""

    runs: tuple[NewRun, ...]
    warnings: tuple[str, ...] = ()


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
    _check_payload(context, record.schedule, request.payload)
    result = run_now(
        context.store,
        record.schedule.id,
        ids=context.ids,
        by=context.by,
        now=now,
        force=request.force,
        at=request.at,
        client_key=request.client_key,
        payload=request.payload,
    )
    _check_same_payload(result.runs[0], request)
    context.notify(result.facts)
    warnings = tuple(_skip_warnings([(record.schedule.name, result.runs[0])]))
    return replace(build_run_detail(tx, result.runs[0]), warnings=warnings)


def _skip_warnings(runs: Iterable[tuple[str, Run]]) -> Iterator[str]:
    """For each schedule, how many of its runs were skipped, and how to run them."""
    for (name, reason), count in Counter(
        (name, run.reason) for name, run in runs if run.state is RunState.SKIPPED
    ).items():
        runs_of = f"{name} was not run" if count == 1 else f"{count} runs of {name} were skipped"
        why = "an earlier run has not ended, and the schedule has overlap: skip"
        fix = "To run it at the same time use force; to run it afterwards set overlap: queue"
        yield f"{runs_of}: {why}. {fix}" if reason == Reason.OVERLAP else f"{runs_of}: {reason}"


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
    schedules = {
        name: _find_approved(tx, context.namespace, name).schedule
        for name in {one.schedule for one in request.runs}
    }
    for one in request.runs:
        _check_payload(context, schedules[one.schedule], one.payload)
    wanted = [
        ManualRun(
            schedule_id=schedules[one.schedule].id,
            at=one.at,
            force=one.force,
            client_key=one.client_key,
            payload=one.payload,
        )
        for one in request.runs
    ]
    made = run_many(context.store, wanted, ids=context.ids, by=context.by, now=now)
    for one, run in zip(request.runs, made.runs, strict=True):
        _check_same_payload(run, one)
    context.notify(made.facts)
    return NewRuns(
        runs=tuple(
            NewRun(id=run.id, schedule=one.schedule, state=run.state, reason=run.reason)
            for one, run in zip(request.runs, made.runs, strict=True)
        ),
        warnings=tuple(
            _skip_warnings((one.schedule, run) for one, run in zip(request.runs, made.runs, strict=True))
        ),
    )


@operations.write("schedule skip", scope="trigger", examples=({"schedule": "nightly-report"},))
def skip_occurrences(context: OperationContext, tx: Transaction, request: SkipOccurrences) -> ScheduleDetail:
    """Skip the next occurrences; they are recorded as skipped manually."""
    now = context.now()
    schedule_id = find_schedule(tx, context.namespace, request.schedule).schedule.id
    for _ in range(request.count):
        context.notify(skip_next(context.store, schedule_id, ids=context.ids, by=context.by, now=now).facts)
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
        by=context.by,
        now=now,
    )
    context.notify(result.facts)
    skipped_at = result.runs[0].planned_at
    move_note(tx, record.schedule, skipped_at, to=request.to, by=context.by, now=now)
    skipped, run = (summarize_run(one, schedule=record.schedule.name) for one in result.runs)
    return MovedOccurrence(left_out=skipped, run=run)


def _find_approved(tx: Transaction, namespace: str, wanted: str) -> ScheduleRecord:
    record = find_schedule(tx, namespace, wanted)
    check_approved(record)
    return record


def _check_payload(context: OperationContext, schedule: Schedule, payload: Any) -> None:
    if context.check_payload is not None:
        context.check_payload(schedule.target, payload)


def _check_same_payload(run: Run, request: RunSchedule | RunItem) -> None:
    if request.client_key and run.payload != request.payload:
        raise Conflict(
            f"client key {request.client_key!r} was used for {run.id}, which has another payload",
            field="client_key",
            value=request.client_key,
            rule="a client key belongs to one payload",
            fix="use another client key",
        )


class TryTarget(WriteRequest, frozen=True, kw_only=True):
    """Which schedule's target to start; `time_limit` is at most five minutes."""

    schedule: ObjectName
    payload: Any = None
    time_limit: timedelta = 30 * SECOND


class TargetTestResult(Struct, frozen=True, kw_only=True):
    """Whether the target was started and how it ended; if not started, `why`."""

    schedule: str
    target: str
    tried: bool
    why: str
    outcome: Outcome | None
    took: timedelta


@operations.add("schedule test", scope="trigger", examples=({"schedule": "nightly-report"},))
def try_target(context: OperationContext, request: TryTarget) -> TargetTestResult:
    """Start a schedule's target once and show the result; nothing is recorded."""
    check_length(request.time_limit, "time_limit", SECOND, MAX_TIME_LIMIT, fix="time_limit: 30s")
    record = context.store.read(lambda tx: find_schedule(tx, context.namespace, request.schedule))
    check_approved(record)
    schedule = record.schedule
    if isinstance(schedule.target, Handoff):
        raise NotAllowed(
            f"{schedule.name} has a handoff target, which an external worker runs",
            field="schedule",
            value=schedule.name,
            rule="only a target that Timewright starts itself can be tested",
            fix=f"schedule run {schedule.name}, then lease the run from its queue",
        )
    if context.run_target_test is None or request.dry_run:
        return _answer(schedule, why=NO_TARGETS_HERE if context.run_target_test is None else DRY_RUN_REASON)
    started_at = context.now()
    outcome = context.run_target_test(_launch(context, schedule, request), context.on_test_started)
    return _answer(schedule, outcome=outcome, took=context.now() - started_at)


def _answer(
    schedule: Schedule, *, why: str = "", outcome: Outcome | None = None, took: timedelta = ZERO
) -> TargetTestResult:
    kind = str(type(schedule.target).__struct_config__.tag)
    return TargetTestResult(
        schedule=schedule.name,
        target=kind,
        tried=outcome is not None,
        why=why,
        outcome=outcome,
        took=max(took, ZERO),
    )


def _launch(context: OperationContext, schedule: Schedule, request: TryTarget) -> Launch:
    """Build a launch with a run id and a key that no run has."""
    now = context.now()
    test_id = context.ids.new("run", now=now)
    return Launch(
        run_id=test_id,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        target=schedule.target,
        given_key=f"test:{test_id}",
        fence=1,
        attempt=1,
        planned_at=now,
        fire_at=now,
        trigger=schedule.trigger,
        zone=schedule.trigger.zone if isinstance(schedule.trigger, ZONED_TRIGGERS) else "UTC",
        source="test",
        time_limit=min(request.time_limit, schedule.lease.time_limit or MAX_TIME_LIMIT),
        grace=schedule.lease.grace,
        payload=request.payload,
        metadata=schedule.metadata,
    )
