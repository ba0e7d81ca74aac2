"""The overview (active, upcoming, failed and parked runs), recent outcomes per schedule, and search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import DAY, EPOCH, HOUR, MINUTE, ZERO, check_storable
from timewright.core.run.history_stats import DurationStats, duration_stats
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.pauses import Pause
from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.workflow_runs.records import WORKFLOW, read_header
from timewright.operations.context import OperationContext
from timewright.operations.health.pauses import open_pauses
from timewright.operations.lookup import find_schedule, names_by_id, readable_schedules
from timewright.operations.queues.policies import list_queue_names
from timewright.operations.registry import ObjectName, OperationRequest, operations
from timewright.operations.views import (
    RunSummary,
    ScheduleSummary,
    add_last_runs,
    summarize_runs,
    summarize_schedule,
)
from timewright.ports import RunFilter, ScheduleFilter, ScheduleRecord, Transaction
from timewright.ports.overview import RecentRun, RunsByState, SearchHit, TextSearch
from timewright.ports.schedules import NextSchedules, OrderedSchedules

MAX_COUNT = 1000
MAX_ROWS_SHOWN = 20
MAX_GRID_RUNS = 500
MAX_RUNS_SEARCHED = 5000
MAX_MATCH_CHARS = 200
# The length of one slot of the grid, by the longest period that it is used for: some 60 to 100 slots.
GRID_SLOTS = ((HOUR, MINUTE), (6 * HOUR, 5 * MINUTE), (DAY, 15 * MINUTE), (7 * DAY, 2 * HOUR))
_WORST_FIRST = {
    state: rank
    for rank, state in enumerate(("failed", "parked", "leased", "ready", "held", "cancelled", "succeeded"))
}


class GetOverview(OperationRequest, frozen=True, kw_only=True):
    """How far to look ahead."""

    horizon: timedelta = HOUR


class OverviewCounts(Struct, frozen=True, kw_only=True):
    """The main counts; each stops at 1000, and `failed` is that of the last day."""

    running: int
    waiting: int
    due: int
    failed: int
    parked: int


class Overview(Struct, frozen=True, kw_only=True):
    """The overview at one instant. `run counts` has the counts by minute."""

    now: datetime
    late_by: timedelta
    numbers: OverviewCounts
    running: tuple[RunSummary, ...]
    coming: tuple[ScheduleSummary, ...]
    failed: tuple[RunSummary, ...]
    parked: tuple[RunSummary, ...]
    pauses: tuple[Pause, ...]
    """The pauses of the installation, of the namespace, and of groups, owners, queues and providers in it."""


class GetRecentOutcomes(OperationRequest, frozen=True, kw_only=True):
    """Which schedules, by name or id, and how many of the newest occurrences of each."""

    schedules: Annotated[tuple[ObjectName, ...], Meta(min_length=1, max_length=100)]
    each: Annotated[int, Meta(ge=1, le=200)] = 48


class ScheduleOutcomes(Struct, frozen=True, kw_only=True):
    """The newest occurrences of one schedule, oldest first, with the durations and delays of its runs."""

    schedule: str
    schedule_id: str
    marks: tuple[RecentRun, ...]
    duration: DurationStats
    delay: DurationStats


class RecentOutcomes(Struct, frozen=True, kw_only=True):
    """The recent outcomes of schedules, in the order of the request."""

    outcomes: tuple[ScheduleOutcomes, ...]


class GetGrid(OperationRequest, frozen=True, kw_only=True):
    """How long a period, until when, which schedules (all if left out), and from which row on.

    Schedules that are failing come first, then the others by name; `limit` is the number of rows.
    """

    period: timedelta = DAY
    until: datetime | None = None
    group: str | None = None
    name_contains: Annotated[str, Meta(max_length=255)] = ""
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    offset: Annotated[int, Meta(ge=0, le=100_000)] = 0


class GridCell(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The runs of one schedule in one slot of time: the worst state, its run, and how many there are.

    `others` are the states of all of them, if there is more than one.
    """

    slot: int
    state: str
    run: str
    at: datetime
    count: int = 1
    others: dict[str, int] = {}


class GridRow(Struct, frozen=True, kw_only=True):
    """One schedule, and its runs since `since`, which is later than asked if it has a very large number."""

    schedule: str
    schedule_id: str
    state: ScheduleState
    failures: int
    since: datetime
    cells: tuple[GridCell, ...]


class Grid(Struct, frozen=True, kw_only=True):
    """Schedules and their runs over time, in slots of equal length."""

    since: datetime
    until: datetime
    slot: timedelta
    rows: tuple[GridRow, ...]
    total: int


@operations.read("now", scope="read", examples=({}, {"horizon": "6h"}))
def show_overview(context: OperationContext, tx: Transaction, request: GetOverview) -> Overview:
    """Show active and upcoming runs, and failed and parked ones."""
    now = context.now()
    ahead = _limit_duration(request.horizon)

    def newest(state: RunState, *, since: datetime | None = None) -> list[Run]:
        which = RunFilter(namespace=context.namespace, state=state, since=since, limit=MAX_ROWS_SHOWN)
        return list(tx.find(which).rows)

    counts = tx.count(RunsByState(namespace=context.namespace, failed_since=now - DAY, max_count=MAX_COUNT))
    leased = newest(RunState.LEASED) if counts["leased"] else []
    parked = newest(RunState.PARKED) if counts["parked"] else []
    failed = newest(RunState.FAILED, since=now - DAY) if counts["failed"] else []
    next_ones = NextSchedules(namespace=context.namespace, until=now + ahead, limit=MAX_COUNT)
    coming = [one.id for one in tx.select(next_ones)]
    shown = {row.id: row for row in summarize_runs(tx, [*leased, *failed, *parked])}
    wake = tx.read_pending_work().wake_at

    return Overview(
        now=now,
        late_by=max(now - wake, ZERO) if wake is not None else ZERO,
        numbers=OverviewCounts(
            running=counts["leased"],
            waiting=counts["ready"],
            due=len(coming),
            failed=counts["failed"],
            parked=counts["parked"],
        ),
        running=tuple(shown[run.id] for run in leased),
        coming=_summarize_upcoming(tx, coming[:MAX_ROWS_SHOWN]),
        failed=tuple(shown[run.id] for run in failed),
        parked=tuple(shown[run.id] for run in parked),
        pauses=tuple(open_pauses(tx, context.namespace, now=now)),
    )


@operations.read("schedule outcomes", scope="read", examples=({"schedules": ["nightly-report"], "each": 10},))
def show_recent_outcomes(
    context: OperationContext, tx: Transaction, request: GetRecentOutcomes
) -> RecentOutcomes:
    """Show the newest occurrences of several schedules, including skipped ones."""
    found = [find_schedule(tx, context.namespace, name).schedule for name in request.schedules]
    marks = tx.recent_runs([schedule.id for schedule in found], limit_each=request.each)
    return RecentOutcomes(
        outcomes=tuple(_schedule_outcomes(one.name, one.id, marks.get(one.id, ())) for one in found)
    )


@operations.read("schedule grid", scope="read", examples=({}, {"period": "1h", "limit": 20}))
def show_grid(context: OperationContext, tx: Transaction, request: GetGrid) -> Grid:
    """Show schedules and their runs over time as a grid, failing schedules first."""
    period = _limit_duration(request.period)
    slot = next(width for longest, width in GRID_SLOTS if period <= longest)
    # Slots begin at whole multiples of their length, so that cells stay where they are.
    end = context.now() if request.until is None else check_storable(request.until, field="until")
    until = EPOCH + ((end - EPOCH) // slot + 1) * slot
    since = until - period
    which = ScheduleFilter(
        namespace=context.namespace,
        group=request.group,
        name_contains=request.name_contains,
        order="failing",
        limit=request.limit,
        offset=request.offset,
    )
    ids = [head.id for head in tx.select(OrderedSchedules(which))]
    marks = tx.recent_runs(ids, limit_each=MAX_GRID_RUNS, since=since)
    found = tx.get_schedules(ids)
    rows = [_grid_row(found[i], marks.get(i, ()), since=since, slot=slot) for i in ids if i in found]
    return Grid(since=since, until=until, slot=slot, rows=tuple(rows), total=tx.count(which)["schedules"])


def _grid_row(
    record: ScheduleRecord, marks: Sequence[RecentRun], *, since: datetime, slot: timedelta
) -> GridRow:
    slots: dict[int, list[RecentRun]] = {}
    for mark in marks:
        if mark.planned_at >= since:
            slots.setdefault((mark.planned_at - since) // slot, []).append(mark)
    cut = len(marks) == MAX_GRID_RUNS
    return GridRow(
        schedule=record.schedule.name,
        schedule_id=record.schedule.id,
        state=record.progress.state,
        failures=record.progress.failures,
        since=max(since, marks[0].planned_at) if cut else since,
        cells=tuple(_grid_cell(number, slots[number]) for number in sorted(slots)),
    )


def _grid_cell(number: int, marks: Sequence[RecentRun]) -> GridCell:
    worst = min(reversed(marks), key=lambda mark: _WORST_FIRST.get(mark.state, len(_WORST_FIRST)))
    counts = Counter(mark.state for mark in marks)
    return GridCell(
        slot=number,
        state=worst.state,
        run=worst.run,
        at=worst.planned_at,
        count=len(marks),
        others=dict(sorted(counts.items())) if len(marks) > 1 else {},
    )


def _schedule_outcomes(name: str, schedule_id: str, marks: tuple[RecentRun, ...]) -> ScheduleOutcomes:
    ran = [mark for mark in marks if mark.started_at is not None]
    durations = [
        max(ZERO, mark.finished_at - mark.started_at) for mark in ran if mark.finished_at and mark.started_at
    ]
    delays = [max(ZERO, mark.started_at - mark.planned_at) for mark in ran if mark.started_at]
    return ScheduleOutcomes(
        schedule=name,
        schedule_id=schedule_id,
        marks=marks,
        duration=duration_stats(durations),
        delay=duration_stats(delays),
    )


def _summarize_upcoming(tx: Transaction, ids: Sequence[str]) -> tuple[ScheduleSummary, ...]:
    found = tx.get_schedules(ids)
    rows = (summarize_schedule(found[one]) for one in ids if one in found)
    upcoming = [row for row in rows if row.state is ScheduleState.ACTIVE and row.next_at is not None]
    return add_last_runs(tx, upcoming)


def _limit_duration(length: timedelta) -> timedelta:
    """Limit a duration to between one minute and one week."""
    return min(max(length, MINUTE), 7 * DAY)


class Search(OperationRequest, frozen=True, kw_only=True):
    """A part of a name, a tag, an error or an id, in any case; and how many of each kind are listed."""

    text: Annotated[str, Meta(min_length=1, max_length=200)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 8


class Found(Struct, frozen=True, kw_only=True):
    """One thing that was found: its kind, its name or id, its state, and the text that matched."""

    kind: str
    name: str
    id: str = ""
    state: str = ""
    match: str = ""


class SearchResult(Struct, frozen=True, kw_only=True):
    """What was found: schedules, queues and workflows by name, then runs, newest first.

    Errors and ids are looked for in the newest 5000 failed runs and in the newest 5000 runs.
    """

    found: tuple[Found, ...]


@operations.read("search", scope="read", examples=({"text": "report"}, {"text": "timeout"}))
def search_everything(context: OperationContext, tx: Transaction, request: Search) -> SearchResult:
    """Find schedules, queues, workflows and runs by a part of a name, a tag, an error or an id."""
    text = request.text.strip()
    if not text:
        return SearchResult(found=())
    hits = tx.select(
        TextSearch(namespace=context.namespace, text=text, limit=request.limit, max_rows=MAX_RUNS_SEARCHED)
    )
    names = names_by_id(tx, {hit.name for hit in hits if hit.kind == "run" and hit.name})
    return SearchResult(
        found=(
            *_found_schedules(tx, hits, text.lower())[: request.limit],
            *_found_by_name(tx, context.namespace, text.lower(), limit=request.limit),
            *(_found_run(hit, names.get(hit.name, "")) for hit in hits if hit.kind == "run"),
        )
    )


def _found_schedules(tx: Transaction, hits: Sequence[SearchHit], text: str) -> list[Found]:
    """Schedules by name first, then those with the text in a tag."""
    by_name = {hit.id: _found_schedule(hit) for hit in hits if hit.kind == "schedule"}
    maybe = [hit for hit in hits if hit.kind == "tagged" and hit.id not in by_name]
    records = readable_schedules(tx, [hit.id for hit in maybe]) if maybe else {}
    tags = {i: [tag for tag in one.schedule.tags if text in tag.lower()] for i, one in records.items()}
    return [
        *by_name.values(),
        *(_found_schedule(hit, f"tag {tags[hit.id][0]}") for hit in maybe if tags.get(hit.id)),
    ]


def _found_schedule(hit: SearchHit, match: str = "") -> Found:
    return Found(kind="schedule", name=hit.name, id=hit.id, state=hit.state, match=match)


def _found_run(hit: SearchHit, schedule: str) -> Found:
    return Found(kind="run", name=schedule, id=hit.id, state=hit.state, match=hit.error[:MAX_MATCH_CHARS])


def _found_by_name(tx: Transaction, namespace: str, text: str, *, limit: int) -> list[Found]:
    """Queues and workflows, which are few."""
    queues = [Found(kind="queue", name=one) for one in list_queue_names(tx, namespace) if text in one.lower()]
    workflows = [
        Found(kind="workflow", name=row.name)
        for row in tx.get_objects(WORKFLOW, namespace=namespace)
        if text in row.name.lower() and not read_header(row).deleted
    ]
    return [*queues[:limit], *workflows[:limit]]
