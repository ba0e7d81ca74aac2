"""Outcomes, lost leases, cancels and resets: what they mean, written once, behind the fence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import (
    AnswerStale,
    CancelRequested,
    Fact,
    LeaseLost,
    RunCancelled,
    RunFailed,
    RunParked,
    RunReleased,
    RunReset,
    RunWillRetry,
)
from timewright.core.lifecycle import RunEvent, Settlement, anew, run_after, settle
from timewright.core.policies import Delivery
from timewright.core.run import Cancelled, Lost, Reason, Run, RunState, Succeeded
from timewright.core.schedule import ScheduleState
from timewright.errors import NotAllowed, NotFound, OutcomeUnknown
from timewright.ledger.budgets import has_charges, settle_charges
from timewright.ledger.endings import end_runs, hold_schedules, let_go
from timewright.ledger.shelf import Under, readable_schedules, terms_for
from timewright.ledger.telling import about, succeeded
from timewright.ledger.unfold import NOTHING, Moved, advance, reopened, stop, unparked
from timewright.ledger.unfold_launch import Answered, begin
from timewright.ledger.windows import Ended
from timewright.ports import Change, Due, Entry, Store, Transaction

_SURE = (Succeeded, Cancelled)


class Answer(Answered, frozen=True, kw_only=True, gc=False):
    """The outcome of one lease; `run` is the run as it was leased, with its fence."""


class Settled(Struct, frozen=True, kw_only=True):
    """What became of answers: the facts, and which runs' answers came too late."""

    facts: tuple[Fact, ...] = ()
    stale: tuple[str, ...] = ()
    ended: tuple[Run, ...] = ()


def settle_answers(store: Store, answers: Sequence[Answer], *, now: datetime) -> Settled:
    """Write the outcomes of leases; one whose lease was lost changes nothing and is counted as stale.

    The same answer a second time changes nothing either, and is not stale.
    """
    if not answers:
        return Settled()
    try:
        return store.write(lambda tx: _settle(tx, answers, now=now))
    except OutcomeUnknown:
        # Run again: what was written already is recognised by its attempt, and only told.
        return store.write(lambda tx: _settle(tx, answers, now=now, again=True))


def reclaim(store: Store, *, now: datetime, limit: int) -> Settled:
    """Take back leases that are over; each counts one attempt, unless the run was asked to stop."""

    def work(tx: Transaction) -> Settled:
        lost = tx.expired_leases(now=now, limit=limit)
        answers = [Answer(run=run, outcome=Lost(), started_at=run.leased_at) for run in lost]
        settled = _settle(tx, answers, now=now) if answers else Settled()
        told = [LeaseLost(fence=run.fence, holder=run.holder, **about(run, now=now)) for run in lost]
        return replace(settled, facts=(*told, *settled.facts))

    return store.write(work)


def free_held(store: Store, *, now: datetime, limit: int = 100) -> tuple[Fact, ...]:
    """Let the first held run of each schedule go whose predecessor is settled."""
    return store.write(lambda tx: tuple(let_go(tx, now=now, limit=limit)))


def cancel(
    store: Store, run_id: str, *, actor: str, origin: str = "human", reason: str, now: datetime
) -> tuple[Fact, ...]:
    """Stop a run: at once if nobody holds it, otherwise its holder is asked and has its grace."""

    def work(tx: Transaction) -> tuple[Fact, ...]:
        run, _ = _must_find(tx, run_id)
        under = terms_for(tx, [run])[run.id]
        why = reason or Reason.BY_HAND.value
        tx.add_audit([_entry(run, "run.cancel", actor=actor, origin=origin, reason=reason, now=now)])
        if run.state is RunState.LEASED:
            # It may have been leased since our clock was read: the grace counts from its beginning at least.
            until = max(now, run.leased_at or now) + under.terms.lease.grace
            tx.ask_to_cancel([(run.id, until)], at=now, reason=why)
            ends = go_on(tx, stop(tx, [replace(run, reason=why)], reason=why, now=now), now=now)
            return (CancelRequested(reason=why, **about(run, now=now)), *ends)
        after = replace(run, state=run_after(run.state, RunEvent.CANCEL), reason=why, finished_at=now)
        _must_change(tx, after, run)
        waited = run.state in (RunState.READY, RunState.HELD)
        ends = end_runs(tx, [(after, under.schedule)], now=now) if waited else []
        if run.parent:
            ends += go_on(tx, advance(tx, [after], was_parked=not waited, now=now), now=now)
        return (RunCancelled(reason=why, **about(run, now=now)), *ends)

    return store.write(work)


def reset(
    store: Store, run_id: str, *, actor: str, origin: str = "human", reason: str = "", now: datetime
) -> tuple[Fact, ...]:
    """Give a parked run its attempts back; the only way out of park, and always by someone with a name."""
    return _restart(store, run_id, event=RunEvent.RESET, actor=actor, origin=origin, reason=reason, now=now)


def reopen(
    store: Store, run_id: str, *, actor: str, origin: str = "human", reason: str = "", now: datetime
) -> tuple[Fact, ...]:
    """Try a failed or cancelled run again: the same row, and the fence goes on."""
    return _restart(store, run_id, event=RunEvent.REOPEN, actor=actor, origin=origin, reason=reason, now=now)


def _restart(
    store: Store, run_id: str, *, event: RunEvent, actor: str, origin: str, reason: str, now: datetime
) -> tuple[Fact, ...]:
    if not actor:
        raise NotAllowed(
            f"{event} needs an actor", field="actor", rule="who does it is recorded", fix="name the actor"
        )

    def work(tx: Transaction) -> tuple[Fact, ...]:
        run, due = _must_find(tx, reopened(tx, run_id) if event is RunEvent.REOPEN else run_id)
        run_after(run.state, event)
        _refuse_archived(run, due)
        busy = run.alone and due is not None and (due.flight.live or due.flight.held)
        after = anew(run, RunEvent.HOLD if busy else event, now=now)
        _must_change(tx, after, run)
        unparked(tx, run)
        tx.add_audit([_entry(run, f"run.{event}", actor=actor, origin=origin, reason=reason, now=now)])
        return (RunReset(actor=actor, **about(run, now=now)),)

    return store.write(work)


def _settle(tx: Transaction, answers: Sequence[Answer], *, now: datetime, again: bool = False) -> Settled:
    newest = _newest(answers)
    under = terms_for(tx, [answer.run for answer in newest.values()])
    begun = begin(tx, newest, under, now=now)
    due = begun.answers
    # Schedules before runs: everyone takes their locks in this order.
    held = hold_schedules(tx, ((under[i].schedule, answer.outcome) for i, answer in due.items()))
    asked = _asked_to_stop(tx, due.values())
    settlements = {i: _settlement(a, under[i], asked=asked.get(i), now=now) for i, a in due.items()}
    kept = tx.settle_runs([(s.run, s.attempt) for s in settlements.values()])
    known: set[str] = set()
    late: list[Answer] = []
    if len(kept) < len(answers):
        known = _written_before(tx, [s for i, s in settlements.items() if i not in kept])
        written = kept | known | begun.done
        late = [a for a in answers if a is not newest[a.run.id] or a.run.id not in written]
    told = kept | known if again else kept
    ended = [s.run for i, s in settlements.items() if s.finished and i in kept]
    facts = [
        *(_told(s, now=now) for i, s in settlements.items() if i in told),
        *(_stale(answer.run, now=now) for answer in late),
        *end_runs(tx, [(run, under[run.id].schedule) for run in ended], now=now, held=held),
    ]
    if begun.moved is not NOTHING or any(run.parent for run in ended):
        facts += [*go_on(tx, begun.moved, now=now), *go_on(tx, advance(tx, ended, now=now), now=now)]
    if has_charges(tx, due, under):
        over = [Ended(s, under[i], due[i].outcome) for i, s in settlements.items() if i in kept]
        facts += settle_charges(tx, over, now=now)
    return Settled(facts=tuple(facts), stale=tuple(a.run.id for a in late), ended=tuple(ended))


def _newest(answers: Sequence[Answer]) -> dict[str, Answered]:
    """Of each run the answer of its last lease."""
    found: dict[str, Answered] = {answer.run.id: answer for answer in answers}
    if len(found) < len(answers):
        found = {answer.run.id: answer for answer in sorted(answers, key=lambda answer: answer.run.fence)}
    return found


def go_on(tx: Transaction, moved: Moved, *, now: datetime) -> list[Fact]:
    """Settle the workflow runs that are over; each may be a step of another."""
    over = [Answer(run=one.run, outcome=one.outcome, started_at=one.run.started_at) for one in moved.over]
    return [*moved.facts, *(_settle(tx, over, now=now).facts if over else ())]


def _asked_to_stop(tx: Transaction, answers: Iterable[Answered]) -> dict[str, Run]:
    """Those that were asked to stop since they were leased; what succeeded all the same needs no look."""
    unsure = [a.run.id for a in answers if not isinstance(a.outcome, _SURE)]
    found = tx.get_runs(unsure, lock=True) if unsure else {}
    return {i: run for i, run in found.items() if run.cancel_at is not None}


def _settlement(answer: Answered, under: Under, *, asked: Run | None, now: datetime) -> Settlement:
    run, terms, outcome = answer.run, under.terms, answer.outcome
    if run.started_at is not None and answer.started_at is None:
        run = replace(run, started_at=None)
    # Asked to stop, whatever it died of is a cancel; but where an answer must come, silence stays silence.
    silent = isinstance(outcome, Lost) and terms.delivery is Delivery.AT_MOST_ONCE
    if asked is not None and not silent:
        outcome = Cancelled(reason=asked.reason or Reason.BY_HAND.value, cost=outcome.cost)
    return settle(
        run,
        outcome,
        retry=terms.retry,
        delivery=terms.delivery,
        started_at=answer.started_at,
        now=now,
    )


def _written_before(tx: Transaction, missing: Sequence[Settlement]) -> set[str]:
    """Those whose lease ended exactly so already: an answer that is given twice."""
    if not missing:
        return set()
    ends = tx.get_attempts([s.run.id for s in missing])
    return {
        s.run.id
        for s in missing
        if any(
            (a.fence, a.lease_id, a.outcome) == (s.attempt.fence, s.attempt.lease_id, s.attempt.outcome)
            for a in ends.get(s.run.id, ())
        )
    }


def _stale(run: Run, *, now: datetime) -> Fact:
    return AnswerStale(at=now, namespace=run.namespace, run_id=run.id, fence=run.fence)


def _told(s: Settlement, *, now: datetime) -> Fact:
    run, fence = s.run, s.attempt.fence
    if s.event is RunEvent.SUCCEED:
        return succeeded(run, fence=fence, now=now)
    start = about(run, now=now)
    if s.event is RunEvent.RETRY:
        return RunWillRetry(fence=fence, attempts=run.attempts, error=run.error, fire_at=run.fire_at, **start)
    if s.event is RunEvent.RELEASE:
        return RunReleased(fence=fence, reason=run.reason, **start)
    if s.event is RunEvent.PARK:
        return RunParked(fence=fence, attempts=run.attempts, reason=run.reason, error=run.error, **start)
    if s.event is RunEvent.CANCEL:
        return RunCancelled(reason=run.reason, **start)
    return RunFailed(fence=fence, attempts=run.attempts, error=run.error, **start)


def _must_find(tx: Transaction, run_id: str) -> tuple[Run, Due | None]:
    """A run and its schedule, both locked, the schedule first."""
    seen = tx.get_runs([run_id]).get(run_id)
    due = None
    if seen is not None and seen.schedule_id:
        due = readable_schedules(tx, [seen.schedule_id]).get(seen.schedule_id)
    run = tx.get_runs([run_id], lock=True).get(run_id)
    if run is None:
        raise NotFound(f"no run {run_id}", field="run_id", value=run_id, fix="run list shows the ids")
    return run, due


def _refuse_archived(run: Run, due: Due | None) -> None:
    if due is not None and due.standing.state is ScheduleState.ARCHIVED:
        raise NotAllowed(
            f"run {run.id} belongs to {due.schedule.name}, which is archived",
            field="run_id",
            value=run.id,
            rule="an archived schedule never runs again",
            fix="make a new schedule",
        )


def _must_change(tx: Transaction, after: Run, was: Run) -> None:
    if not tx.change_runs([Change(after, was.state, was.fence)]):
        raise NotAllowed(
            f"run {was.id} changed meanwhile",
            field="run_id",
            value=was.id,
            rule="a run is changed from the state it was read in",
            fix="look again and repeat",
        )


def _entry(run: Run, action: str, *, actor: str, origin: str, reason: str, now: datetime) -> Entry:
    return Entry(
        at=now,
        namespace=run.namespace,
        actor=actor,
        origin=origin,
        action=action,
        subject=run.id,
        before=run.state.value,
        reason=reason,
    )
