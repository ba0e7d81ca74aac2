"""Runs: list, get, cancel, retry, reset, report by an external executor, and trends of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import isfinite
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from timewright.clocks import SystemClock
from timewright.core.facts import Fact
from timewright.core.moments import MINUTE, SECOND, ZERO, format_duration
from timewright.core.run.run import Attempt, Outcome, Run, RunState, Started
from timewright.core.schedule.schedule import Schedule
from timewright.errors import Forbidden, InvalidInput
from timewright.ledger.settle import cancel, reopen, reset
from timewright.ledger.workflow_runs.launch import mark_to_repeat
from timewright.operations.access.permissions import needs_approval
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.lookup import find_run, find_schedule, readable_schedules
from timewright.operations.pagination import paginate
from timewright.operations.queues.lease_results import Fence, ReportedRun, settle_lease, start_lease
from timewright.operations.registry import (
    FAILED_RUN,
    LEASED_RUN,
    PARKED_RUN,
    GetRun,
    ListRequest,
    ObjectName,
    OperationRequest,
    RunAction,
    WriteRequest,
    operations,
)
from timewright.operations.schedules.queries import has_metadata
from timewright.operations.views import RunDetail, RunSummary, build_run_detail, summarize_runs
from timewright.ports import ExternalId, Page, RunFilter, Store, Transaction, Unreadable
from timewright.ports.rows import RunsWithExternalId

ExternalName = Annotated[str, Meta(max_length=255)]
MAX_EXTERNAL_RUNS = 1000

# How long one call may wait for the end of a run, and how often it looks.
MAX_WAIT = 5 * MINUTE
WAIT_INTERVAL_S = 0.25

MAX_FIELDS = 12
MAX_DEPTH = 3
MAX_VALUE = 1e15


class ListRuns(ListRequest, frozen=True, kw_only=True):
    """Filters of runs, combined with AND. `metadata`, `group` and `tag` are those of the schedule."""

    schedule: str = ""
    state: RunState | None = None
    queue: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    group: str | None = None
    tag: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    external_id: str = ""
    """What an external executor calls the run."""


class RunList(Struct, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: tuple[RunSummary, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class WaitForRun(OperationRequest, frozen=True, kw_only=True):
    """Which run, and how long to wait for its end, at most five minutes."""

    run: ObjectName
    time_limit: timedelta = 30 * SECOND


class RetryRun(RunAction, frozen=True, kw_only=True):
    """Which run. With `from_step` it is a step, and its workflow repeats it and every step after it.

    `input` replaces fields of the input of that step, and implies `from_step`.
    """

    from_step: bool = False
    input: dict[str, Any] = field(default_factory=dict)


class ReportRun(WriteRequest, frozen=True, kw_only=True):
    """Which run, the fence it was started with, and the outcome, or `started`.

    `external_id` is what the executor calls the run; it is kept with the attempt.
    """

    run: ObjectName
    fence: Fence
    outcome: Outcome | Started
    external_id: ExternalName = ""


@operations.read(
    "run list",
    scope="read",
    examples=(
        {},
        {"schedule": "nightly-report", "state": "succeeded", "limit": 10},
        {"metadata": {"team": "finance"}, "since": "2026-03-01T00:00:00Z"},
    ),
)
def list_runs(context: OperationContext, tx: Transaction, request: ListRuns) -> RunList:
    """List runs, newest first, including those that were skipped."""
    schedule_id = None
    if request.schedule:
        schedule_id = find_schedule(tx, context.namespace, request.schedule).schedule.id

    unreadable: dict[str, Unreadable] = {}
    wanted = None
    if request.external_id:
        named = RunsWithExternalId(request.external_id, MAX_EXTERNAL_RUNS)
        wanted = {run.id: run for run in tx.select(named)}

    def find(limit: int, place: str) -> Page:
        which = RunFilter(
            namespace=context.namespace,
            schedule_id=schedule_id,
            queue=request.queue,
            state=request.state,
            since=request.since,
            until=request.until,
            limit=limit,
            cursor=place,
        )
        page = tx.find(which) if wanted is None else _select(wanted.values(), which)
        unreadable.update({one.id: one for one in page.unreadable})
        return page

    is_filtered = bool(request.metadata or request.group is not None or request.tag is not None)
    rows, cursor = paginate(
        context,
        request,
        find,
        matches=(lambda rows: _matches(tx, rows, request)) if is_filtered else None,
    )
    shown = summarize_runs(tx, rows)
    return RunList(runs=shown, cursor=cursor, unreadable=tuple(unreadable.values()))


@operations.read("run get", scope="read", examples=({"run": FAILED_RUN},))
def get_run(context: OperationContext, tx: Transaction, request: GetRun) -> RunDetail:
    """Show one run with its key, the decision behind it, and every attempt."""
    return build_run_detail(tx, find_run(tx, context.namespace, request.run))


@operations.add("run wait", scope="read", examples=({"run": FAILED_RUN, "time_limit": "10s"},))
def wait_for_run(context: OperationContext, request: WaitForRun) -> RunDetail:
    """Wait until a run has ended, at most the time limit, and show it as it is then."""
    if not ZERO <= request.time_limit <= MAX_WAIT:
        raise InvalidInput(
            "time_limit is out of range",
            field="time_limit",
            value=format_duration(request.time_limit),
            rule="0s to 5m",
            fix="time_limit: 30s",
        )
    clock = SystemClock()
    until = clock.monotonic() + request.time_limit.total_seconds()
    while True:
        found = get_run(context, GetRun(run=request.run))
        left = until - clock.monotonic()
        has_ended = found.run.finished_at is not None
        if context.on_wait is not None:
            note = found.run.progress_note or found.run.state.value
            context.on_wait(1.0 if has_ended else found.run.progress or 0.0, note)
        if has_ended or found.run.state is RunState.PARKED or left <= 0:
            return found
        clock.sleep(min(WAIT_INTERVAL_S, left))


@operations.write("run cancel", scope="trigger", examples=({"run": LEASED_RUN, "reason": "wrong numbers"},))
def cancel_run(context: OperationContext, tx: Transaction, request: RunAction) -> RunDetail:
    """Cancel a run or a queue entry: at once if not leased, otherwise its holder has time to stop."""
    return _change(context, tx, request, cancel)


@operations.write("run retry", scope="trigger", examples=({"run": FAILED_RUN},))
def retry_run(context: OperationContext, tx: Transaction, request: RetryRun) -> RunDetail:
    """Retry a failed, parked or cancelled run: the same run continues with a higher fence.

    A parked run is reset: it has all its attempts again.
    A step is retried with its workflow: steps that succeeded stay, unless `from_step` is given.
    """
    if request.input and needs_approval(context):
        raise Forbidden(
            "agents cannot change the input of a step",
            field="input",
            rule="a person approved the workflow with the input that its steps are given",
            fix=f"run retry {request.run} without input, or ask a person",
        )
    if request.from_step or request.input:
        return _change(context, tx, request, partial(_reopen_from_step, request.input))
    is_parked = find_run(tx, context.namespace, request.run).state is RunState.PARKED
    return _change(context, tx, request, reset if is_parked else reopen)


@operations.write("run reset", scope="trigger", examples=({"run": PARKED_RUN, "reason": "mailbox mended"},))
def reset_run(context: OperationContext, tx: Transaction, request: RunAction) -> RunDetail:
    """Reset the attempts of a parked run, so that it can start again."""
    return _change(context, tx, request, reset)


@operations.add(
    "run report",
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1, "outcome": "started", "external_id": "dag-7f3a"},
        {"run": LEASED_RUN, "fence": 1, "outcome": "succeeded"},
        {
            "run": LEASED_RUN,
            "fence": 1,
            "outcome": {"kind": "failed", "error": "no route to the printer"},
        },
    ),
)
def report_run(context: OperationContext, request: ReportRun) -> ReportedRun:
    """Report the start or outcome of a run that an external worker executes; a lost lease is stale."""

    def work(nested: OperationContext) -> ReportedRun:
        if request.external_id:
            row = ExternalId(request.run, request.fence, request.external_id)
            nested.store.write(lambda tx: tx.put_run_rows([row]))
        if isinstance(request.outcome, Started):
            return start_lease(nested, request.run, request.fence)
        return settle_lease(nested, request.run, request.fence, request.outcome)

    return in_transaction(context, work) if request.external_id else work(context)


def _change(
    context: OperationContext, tx: Transaction, request: RunAction, change: Callable[..., Sequence[Fact]]
) -> RunDetail:
    run = find_run(tx, context.namespace, request.run)
    by, now = context.by, context.now()
    context.notify(change(context.store, run.id, actor=by.name, origin=by.origin, reason=by.reason, now=now))
    return build_run_detail(tx, find_run(tx, context.namespace, run.id))


def _reopen_from_step(changed: dict[str, Any], store: Store, run_id: str, **by: Any) -> tuple[Fact, ...]:
    """Reopen the workflow run of a step, and let it repeat the step with changed input and all behind it."""
    store.write(lambda tx: mark_to_repeat(tx, tx.get_runs([run_id])[run_id], changed=changed, now=by["now"]))
    return reopen(store, run_id, **by)


def _select(runs: Iterable[Run], which: RunFilter) -> Page:
    """The page of these runs that pass the filter, newest first."""
    rows = sorted((run for run in runs if _passes(run, which)), key=lambda run: run.id, reverse=True)
    return Page(tuple(rows[: which.limit]), rows[which.limit - 1].id if len(rows) > which.limit else "")


def _passes(run: Run, which: RunFilter) -> bool:
    return (
        run.namespace == which.namespace
        and which.schedule_id in (None, run.schedule_id)
        and which.queue in (None, "", run.queue)
        and which.state in (None, run.state)
        and (which.since is None or run.planned_at >= which.since)
        and (which.until is None or run.planned_at <= which.until)
        and (not which.cursor or run.id < which.cursor)
    )


def _matches(tx: Transaction, runs: Sequence[Run], request: ListRuns) -> list[bool]:
    schedules = _schedules_of(tx, runs)
    return [_schedule_matches(schedules.get(run.schedule_id), request) for run in runs]


def _schedule_matches(schedule: Schedule | None, request: ListRuns) -> bool:
    return (
        schedule is not None
        and (request.group is None or schedule.group == request.group)
        and (request.tag is None or request.tag in schedule.tags)
        and has_metadata(schedule.metadata, request.metadata)
    )


def _schedules_of(tx: Transaction, runs: Sequence[Run]) -> dict[str, Schedule]:
    ids = sorted({run.schedule_id for run in runs if run.schedule_id})
    return {i: record.schedule for i, record in readable_schedules(tx, ids).items()}


class GetTrends(OperationRequest, frozen=True, kw_only=True):
    """Which schedule, and how many of its newest occurrences."""

    schedule: ObjectName
    each: Annotated[int, Meta(ge=1, le=200)] = 48


class TrendPoint(Struct, frozen=True, kw_only=True):
    """One number of one result."""

    run: str
    at: datetime
    state: str
    value: float


class TrendSeries(Struct, frozen=True, kw_only=True):
    """One number of the results over time, oldest first; `field` is its path in the result."""

    field: str
    points: tuple[TrendPoint, ...]


class Trends(Struct, frozen=True, kw_only=True):
    """The numbers in the results of a schedule, the most frequent field first."""

    schedule: str
    series: tuple[TrendSeries, ...]


@operations.read("schedule trends", scope="read", examples=({"schedule": "nightly-report"},))
def schedule_trends(context: OperationContext, tx: Transaction, request: GetTrends) -> Trends:
    """Show each number in the results of a schedule's newest runs over time."""
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    marks = tx.recent_runs([schedule.id], limit_each=request.each).get(schedule.id, ())
    attempts = tx.get_run_rows(Attempt, [mark.run for mark in marks])
    found: dict[str, list[TrendPoint]] = {}
    for mark in marks:
        for name, value in _numbers(_last_result(attempts.get(mark.run, ()))):
            point = TrendPoint(run=mark.run, at=mark.planned_at, state=mark.state, value=value)
            found.setdefault(name, []).append(point)
    by_frequency = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))[:MAX_FIELDS]
    series = tuple(TrendSeries(field=field, points=tuple(points)) for field, points in by_frequency)
    return Trends(schedule=schedule.name, series=series)


def _last_result(attempts: tuple[Attempt, ...]) -> Any:
    """Return the result of the last attempt that has one."""
    return next((one.result for one in reversed(attempts) if one.result is not None), None)


def _numbers(value: Any, *, path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Yield every number in a result with its path, up to three levels deep; booleans do not count."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if isfinite(value) and abs(value) <= MAX_VALUE:
            yield path or "result", float(value)
    elif isinstance(value, Mapping) and depth < MAX_DEPTH:
        for name, inner in list(value.items())[:100]:
            yield from _numbers(inner, path=f"{path}.{name}" if path else str(name)[:100], depth=depth + 1)
