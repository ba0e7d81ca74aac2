"""Backfills: runs past occurrences of a schedule again, or for the first time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import check_storable, format_instant
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import After, Manual
from timewright.core.run.admission import Fire, Hold, InFlightCounts
from timewright.core.run.run import Run
from timewright.core.schedule.decision import Source
from timewright.core.schedule.due import list_occurrences, undecided_after
from timewright.errors import InvalidInput
from timewright.ledger.fact_builders import new_run_facts
from timewright.ledger.lookups import CalendarLookup, load_calendars
from timewright.ledger.manual_runs import CreatedRuns, build_manual_run, check_runnable
from timewright.ledger.replan import Actor, lock_schedule, schedule_audit_entry
from timewright.ports import Ids, ProgressUpdate, RunFilter, ScheduleRecord, Store, Transaction

MAX_BACKFILL_RUNS = 10_000

_MICROSECOND = timedelta(microseconds=1)
_PAGE_ROWS = 1_000
# Rows per insert: the next rows are built while the store writes these.
_INSERT_ROWS = 100


def backfill(
    store: Store,
    schedule_id: str,
    *,
    since: datetime,
    until: datetime,
    ids: Ids,
    by: Actor,
    now: datetime,
    dry_run: bool = False,
) -> CreatedRuns:
    """Run past occurrences again, or for the first time; existing rows stay, and the new run refers to them.

    Except with overlap `allow`, the runs follow each other. Occurrences that are not decided yet are left
    to their own admission.
    """

    def work(tx: Transaction) -> CreatedRuns:
        record = lock_schedule(tx, schedule_id)
        check_runnable(record)
        calendars = load_calendars(tx, [record.schedule])
        instants = _past_instants(record, calendars, since=since, until=until, now=now)
        if not instants:
            return CreatedRuns(runs=())
        rows = _rows_of(tx, schedule_id, first=instants[0])
        built = _build_runs(record, instants, rows, ids=ids, by=by, now=now)
        if dry_run:
            return CreatedRuns(runs=tuple(built))
        runs: list[Run] = []
        facts: list[Fact] = []
        while rows := list(islice(built, _INSERT_ROWS)):
            tx.add_unique_runs(rows)
            runs += rows
            facts += [fact for run in rows for fact in new_run_facts(run, now=now)]
        tx.save_progress([ProgressUpdate(record.schedule.id, record.progress, runs[-1].id)])
        tx.add_audit(
            [schedule_audit_entry(record.schedule, "backfill", by=by, now=now, after=f"{len(runs)} runs")]
        )
        return CreatedRuns(runs=tuple(runs), facts=tuple(facts))

    return store.write(work)


def _past_instants(
    record: ScheduleRecord, calendars: CalendarLookup, *, since: datetime, until: datetime, now: datetime
) -> list[datetime]:
    """The occurrences between two instants that are decided, or lie before the schedule was made."""
    if isinstance(record.schedule.trigger, Manual | After):
        raise InvalidInput(
            f"{record.schedule.trigger.describe()} has no past occurrences of its own",
            field="schedule_id",
            value=record.schedule.id,
            rule="a backfill needs a trigger with instants",
            fix="use `schedule run` to make one run now",
        )
    found = list_occurrences(
        record.schedule,
        check_storable(since, field="since") - _MICROSECOND,
        min(check_storable(until, field="until"), now, undecided_after(record.progress)),
        calendars=calendars.for_schedule(record.schedule),
        limit=MAX_BACKFILL_RUNS,
    )
    if found.more:
        raise InvalidInput(
            f"more than {MAX_BACKFILL_RUNS} occurrences between since and until",
            field="since",
            value=format_instant(since),
            rule=f"at most {MAX_BACKFILL_RUNS} at a time",
            fix=f"use until {format_instant(found.occurrences[-1].at)}, then continue from there",
        )
    return [occurrence.at for occurrence in found.occurrences if not occurrence.excluded]


def _rows_of(tx: Transaction, schedule_id: str, *, first: datetime) -> list[Run]:
    """The rows of occurrences, from the newest back to `first`."""
    rows: list[Run] = []
    for run in _iter_history(tx, schedule_id):
        if not run.dedupe_scope:
            rows.append(run)
            if run.planned_at <= first:
                break
    return rows


def _iter_history(tx: Transaction, schedule_id: str) -> Iterator[Run]:
    which = RunFilter(schedule_id=schedule_id, limit=_PAGE_ROWS)
    while True:
        page = tx.find_runs(which)
        yield from page.rows
        if not page.cursor:
            return
        which = replace(which, cursor=page.cursor)


def _build_runs(
    record: ScheduleRecord,
    instants: Sequence[datetime],
    rows: Sequence[Run],
    *,
    ids: Ids,
    by: Actor,
    now: datetime,
) -> Iterator[Run]:
    """Build a run for each instant, each linked to the one before."""
    exact = {run.planned_at: run.id for run in rows}
    spans = [run for run in rows if run.last_of is not None]
    together = record.schedule.overlap is Overlap.ALLOW
    clear = record.in_flight == InFlightCounts()
    newest = record.last_run
    for at in instants:
        verdict_type = Fire if together or (clear and at is instants[0]) else Hold
        verdict = verdict_type(planned_at=at, fire_at=now, source=Source.BACKFILL)
        run = build_manual_run(record, verdict, ids=ids, by=by, now=now, previous=newest)
        over = exact.get(at) or next(
            (s.id for s in spans if s.last_of and s.planned_at <= at <= s.last_of), ""
        )
        yield replace(run, backfill_of=over) if over else run
        newest = run.id
