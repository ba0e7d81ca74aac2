"""What people do with a schedule's occurrences: run one now, again, not at all, or at another time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.run import Run
from timewright.errors import Conflict
from timewright.ledger.backfill import backfill
from timewright.ledger.by_hand import move_next, run_now, skip_next
from timewright.ledger.notes import carry_note
from timewright.operations.context import Context, together
from timewright.operations.drafts import detail_of
from timewright.operations.find import find_schedule
from timewright.operations.registry import Named, Write, operations
from timewright.operations.views import RunDetail, RunRow, ScheduleDetail, run_detail, run_row
from timewright.ports import Due

MOST_SHOWN = 1000
MOST_SKIPPED = 100


class RunNow(Write, frozen=True, kw_only=True):
    """Which schedule to run now, or once more `at` an instant ahead.

    `force` overrules its overlap; the same client key gives the same run.
    """

    schedule: Named
    at: datetime | None = None
    force: bool = False
    payload: Any = None
    client_key: Annotated[str, Meta(max_length=255)] = ""


class Backfill(Write, frozen=True, kw_only=True):
    """Which past occurrences of a schedule to run, both ends included; without an end up to now."""

    schedule: Named
    since: datetime
    until: datetime | None = None


class Backfilled(Struct, frozen=True, kw_only=True):
    """The runs that were made, oldest first; `shown` of them are here."""

    schedule: str
    count: int
    shown: int
    runs: tuple[RunRow, ...]


class Skip(Write, frozen=True, kw_only=True):
    """Of which schedule to leave the next occurrence out, or the next few."""

    schedule: Named
    count: Annotated[int, Meta(ge=1, le=MOST_SKIPPED)] = 1


class Move(Write, frozen=True, kw_only=True):
    """Of which schedule to run the next occurrence at another instant."""

    schedule: Named
    to: datetime


class Moved(Struct, frozen=True, kw_only=True):
    """The occurrence that is left out, and the run that takes its place."""

    left_out: RunRow
    run: RunRow


@operations.add(
    "schedule",
    "run",
    RunNow,
    scope="trigger",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "client_key": "ticket-17", "payload": {"day": "2026-03-09"}},
        {"schedule": "nightly-report", "at": "2026-03-10T18:00:00Z", "reason": "month end"},
    ),
)
def run_schedule(context: Context, ask: RunNow) -> RunDetail:
    """Run a schedule now, or once more at an instant ahead; its next time stays as it was."""
    now = context.now()

    def work(inside: Context) -> RunDetail:
        due = _find(inside, ask.schedule)
        made = run_now(
            inside.store,
            due.schedule.id,
            ids=inside.ids,
            by=inside.because(ask.reason),
            now=now,
            force=ask.force,
            at=ask.at,
            client_key=ask.client_key,
            payload=ask.payload,
        )
        _check_same(made.runs[0], ask)
        inside.tell(made.facts)
        return inside.store.read(lambda tx: run_detail(tx, made.runs[0]))

    return together(context, work)


@operations.add(
    "schedule",
    "backfill",
    Backfill,
    scope="trigger",
    examples=(
        {"schedule": "nightly-report", "since": "2026-03-07T00:00:00Z", "until": "2026-03-09T00:00:00Z"},
        {"schedule": "nightly-report", "since": "2026-03-09T00:00:00Z", "dry_run": True},
    ),
)
def backfill_schedule(context: Context, ask: Backfill) -> Backfilled:
    """Run past occurrences, again or for the first time; what is written of them stays."""
    now = context.now()

    def work(inside: Context) -> Backfilled:
        due = _find(inside, ask.schedule)
        made = backfill(
            inside.store,
            due.schedule.id,
            since=ask.since,
            until=ask.until if ask.until is not None else now,
            ids=inside.ids,
            by=inside.because(ask.reason),
            now=now,
        )
        inside.tell(made.facts)
        rows = tuple(run_row(run, schedule=due.schedule.name) for run in made.runs[:MOST_SHOWN])
        return Backfilled(schedule=due.schedule.name, count=len(made.runs), shown=len(rows), runs=rows)

    return together(context, work)


@operations.add("schedule", "skip", Skip, scope="trigger", examples=({"schedule": "nightly-report"},))
def skip_occurrence(context: Context, ask: Skip) -> ScheduleDetail:
    """Leave the next occurrence out: it is recorded as skipped by hand, and the one after it is next."""
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        schedule_id = _find(inside, ask.schedule).schedule.id
        for _ in range(ask.count):
            by = inside.because(ask.reason)
            inside.tell(skip_next(inside.store, schedule_id, ids=inside.ids, by=by, now=now).facts)
        return detail_of(inside, schedule_id, now=now)

    return together(context, work)


@operations.add(
    "schedule",
    "move",
    Move,
    scope="trigger",
    examples=({"schedule": "nightly-report", "to": "2026-03-11T05:00:00Z"},),
)
def move_occurrence(context: Context, ask: Move) -> Moved:
    """Run the next occurrence at another instant: its own is left out, a run by hand takes its place."""
    now = context.now()

    def work(inside: Context) -> Moved:
        due = _find(inside, ask.schedule)
        made = move_next(
            inside.store,
            due.schedule.id,
            to=ask.to,
            ids=inside.ids,
            by=inside.because(ask.reason),
            now=now,
        )
        inside.tell(made.facts)
        left = made.runs[0].planned_at
        by = inside.because(ask.reason)
        inside.store.write(lambda tx: carry_note(tx, due.schedule, left, to=ask.to, by=by, now=now))
        out, run = (run_row(one, schedule=due.schedule.name) for one in made.runs)
        return Moved(left_out=out, run=run)

    return together(context, work)


def _find(context: Context, wanted: str) -> Due:
    return context.store.read(lambda tx: find_schedule(tx, context.namespace, wanted))


def _check_same(run: Run, ask: RunNow) -> None:
    if ask.client_key and run.payload != ask.payload:
        raise Conflict(
            f"client key {ask.client_key!r} stands for {run.id}, which has another payload",
            field="client_key",
            value=ask.client_key,
            rule="the same key comes with the same payload",
            fix="another client key",
        )
