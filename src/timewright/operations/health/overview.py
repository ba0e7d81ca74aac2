"""The overview (active, upcoming, failed and parked runs, delays), and recent outcomes per schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import HOUR, MINUTE, ZERO
from timewright.core.run.history_stats import DurationStats, duration_stats
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.pauses import Pause
from timewright.core.schedule.schedule import ScheduleState
from timewright.operations.context import OperationContext
from timewright.operations.health.pauses import open_pauses
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import ObjectName, OperationRequest, operations
from timewright.operations.views import (
    RunSummary,
    ScheduleSummary,
    add_last_runs,
    summarize_runs,
    summarize_schedule,
)
from timewright.ports import RunFilter, Transaction
from timewright.ports.overview import PastRun, RecentRun

MAX_COUNT = 1000
MAX_ROWS_SHOWN = 20
DAY = timedelta(days=1)


class GetOverview(OperationRequest, frozen=True, kw_only=True):
    """How far to look back and ahead."""

    horizon: timedelta = HOUR
    back: timedelta = HOUR


class OutcomeBin(Struct, frozen=True, kw_only=True):
    """One time bin: how its runs ended, and how late they started."""

    at: datetime
    outcomes: dict[str, int]
    delay: DurationStats


class OverviewCounts(Struct, frozen=True, kw_only=True):
    """The main counts; each stops at 1000, and `failed` is that of the last day."""

    running: int
    waiting: int
    due: int
    failed: int
    parked: int


class Overview(Struct, frozen=True, kw_only=True):
    """The overview at one instant; `more` means that the period contains more runs than were counted."""

    now: datetime
    late_by: timedelta
    numbers: OverviewCounts
    running: tuple[RunSummary, ...]
    coming: tuple[ScheduleSummary, ...]
    failed: tuple[RunSummary, ...]
    parked: tuple[RunSummary, ...]
    behind: tuple[OutcomeBin, ...]
    delay: DurationStats
    more: bool
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


@operations.add("", "now", GetOverview, scope="read", examples=({}, {"horizon": "6h", "back": "15m"}))
def show_overview(context: OperationContext, request: GetOverview) -> Overview:
    """Show active and upcoming runs, failed and parked ones, and how late runs start."""
    now = context.now()
    ahead, back = _limit_duration(request.horizon), _limit_duration(request.back)

    def work(tx: Transaction) -> Overview:
        def newest(state: RunState, *, since: datetime | None = None) -> list[Run]:
            which = RunFilter(namespace=context.namespace, state=state, since=since, limit=MAX_ROWS_SHOWN)
            return list(tx.find_runs(which).rows)

        counts = tx.count_runs_by_state(context.namespace, failed_since=now - DAY, max_count=MAX_COUNT)
        leased = newest(RunState.LEASED) if counts.leased else []
        parked = newest(RunState.PARKED) if counts.parked else []
        failed = newest(RunState.FAILED, since=now - DAY) if counts.failed else []
        coming = tx.next_schedule_ids(context.namespace, until=now + ahead, limit=MAX_COUNT)
        past = tx.past_runs(context.namespace, since=now - back, limit=MAX_COUNT + 1)
        behind = past[:MAX_COUNT]
        shown = {row.id: row for row in summarize_runs(tx, [*leased, *failed, *parked])}
        wake = tx.read_pending_work().wake_at

        return Overview(
            now=now,
            late_by=max(now - wake, ZERO) if wake is not None else ZERO,
            numbers=OverviewCounts(
                running=counts.leased,
                waiting=counts.ready,
                due=len(coming),
                failed=counts.failed,
                parked=counts.parked,
            ),
            running=tuple(shown[run.id] for run in leased),
            coming=_summarize_upcoming(tx, coming[:MAX_ROWS_SHOWN]),
            failed=tuple(shown[run.id] for run in failed),
            parked=tuple(shown[run.id] for run in parked),
            behind=_bins(behind, since=now - back, until=now),
            delay=duration_stats([one.late_by for one in behind if one.late_by is not None]),
            more=len(past) > len(behind),
            pauses=tuple(open_pauses(tx, context.namespace, now=now)),
        )

    return context.store.read(work)


@operations.add(
    "schedule",
    "outcomes",
    GetRecentOutcomes,
    scope="read",
    examples=({"schedules": ["nightly-report"], "each": 10},),
)
def show_recent_outcomes(context: OperationContext, request: GetRecentOutcomes) -> RecentOutcomes:
    """Show the newest occurrences of several schedules, including skipped ones."""

    def work(tx: Transaction) -> RecentOutcomes:
        found = [find_schedule(tx, context.namespace, name).schedule for name in request.schedules]
        marks = tx.recent_runs([schedule.id for schedule in found], limit_each=request.each)
        return RecentOutcomes(
            outcomes=tuple(_schedule_outcomes(one.name, one.id, marks.get(one.id, ())) for one in found)
        )

    return context.store.read(work)


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


def _bins(past: Sequence[PastRun], *, since: datetime, until: datetime) -> tuple[OutcomeBin, ...]:
    """Divide the past period into 60 bins, or into minutes if it is shorter than an hour."""
    width = max(MINUTE, (until - since) / 60)
    count = max(1, -(-(until - since) // width))
    pieces: list[list[PastRun]] = [[] for _ in range(count)]
    for one in past:
        place = int((one.planned_at - since) / width)
        if 0 <= place < count:
            pieces[place].append(one)
    return tuple(_bin(since + place * width, nested) for place, nested in enumerate(pieces))


def _bin(at: datetime, past: Sequence[PastRun]) -> OutcomeBin:
    delays = [max(ZERO, one.late_by) for one in past if one.late_by is not None]
    return OutcomeBin(
        at=at, outcomes=dict(sorted(Counter(one.state for one in past).items())), delay=duration_stats(delays)
    )


def _limit_duration(length: timedelta) -> timedelta:
    """Limit a duration to between one minute and one week."""
    return min(max(length, MINUTE), 7 * DAY)
