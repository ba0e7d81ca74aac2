"""Past occurrences are run again, or for the first time; what is written of them stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from timewright.core.admission import Fire, Flight, Hold
from timewright.core.decision import Source
from timewright.core.due import enumerated, open_from
from timewright.core.facts import Fact
from timewright.core.moments import check_stored, spell_instant
from timewright.core.policies import Overlap
from timewright.core.run import Run
from timewright.core.triggers import After, Manual
from timewright.errors import InvalidInput
from timewright.ledger.by_hand import Made, by_hand, refuse_retired
from timewright.ledger.replan import By, entry_of, must_find
from timewright.ledger.shelf import Calendars, calendars_for
from timewright.ledger.telling import new_run
from timewright.ports import Due, Ids, RunFilter, Stood, Store, Transaction

MOST_BACKFILL = 10_000

_TICK = timedelta(microseconds=1)
_PAGE = 1_000
# So many are made while the store writes as many as were made before.
_PART = 100


def backfill(
    store: Store,
    schedule_id: str,
    *,
    since: datetime,
    until: datetime,
    ids: Ids,
    by: By,
    now: datetime,
    dry_run: bool = False,
) -> Made:
    """Run past occurrences again, or for the first time; a row that is there stays, the new run names it.

    All but `allow` run them one after another. What is still open is left to its own admission.
    """

    def work(tx: Transaction) -> Made:
        due = must_find(tx, schedule_id)
        refuse_retired(due)
        calendars = calendars_for(tx, [due.schedule])
        instants = _past_instants(due, calendars, since=since, until=until, now=now)
        if not instants:
            return Made(runs=())
        rows = _rows_of(tx, schedule_id, first=instants[0])
        made = _backfilled(due, instants, rows, ids=ids, by=by, now=now)
        if dry_run:
            return Made(runs=tuple(made))
        runs: list[Run] = []
        facts: list[Fact] = []
        while part := list(islice(made, _PART)):
            tx.add_new_runs(part)
            runs += part
            facts += [fact for run in part for fact in new_run(run, now=now)]
        tx.stand([Stood(due.schedule.id, due.standing, runs[-1].id)])
        tx.add_audit([entry_of(due.schedule, "backfill", by=by, now=now, after=f"{len(runs)} runs")])
        return Made(runs=tuple(runs), facts=tuple(facts))

    return store.write(work)


def _past_instants(
    due: Due, calendars: Calendars, *, since: datetime, until: datetime, now: datetime
) -> list[datetime]:
    """The occurrences between two instants that are decided, or lie before the schedule was made."""
    if isinstance(due.schedule.trigger, Manual | After):
        raise InvalidInput(
            f"{due.schedule.trigger.describe()} has no past occurrences of its own",
            field="schedule_id",
            value=due.schedule.id,
            rule="a backfill needs a trigger with instants",
            fix="schedule run makes one run now",
        )
    found = enumerated(
        due.schedule,
        check_stored(since, field="since") - _TICK,
        min(check_stored(until, field="until"), now, open_from(due.standing)),
        calendars=calendars.of(due.schedule),
        limit=MOST_BACKFILL,
    )
    if found.more:
        raise InvalidInput(
            f"more than {MOST_BACKFILL} occurrences between since and until",
            field="since",
            value=spell_instant(since),
            rule=f"at most {MOST_BACKFILL} at a time",
            fix=f"until {spell_instant(found.occurrences[-1].at)}, then go on from there",
        )
    return [occurrence.at for occurrence in found.occurrences if not occurrence.excluded]


def _rows_of(tx: Transaction, schedule_id: str, *, first: datetime) -> list[Run]:
    """The rows of occurrences from the newest back to an instant."""
    rows: list[Run] = []
    for run in _history(tx, schedule_id):
        if not run.lane:
            rows.append(run)
            if run.planned_at <= first:
                break
    return rows


def _history(tx: Transaction, schedule_id: str) -> Iterator[Run]:
    which = RunFilter(schedule_id=schedule_id, limit=_PAGE)
    while True:
        page = tx.find_runs(which)
        yield from page.rows
        if not page.cursor:
            return
        which = replace(which, cursor=page.cursor)


def _backfilled(
    due: Due, instants: Sequence[datetime], rows: Sequence[Run], *, ids: Ids, by: By, now: datetime
) -> Iterator[Run]:
    """A run for each instant, after the one before it."""
    exact = {run.planned_at: run.id for run in rows}
    spans = [run for run in rows if run.last_of is not None]
    together = due.schedule.overlap is Overlap.ALLOW
    clear = due.flight == Flight()
    newest = due.last_run
    for at in instants:
        fate = Fire if together or (clear and at is instants[0]) else Hold
        verdict = fate(planned_at=at, fire_at=now, source=Source.BACKFILL)
        run = by_hand(due, verdict, ids=ids, by=by, now=now, previous=newest)
        over = exact.get(at) or next(
            (s.id for s in spans if s.last_of and s.planned_at <= at <= s.last_of), ""
        )
        yield replace(run, backfill_of=over) if over else run
        newest = run.id
