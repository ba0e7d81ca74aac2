"""Starts, pauses, resumes and cancels backfills: past occurrences that run again, or for the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import check_storable, format_instant, to_micros
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import After, Manual
from timewright.core.run.admission import InFlightCounts
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.due import undecided_after
from timewright.core.schedule.instants import list_occurrences
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ledger.backfills.records import (
    DEFAULT_MAX_RUNNING,
    Backfill,
    BackfillEntry,
    BackfillState,
    build_entry_run,
    get_backfill,
    hand_out,
    is_backfill_run,
    put_backfill,
    put_entries,
)
from timewright.ledger.lookups import CalendarLookup, load_calendars, lock_schedule
from timewright.ledger.manual_runs import check_runnable
from timewright.ledger.replacement import cancel_runs
from timewright.ledger.replan import Actor, schedule_audit_entry
from timewright.ports import Ids, RunFilter, ScheduleRecord, Store, Transaction

MAX_BACKFILL_RUNS = 10_000

Only = Literal["all", "missed", "failed", "never"]

_MICROSECOND = timedelta(microseconds=1)
_PAGE_ROWS = 1_000
_UNFINISHED = (RunState.READY, RunState.HELD, RunState.LEASED)
_DONE = (*_UNFINISHED, RunState.SUCCEEDED)
_CHANGES = {
    BackfillState.PAUSED: (BackfillState.RUNNING,),
    BackfillState.RUNNING: (BackfillState.PAUSED, BackfillState.RUNNING),
    BackfillState.CANCELLED: (BackfillState.RUNNING, BackfillState.PAUSED),
}
_WORDS = {
    BackfillState.PAUSED: "paused",
    BackfillState.RUNNING: "resumed",
    BackfillState.CANCELLED: "cancelled",
}


class BackfillTerms(Struct, frozen=True, kw_only=True):
    """Which occurrences a backfill runs, and at which pace.

    `missed`: recorded as skipped because they were missed; `failed`: their run failed or was parked;
    `never`: nothing ran for them. With one of these, what a backfill ran or is running is left out, too.
    `every` is the time between two starts.
    """

    since: datetime
    until: datetime
    only: Only = "all"
    newest_first: bool = False
    max_running: int | None = None
    every: timedelta = timedelta(0)


class StartedBackfill(Struct, frozen=True, kw_only=True):
    """A new backfill, the runs that it makes in order, and facts; None if there was nothing to run."""

    backfill: Backfill | None = None
    runs: tuple[Run, ...] = ()
    facts: tuple[Fact, ...] = ()


def start_backfill(
    store: Store,
    schedule_id: str,
    terms: BackfillTerms,
    *,
    ids: Ids,
    by: Actor,
    now: datetime,
    dry_run: bool = False,
) -> StartedBackfill:
    """Run past occurrences again, or for the first time; existing rows stay, and the new run refers to them.

    Except with overlap `allow`, the runs follow each other. Occurrences that are not decided yet are left
    to their own admission.
    """

    def work(tx: Transaction) -> StartedBackfill:
        record = lock_schedule(tx, schedule_id)
        check_runnable(record)
        calendars = load_calendars(tx, [record.schedule])
        instants = _past_instants(record, calendars, since=terms.since, until=terms.until, now=now)
        rows = _rows_of(tx, schedule_id, first=instants[0]) if instants else []
        chosen = _choose(instants, rows, terms)
        if not chosen:
            return StartedBackfill()
        backfill = _new_backfill(record, terms, ids=ids, by=by, now=now, total=len(chosen))
        entries = _build_entries(chosen, rows, ids=ids, now=now)
        runs = _preview(record, backfill, entries, now=now)
        if dry_run:
            return StartedBackfill(backfill=backfill, runs=runs)
        put_entries(tx, backfill, entries, now=now)
        facts = hand_out(tx, backfill, record, now=now)
        tx.add_audit(
            [schedule_audit_entry(record.schedule, "backfill", by=by, now=now, after=f"{len(entries)} runs")]
        )
        written = get_backfill(tx, backfill.namespace, backfill.id)
        return StartedBackfill(backfill=written, runs=runs, facts=tuple(facts))

    return store.write(work)


def change_backfill(
    store: Store, namespace: str, backfill_id: str, to: BackfillState, *, by: Actor, now: datetime
) -> tuple[Backfill, tuple[Fact, ...]]:
    """Pause, resume or cancel a backfill. A cancel also cancels its runs that have not started."""

    def work(tx: Transaction) -> tuple[Backfill, tuple[Fact, ...]]:
        found = get_backfill(tx, namespace, backfill_id)
        if found is None:
            raise unknown_backfill(backfill_id)
        record = lock_schedule(tx, found.schedule_id)
        backfill = get_backfill(tx, namespace, backfill_id) or found
        if backfill.state not in _CHANGES[to]:
            raise NotAllowed(
                f"backfill {backfill_id} is {backfill.state.value}",
                field="backfill",
                value=backfill_id,
                rule=f"only a backfill that is {' or '.join(_CHANGES[to])} can be {_WORDS[to]}",
                fix="timewright backfill list",
            )
        facts: list[Fact] = []
        backfill = replace(backfill, state=to)
        live = tx.get_runs(backfill.open)
        still_open = tuple(i for i in backfill.open if i in live and live[i].state in _UNFINISHED)
        if to is BackfillState.CANCELLED:
            put_backfill(tx, backfill, now=now)
            waiting = [run for run in live.values() if run.state in (RunState.READY, RunState.HELD)]
            facts += cancel_runs(tx, waiting, now=now, reason=Reason.BY_HAND)
            still_open = tuple(i for i in still_open if i not in {run.id for run in waiting})
        facts += hand_out(tx, replace(backfill, open=still_open), record, now=now)
        word = _WORDS[to]
        tx.add_audit(
            [schedule_audit_entry(record.schedule, f"backfill_{word}", by=by, now=now, after=backfill_id)]
        )
        return get_backfill(tx, namespace, backfill_id) or backfill, tuple(facts)

    return store.write(work)


def unknown_backfill(backfill_id: str) -> NotFound:
    """The error for an id that no backfill has."""
    return NotFound(
        f"no backfill {backfill_id!r}",
        field="backfill",
        value=backfill_id,
        rule="the id of a backfill",
        fix="timewright backfill list",
    )


def _new_backfill(
    record: ScheduleRecord, terms: BackfillTerms, *, ids: Ids, by: Actor, now: datetime, total: int
) -> Backfill:
    together = record.schedule.overlap is Overlap.ALLOW
    max_running = terms.max_running or (DEFAULT_MAX_RUNNING if together else 1)
    if max_running > 1 and not together:
        raise InvalidInput(
            f"max_running {max_running} needs overlap: allow",
            field="max_running",
            value=max_running,
            rule=f"with overlap: {record.schedule.overlap.value}, one run of the schedule runs at a time",
            fix="leave it out, or change the overlap of the schedule",
        )
    return Backfill(
        id=ids.new("backfill", now=now),
        namespace=record.schedule.namespace,
        schedule_id=record.schedule.id,
        since=terms.since,
        until=terms.until,
        only=terms.only,
        newest_first=terms.newest_first,
        max_running=max_running,
        every=terms.every,
        created_at=now,
        created_by=by.name,
        total=total,
    )


def _choose(instants: Sequence[datetime], rows: Sequence[Run], terms: BackfillTerms) -> list[datetime]:
    """Return the instants that a backfill runs, in its order."""
    chosen = list(instants)
    if terms.only != "all":
        row_of = _rows_by_instant(rows)
        done = {run.planned_at for run in rows if is_backfill_run(run) and run.state in _DONE}
        matches = _MATCHES[terms.only]
        chosen = [at for at in instants if at not in done and matches(row_of(at))]
    return chosen[::-1] if terms.newest_first else chosen


def _build_entries(
    instants: Sequence[datetime], rows: Sequence[Run], *, ids: Ids, now: datetime
) -> list[BackfillEntry]:
    row_of = _rows_by_instant(rows)
    entries = []
    for at in instants:
        row = row_of(at)
        run_id = ids.new("run", now=max(now, at))
        entries.append(BackfillEntry(run_id, to_micros(at), row.id if row is not None else ""))
    return entries


def _rows_by_instant(rows: Sequence[Run]) -> Callable[[datetime], Run | None]:
    """Return a lookup of the row that decided an occurrence: its own, or one for several skipped instants."""
    own = {run.planned_at: run for run in rows if not run.dedupe_scope and run.last_of is None}
    spans = [run for run in rows if run.last_of is not None]

    def row_of(at: datetime) -> Run | None:
        spanning = (one for one in spans if one.last_of and one.planned_at <= at <= one.last_of)
        return own.get(at) or next(spanning, None)

    return row_of


def _preview(
    record: ScheduleRecord, backfill: Backfill, entries: Sequence[BackfillEntry], *, now: datetime
) -> tuple[Run, ...]:
    """Return the runs that the backfill makes, in order, with the times at which they may start."""
    clear, previous = record.in_flight == InFlightCounts(), record.last_run
    runs: list[Run] = []
    for number, entry in enumerate(entries):
        fire_at = now + number * backfill.every
        run = build_entry_run(
            record, entry, backfill, is_first=clear and not runs, fire_at=fire_at, now=now, previous=previous
        )
        runs.append(run)
        previous = run.id
    return tuple(runs)


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
    """The rows of a schedule, from the newest back to the occurrence at `first`."""
    rows: list[Run] = []
    for run in _iter_history(tx, schedule_id):
        rows.append(run)
        if not run.dedupe_scope and run.planned_at <= first:
            break
    return rows


def _iter_history(tx: Transaction, schedule_id: str) -> Iterator[Run]:
    which = RunFilter(schedule_id=schedule_id, limit=_PAGE_ROWS)
    while True:
        page = tx.find(which)
        yield from page.rows
        if not page.cursor:
            return
        which = replace(which, cursor=page.cursor)


def _was_missed(row: Run | None) -> bool:
    return row is not None and row.state is RunState.SKIPPED and row.reason == Reason.MISSED.value


def _has_failed(row: Run | None) -> bool:
    return row is not None and row.state in (RunState.FAILED, RunState.PARKED)


def _never_ran(row: Run | None) -> bool:
    return row is None or (row.state in (RunState.SKIPPED, RunState.CANCELLED) and row.started_at is None)


_MATCHES: dict[str, Callable[[Run | None], bool]] = {
    "missed": _was_missed,
    "failed": _has_failed,
    "never": _never_ran,
}
