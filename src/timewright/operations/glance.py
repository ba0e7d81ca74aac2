"""The house at a glance: what runs, what comes, what failed, and how late things start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import HOUR, MINUTE, ZERO
from timewright.core.run import Run, RunState
from timewright.core.schedule import ScheduleState
from timewright.core.tally import Spread, spread
from timewright.operations.context import Context
from timewright.operations.find import find_schedule
from timewright.operations.registry import Named, Request, operations
from timewright.operations.views import (
    RunRow,
    ScheduleRow,
    names_of_schedules,
    run_row,
    schedule_row,
)
from timewright.ports import RunFilter, Transaction
from timewright.ports.glance import Mark, Past

MOST_COUNTED = 1000
SHOWN = 20
DAY = timedelta(days=1)


class Ask(Request, frozen=True, kw_only=True):
    """How far back and ahead to look."""

    ahead: timedelta = HOUR
    back: timedelta = HOUR


class Bin(Struct, frozen=True, kw_only=True):
    """One piece of the time behind us: how runs ended in it, and how late they began."""

    at: datetime
    outcomes: dict[str, int]
    delay: Spread


class Numbers(Struct, frozen=True, kw_only=True):
    """What everybody reads first. Counts stop at a thousand; `failed` is that of the last day."""

    running: int
    waiting: int
    due: int
    failed: int
    parked: int


class Glance(Struct, frozen=True, kw_only=True):
    """The house at one instant; `more` says that the time behind us held more runs than were counted."""

    now: datetime
    late_by: timedelta
    numbers: Numbers
    running: tuple[RunRow, ...]
    coming: tuple[ScheduleRow, ...]
    failed: tuple[RunRow, ...]
    parked: tuple[RunRow, ...]
    behind: tuple[Bin, ...]
    delay: Spread
    more: bool


class Strips(Request, frozen=True, kw_only=True):
    """Whose newest occurrences, by name or id, and how many of each."""

    schedules: Annotated[tuple[Named, ...], Meta(min_length=1, max_length=100)]
    each: Annotated[int, Meta(ge=1, le=200)] = 48


class Strip(Struct, frozen=True, kw_only=True):
    """The newest occurrences of one schedule, oldest first, and how long its runs took."""

    schedule: str
    schedule_id: str
    marks: tuple[Mark, ...]
    duration: Spread
    delay: Spread


class Shown(Struct, frozen=True, kw_only=True):
    """Strips, in the order they were asked for."""

    strips: tuple[Strip, ...]


@operations.add("", "now", Ask, scope="read", examples=({}, {"ahead": "6h", "back": "15m"}))
def look_around(context: Context, ask: Ask) -> Glance:
    """Show what runs, what comes next, what failed or needs a person, and how late things start."""
    now = context.now()
    ahead, back = _within(ask.ahead), _within(ask.back)

    def work(tx: Transaction) -> Glance:
        def newest(state: RunState, *, since: datetime | None = None) -> list[Run]:
            which = RunFilter(namespace=context.namespace, state=state, since=since, limit=SHOWN)
            return list(tx.find_runs(which).rows)

        counts = tx.count_standing(context.namespace, failed_since=now - DAY, most=MOST_COUNTED)
        leased = newest(RunState.LEASED) if counts.leased else []
        parked = newest(RunState.PARKED) if counts.parked else []
        failed = newest(RunState.FAILED, since=now - DAY) if counts.failed else []
        coming = tx.upcoming(context.namespace, until=now + ahead, limit=MOST_COUNTED)
        past = tx.past(context.namespace, since=now - back, limit=MOST_COUNTED + 1)
        behind = past[:MOST_COUNTED]
        names = names_of_schedules(tx, [*leased, *failed, *parked])
        wake = tx.next_wake()

        def rows(some: Sequence[Run]) -> tuple[RunRow, ...]:
            return tuple(run_row(run, schedule=names.get(run.schedule_id, "")) for run in some)

        return Glance(
            now=now,
            late_by=max(now - wake, ZERO) if wake is not None else ZERO,
            numbers=Numbers(
                running=counts.leased,
                waiting=counts.ready,
                due=len(coming),
                failed=counts.failed,
                parked=counts.parked,
            ),
            running=rows(leased),
            coming=_coming(tx, coming[:SHOWN]),
            failed=rows(failed),
            parked=rows(parked),
            behind=_bins(behind, since=now - back, until=now),
            delay=spread([one.late_by for one in behind if one.late_by is not None]),
            more=len(past) > len(behind),
        )

    return context.store.read(work)


@operations.add(
    "schedule", "strips", Strips, scope="read", examples=({"schedules": ["nightly-report"], "each": 10},)
)
def show_strips(context: Context, ask: Strips) -> Shown:
    """Show the newest occurrences of several schedules, those that ran and those that did not."""

    def work(tx: Transaction) -> Shown:
        found = [find_schedule(tx, context.namespace, name).schedule for name in ask.schedules]
        marks = tx.newest_marks([schedule.id for schedule in found], each=ask.each)
        return Shown(strips=tuple(_strip(one.name, one.id, marks.get(one.id, ())) for one in found))

    return context.store.read(work)


def _strip(name: str, schedule_id: str, marks: tuple[Mark, ...]) -> Strip:
    ran = [mark for mark in marks if mark.started_at is not None]
    took = [
        max(ZERO, mark.finished_at - mark.started_at) for mark in ran if mark.finished_at and mark.started_at
    ]
    late = [max(ZERO, mark.started_at - mark.planned_at) for mark in ran if mark.started_at]
    return Strip(
        schedule=name, schedule_id=schedule_id, marks=marks, duration=spread(took), delay=spread(late)
    )


def _coming(tx: Transaction, ids: Sequence[str]) -> tuple[ScheduleRow, ...]:
    found = tx.get_schedules(ids)
    rows = (schedule_row(found[one]) for one in ids if one in found)
    return tuple(row for row in rows if row.state is ScheduleState.ACTIVE and row.next_at is not None)


def _bins(past: Sequence[Past], *, since: datetime, until: datetime) -> tuple[Bin, ...]:
    """The time behind us in sixty pieces, or in minutes where it is shorter than an hour."""
    width = max(MINUTE, (until - since) / 60)
    count = max(1, -(-(until - since) // width))
    pieces: list[list[Past]] = [[] for _ in range(count)]
    for one in past:
        place = int((one.planned_at - since) / width)
        if 0 <= place < count:
            pieces[place].append(one)
    return tuple(_bin(since + place * width, inside) for place, inside in enumerate(pieces))


def _bin(at: datetime, past: Sequence[Past]) -> Bin:
    late = [max(ZERO, one.late_by) for one in past if one.late_by is not None]
    return Bin(at=at, outcomes=dict(sorted(Counter(one.state for one in past).items())), delay=spread(late))


def _within(length: timedelta) -> timedelta:
    """A length between a minute and a week, whatever was asked for."""
    return min(max(length, MINUTE), 7 * DAY)
