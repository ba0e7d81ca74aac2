"""Runs that someone makes by hand: now, or into a queue; and a next time that is left out or moved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.admission import Fire, Replace, Skip, Verdict
from timewright.core.catch_up import Chosen, overlapped
from timewright.core.decision import Decision, Source
from timewright.core.facts import Fact
from timewright.core.following import follows
from timewright.core.governor import plan_next
from timewright.core.moments import check_stored, spell_instant
from timewright.core.run import Reason, Run, RunState
from timewright.core.schedule import ScheduleState, Standing, decided, queue_gate
from timewright.core.triggers import After
from timewright.errors import Conflict, InvalidInput, NotAllowed, OutcomeUnknown
from timewright.ledger.admission_pass import run_of
from timewright.ledger.following import take_first_end
from timewright.ledger.replan import By, Changed, entry_of, must_find
from timewright.ledger.shelf import calendars_for
from timewright.ledger.standings import finished_if_over
from timewright.ledger.supersede import make_way
from timewright.ledger.telling import new_run, schedule_moved, schedule_stopped
from timewright.ports import Due, Ids, Stood, Store, Transaction

_RETIRED = (ScheduleState.ARCHIVED, ScheduleState.PENDING_APPROVAL)


class Made(Struct, frozen=True, kw_only=True):
    """Runs that were made by hand, and what happened."""

    runs: tuple[Run, ...]
    facts: tuple[Fact, ...] = ()


def run_now(
    store: Store,
    schedule_id: str,
    *,
    ids: Ids,
    by: By,
    now: datetime,
    force: bool = False,
    client_key: str = "",
    payload: Any = None,
    at: datetime | None = None,
) -> Made:
    """Make a run by hand; it obeys overlap unless forced, and the same client key gives the same run.

    One that is made for an instant ahead waits for nobody else's end when that instant comes.
    """

    def work(tx: Transaction) -> Made:
        due = must_find(tx, schedule_id)
        known = _known(tx, schedule_id, client_key)
        if known is not None:
            return Made(runs=(known,))
        refuse_retired(due)
        if at is not None:
            _check_ahead(at, field="at", what="an extra run is for", now=now)
        verdict = _verdict(due, force=force or at is not None, now=at or now)
        run = by_hand(due, verdict, ids=ids, by=by, now=now, previous=due.last_run)
        run = replace(run, alone=run.alone and not force and at is None, payload=payload)
        facts: tuple[Fact, ...] = ()
        if isinstance(verdict, Replace):
            way = make_way(tx, due.schedule, now=now)
            facts = way.facts
            run = replace(run, state=RunState.READY) if way.clear else run
        if client_key:
            tx.put_meta(_client(schedule_id, client_key), run.id)
        write_runs(tx, due, [run], due.standing)
        tx.add_audit([entry_of(due.schedule, "run", by=by, now=now, after=run.id)])
        return Made(runs=(run,), facts=(*facts, *new_run(run, now=now)))

    return store.write(work)


def skip_next(store: Store, schedule_id: str, *, ids: Ids, by: By, now: datetime) -> Changed:
    """Leave the next occurrence out: it gets its row now, and the one after it is next."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        run, standing = _left_out(tx, due, ids=ids, by=by, now=now)
        write_runs(tx, due, [run], standing)
        tx.add_audit([entry_of(due.schedule, "skip", by=by, now=now, after=spell_instant(run.planned_at))])
        facts = (*new_run(run, now=now), _next(due, standing, now=now))
        return Changed(schedule=due.schedule, standing=standing, facts=facts)

    return store.write(work)


def move_next(store: Store, schedule_id: str, *, to: datetime, ids: Ids, by: By, now: datetime) -> Made:
    """Run the next occurrence at another instant: its own is left out, a run by hand waits for the new one.

    A moved run waits for nobody else's end when its instant comes.
    """
    _check_ahead(to, field="to", what="an occurrence is moved to", now=now)

    def work(tx: Transaction) -> Made:
        due = must_find(tx, schedule_id)
        out, standing = _left_out(tx, due, ids=ids, by=by, now=now)
        fire = Fire(planned_at=to, fire_at=to, source=Source.MANUAL)
        run = replace(by_hand(due, fire, ids=ids, by=by, now=now, previous=out.id), alone=False)
        write_runs(tx, due, [out, run], standing)
        moved = f"{spell_instant(out.planned_at)} to {spell_instant(to)}"
        tx.add_audit([entry_of(due.schedule, "move", by=by, now=now, after=moved)])
        facts = (*new_run(out, now=now), *new_run(run, now=now), _next(due, standing, now=now))
        return Made(runs=(out, run), facts=facts)

    return store.write(work)


def enqueue(
    store: Store,
    *,
    namespace: str,
    queue: str,
    payloads: Sequence[Any],
    ids: Ids,
    by: By,
    now: datetime,
    priority: int = 100,
    not_before: datetime | None = None,
) -> Made:
    """Put entries into a queue; each is a run without a schedule that someone outside leases."""
    runs = [
        Run(
            id=(run_id := ids.new("run", now=now)),
            namespace=namespace,
            lane=run_id,
            planned_at=now,
            fire_at=not_before or now,
            state=RunState.READY,
            source=Source.MANUAL,
            queue=queue,
            gates=(queue_gate(namespace, queue),),
            priority=priority,
            alone=False,
            handoff=True,
            created_at=now,
            made_by=by.actor,
            payload=payload,
        )
        for payload in payloads
    ]
    try:
        store.write(lambda tx: tx.add_new_runs(runs))
    except OutcomeUnknown:
        # The ids were chosen before the commit, so the store can tell whether it happened, or happens now.
        if runs and not store.read(lambda tx: tx.get_runs([runs[0].id])):
            with suppress(Conflict):
                store.write(lambda tx: tx.add_new_runs(runs))
    return Made(runs=tuple(runs), facts=tuple(fact for run in runs for fact in new_run(run, now=now)))


def _check_ahead(at: datetime, *, field: str, what: str, now: datetime) -> None:
    if check_stored(at, field=field) <= now:
        raise InvalidInput(
            f"{field} {spell_instant(at)} is not ahead",
            field=field,
            value=spell_instant(at),
            rule=f"{what} an instant after now",
            fix="a later instant, or schedule run for now",
        )


def _client(schedule_id: str, client_key: str) -> str:
    return f"client:{schedule_id}:{client_key}"


def _known(tx: Transaction, schedule_id: str, client_key: str) -> Run | None:
    """The run that was made with this key before, while its row is kept."""
    run_id = tx.get_meta(_client(schedule_id, client_key)) if client_key else None
    return tx.get_runs([run_id]).get(run_id) if run_id else None


def refuse_retired(due: Due) -> None:
    """Refuse to make runs of a schedule that may not have any."""
    if due.standing.state in _RETIRED:
        raise NotAllowed(
            f"schedule {due.schedule.name} is {due.standing.state}",
            field="state",
            value=due.standing.state.value,
            rule="an archived schedule, or one that waits for approval, does not run",
            fix="schedule get shows its state and reason",
        )


def _verdict(due: Due, *, force: bool, now: datetime) -> Verdict:
    if force:
        return Fire(planned_at=now, fire_at=now, source=Source.MANUAL)
    (fate,) = overlapped(due.schedule, [Chosen(now, now)], flight=due.flight)
    if isinstance(fate, Reason):
        return Skip(planned_at=now, reason=fate, source=Source.MANUAL)
    return fate(planned_at=now, fire_at=now, source=Source.MANUAL)


def by_hand(due: Due, verdict: Verdict, *, ids: Ids, by: By, now: datetime, previous: str) -> Run:
    """A run in a lane of its own, so that it never stands for an occurrence."""
    run_id = ids.new("run", now=max(now, verdict.planned_at))
    run = run_of(due.schedule, verdict, run_id=run_id, now=now, previous=previous)
    return replace(run, lane=run.id, made_by=by.actor)


def write_runs(tx: Transaction, due: Due, runs: Sequence[Run], standing: Standing) -> None:
    """Write runs that follow each other, and where their schedule stands after them."""
    tx.add_runs(runs)
    tx.stand([Stood(due.schedule.id, standing, runs[-1].id)])


def _left_out(tx: Transaction, due: Due, *, ids: Ids, by: By, now: datetime) -> tuple[Run, Standing]:
    """The row of the next occurrence, skipped by hand, and where the schedule stands without it.

    The end that it was to follow is decided with it: otherwise that would be followed a moment later.
    """
    schedule, standing = due.schedule, due.standing
    at = standing.next_at
    planned = standing.state is ScheduleState.ACTIVE and standing.source is not Source.PAUSED
    if not planned or at is None or at <= now:
        raise NotAllowed(
            f"schedule {schedule.name} has no next time that can be left out",
            field="state",
            value=standing.state.value,
            rule="it is active, and its next time lies ahead",
            fix="schedule get shows its state and its next time",
        )
    source = standing.source or Source.MANUAL
    skip = Skip(planned_at=at, reason=Reason.BY_HAND, source=source)
    # Its id is that of the instant it is about, so that runs sort by when they were to happen.
    run_id = ids.new("run", now=at)
    run = run_of(schedule, skip, run_id=run_id, now=now, previous=due.last_run)
    standing = replace(standing, cursor=at, hints=standing.hints.consumed(now=at))
    if follows(schedule.trigger):
        decision = Decision(take_first_end(tx, due, run), source)
    elif isinstance(schedule.trigger, After):
        decision = Decision(schedule.trigger.next_after(at), source)
    else:
        calendars = calendars_for(tx, [schedule])
        decision = plan_next(schedule, standing, now=at, calendars=calendars.of(schedule))
    standing = finished_if_over(schedule, decided(schedule, standing, decision), flight=due.flight)
    return replace(run, made_by=by.actor), standing


def _next(due: Due, standing: Standing, *, now: datetime) -> Fact:
    if standing.state is not due.standing.state:
        return schedule_stopped(due.schedule, standing, now=now)
    decision = Decision(standing.next_at, standing.source or Source.MANUAL)
    return schedule_moved(due.schedule, decision, now=now)
