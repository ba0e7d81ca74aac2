"""Settles outcomes, expired leases, cancels and resets; the fence guards that each is written once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
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
from timewright.core.policies.policies import Delivery
from timewright.core.run.lifecycle import (
    RunEvent,
    Settlement,
    next_run_state,
    restart_run,
    settle_outcome,
    settle_quiet,
    stop_deadline,
)
from timewright.core.run.needs import runs_command
from timewright.core.run.run import (
    HOLDER_DIED,
    Attempt,
    Cancelled,
    Failed,
    Lost,
    Reason,
    Run,
    RunState,
    Succeeded,
)
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import NotAllowed, NotFound, OutcomeUnknown
from timewright.ledger.alerts.deliveries import deliver_facts
from timewright.ledger.budgets.charges import EndedLease, may_change_budgets, settle_charges
from timewright.ledger.fact_builders import run_fields, skipped_fact, succeeded_fact
from timewright.ledger.lookups import RunTerms, load_terms, lock_readable_schedules
from timewright.ledger.records.schedule_states import fold_quiet_runs, judge_results, save_states
from timewright.ledger.run_ends import AttemptResult, apply_finished_runs, lock_schedules, release_held
from timewright.ledger.workflow_runs.advance import (
    NO_CHANGES,
    WorkflowChanges,
    advance_workflows,
    cancel_deadline,
    count_unparked,
    run_to_reopen,
    stop_workflows,
)
from timewright.ledger.workflow_runs.launch import launch_workflows
from timewright.ledger.workflow_runs.records import HELD_BY_WAIT
from timewright.ports import AuditEntry, RunChange, ScheduleRecord, Store, Transaction

# A requested cancel does not change these outcomes.
_FINAL_DESPITE_CANCEL = (Succeeded, Cancelled)


class SettleResult(Struct, frozen=True, kw_only=True):
    """What settling did: the facts, the runs whose results were stale, and the runs that ended."""

    facts: tuple[Fact, ...] = ()
    stale: tuple[str, ...] = ()
    ended: tuple[Run, ...] = ()


def settle_results(store: Store, results: Sequence[AttemptResult], *, now: datetime) -> SettleResult:
    """Write the results of attempts. A result whose lease was lost changes nothing and counts as stale.

    A result that is already stored changes nothing either, and does not count as stale.
    """
    if not results:
        return SettleResult()
    try:
        return store.write(lambda tx: _settle(tx, results, now=now))
    except OutcomeUnknown:
        # Repeat the transaction: results that it did commit are recognised by their attempt.
        return store.write(lambda tx: _settle(tx, results, now=now, may_be_written=True))


def reclaim(
    store: Store, *, now: datetime, limit: int, dead_holder: str = "", keeps_commands: bool = False
) -> SettleResult:
    """Reclaim expired leases, or all leases of a dead holder; each counts a loss, unless it was cancelled.

    With `keeps_commands`, a command of the dead holder keeps its lease, because it may still run.
    """
    outcome = Lost(error=HOLDER_DIED) if dead_holder else Lost()

    def work(tx: Transaction) -> SettleResult:
        lost = tx.expired_leases(now=now, limit=limit, dead_holder=dead_holder)
        if keeps_commands:
            lost = [run for run in lost if not runs_command(run.needs)]
        results = [AttemptResult(run=run, outcome=outcome, started_at=run.leased_at) for run in lost]
        settled = _settle(tx, results, now=now) if results else SettleResult()
        facts = [LeaseLost(fence=run.fence, holder=run.holder, **run_fields(run, now=now)) for run in lost]
        return replace(settled, facts=(*facts, *settled.facts))

    return store.write(work)


def release_held_runs(store: Store, *, now: datetime, limit: int = 100) -> tuple[Fact, ...]:
    """Release the first held run of each schedule whose previous run has ended."""
    return store.write(lambda tx: tuple(release_held(tx, now=now, limit=limit)))


def cancel(
    store: Store, run_id: str, *, actor: str, origin: str = "human", reason: str, now: datetime
) -> tuple[Fact, ...]:
    """Cancel a run: at once if it is not leased, otherwise by a request to its holder, with its grace."""

    def work(tx: Transaction) -> tuple[Fact, ...]:
        run, _ = _lock_run(tx, run_id)
        found = load_terms(tx, [run])[run.id]
        why = reason or Reason.BY_HAND.value
        tx.add_audit([_audit_entry(run, "run.cancel", actor=actor, origin=origin, reason=reason, now=now)])
        if run.state is RunState.LEASED and run.holder == HELD_BY_WAIT:
            ended = AttemptResult(run=run, outcome=Cancelled(reason=why), started_at=run.leased_at)
            return _settle(tx, [ended], now=now).facts
        if run.state is RunState.LEASED:
            until = stop_deadline(run, found.terms.target, found.terms.lease, now=now)
            until = cancel_deadline(tx, run, until)
            tx.request_cancel([(run.id, until)], at=now, reason=why)
            ends = settle_workflows(
                tx, stop_workflows(tx, [replace(run, reason=why)], reason=why, now=now), now=now
            )
            return (CancelRequested(reason=why, **run_fields(run, now=now)), *ends)
        after = replace(run, state=next_run_state(run.state, RunEvent.CANCEL), reason=why, finished_at=now)
        _change_run(tx, after, run)
        waited = run.state in (RunState.READY, RunState.HELD)
        ends = apply_finished_runs(tx, [(after, found.schedule)], now=now) if waited else []
        if run.parent:
            ends += settle_workflows(
                tx, advance_workflows(tx, [after], was_parked=not waited, now=now), now=now
            )
        return (RunCancelled(reason=why, **run_fields(run, now=now)), *ends)

    return store.write(work)


def reset(
    store: Store, run_id: str, *, actor: str, origin: str = "human", reason: str = "", now: datetime
) -> tuple[Fact, ...]:
    """Make a parked run ready with all its attempts; only a named actor may do it."""
    return _restart(store, run_id, event=RunEvent.RESET, actor=actor, origin=origin, reason=reason, now=now)


def reopen(
    store: Store, run_id: str, *, actor: str, origin: str = "human", reason: str = "", now: datetime
) -> tuple[Fact, ...]:
    """Run a failed or cancelled run again, in the same row and with the next fence."""
    return _restart(store, run_id, event=RunEvent.REOPEN, actor=actor, origin=origin, reason=reason, now=now)


def _restart(
    store: Store, run_id: str, *, event: RunEvent, actor: str, origin: str, reason: str, now: datetime
) -> tuple[Fact, ...]:
    if not actor:
        raise NotAllowed(
            f"{event} needs an actor", field="actor", rule="the actor is recorded", fix="give an actor"
        )

    def work(tx: Transaction) -> tuple[Fact, ...]:
        run, record = _lock_run(tx, run_to_reopen(tx, run_id) if event is RunEvent.REOPEN else run_id)
        next_run_state(run.state, event)
        _check_not_archived(run, record)
        busy = run.exclusive and record is not None and (record.in_flight.live or record.in_flight.held)
        after = restart_run(run, RunEvent.HOLD if busy else event, now=now)
        _change_run(tx, after, run)
        count_unparked(tx, run)
        tx.add_audit([_audit_entry(run, f"run.{event}", actor=actor, origin=origin, reason=reason, now=now)])
        return (RunReset(actor=actor, **run_fields(run, now=now)),)

    return store.write(work)


def _settle(
    tx: Transaction, results: Sequence[AttemptResult], *, now: datetime, may_be_written: bool = False
) -> SettleResult:
    """Decide and write the ends of attempts, and what follows for schedules, workflows and budgets.

    With `may_be_written`, results that are found written are reported as if they were written now. A quiet
    run is one whose check or watch found nothing new: many of them become one row.
    """
    newest = _newest(results)
    terms = load_terms(tx, [result.run for result in newest.values()])
    launched = launch_workflows(tx, newest, terms, now=now)
    to_settle = launched.results
    # Lock schedules before runs: every transaction takes its locks in this order.
    locked = lock_schedules(
        tx, ((terms[run_id].schedule, result.outcome, result.run) for run_id, result in to_settle.items())
    )
    judged = judge_results(tx, to_settle, terms, now=now)
    if judged.outcomes:
        to_settle = {
            run_id: replace(result, outcome=judged.outcomes.get(run_id, result.outcome))
            for run_id, result in to_settle.items()
        }
    settlements = _decide(tx, to_settle, terms, quiet=judged.quiet, now=now)
    written = tx.settle_runs([(s.run, s.attempt) for s in settlements.values()])
    if files := [one for run_id in written for one in getattr(to_settle[run_id].outcome, "artifacts", ())]:
        tx.put_run_rows(files)
    if judged.quiet:
        fold_quiet_runs(tx, [settlements[run_id] for run_id in judged.quiet if run_id in written], terms)
    save_states(tx, judged.states, {one.id: one.namespace for one in _schedules_of(terms).values()}, now=now)
    repeated: set[str] = set()
    stale: list[AttemptResult] = []
    if len(written) < len(results):
        repeated = _written_before(tx, [s for run_id, s in settlements.items() if run_id not in written])
        valid = written | repeated | launched.done
        stale = [r for r in results if r is not newest[r.run.id] or r.run.id not in valid]
    reported = written | repeated if may_be_written else written
    settled = {run_id: s for run_id, s in settlements.items() if run_id in written}
    ended = [_as_ended(s) for s in settled.values() if s.finished]
    facts = [
        *(_settlement_fact(s, now=now) for run_id, s in settlements.items() if run_id in reported),
        *(_stale_fact(result.run, now=now) for result in stale),
        *apply_finished_runs(tx, [(run, terms[run.id].schedule) for run in ended], now=now, locked=locked),
    ]
    facts += deliver_facts(tx, facts, _schedules_of(terms), now=now)
    if launched.changes is not NO_CHANGES or any(run.parent for run in ended):
        facts += [
            *settle_workflows(tx, launched.changes, now=now),
            *settle_workflows(tx, advance_workflows(tx, ended, now=now), now=now),
        ]
    if may_change_budgets(tx, to_settle, terms):
        leases = [EndedLease(s, terms[run_id], to_settle[run_id].outcome) for run_id, s in settled.items()]
        facts += settle_charges(tx, leases, now=now)
    return SettleResult(facts=tuple(facts), stale=tuple(r.run.id for r in stale), ended=tuple(ended))


def _decide(
    tx: Transaction,
    results: Mapping[str, AttemptResult],
    terms: Mapping[str, RunTerms],
    *,
    quiet: Container[str],
    now: datetime,
) -> dict[str, Settlement]:
    """What each result means for its run, by run id; a quiet answer counts as a skipped occurrence."""
    cancelled = _cancel_requested(tx, results.values())
    return {
        i: settle_quiet(result.run, result.outcome, started_at=result.started_at, now=now)
        if i in quiet
        else _settlement(result, terms[i], cancelled=cancelled.get(i), now=now)
        for i, result in results.items()
    }


def _as_ended(settlement: Settlement) -> Run:
    """The run as its schedule sees it: a quiet one is a success that nobody is told about."""
    run = settlement.run
    return replace(run, state=RunState.SUCCEEDED) if settlement.event is RunEvent.QUIET else run


def _schedules_of(terms: Mapping[str, RunTerms]) -> dict[str, Schedule]:
    return {one.schedule.id: one.schedule for one in terms.values() if one.schedule is not None}


def _newest(results: Sequence[AttemptResult]) -> dict[str, AttemptResult]:
    """The result of the last lease of each run."""
    found = {result.run.id: result for result in results}
    if len(found) < len(results):
        found = {result.run.id: result for result in sorted(results, key=lambda result: result.run.fence)}
    return found


def settle_workflows(tx: Transaction, changes: WorkflowChanges, *, now: datetime) -> list[Fact]:
    """Settle the workflow runs that have ended; each may be a step of another workflow."""
    ended = [
        AttemptResult(run=one.run, outcome=one.outcome, started_at=one.run.started_at)
        for one in changes.finished
    ]
    return [*changes.facts, *(_settle(tx, ended, now=now).facts if ended else ())]


def _cancel_requested(tx: Transaction, results: Iterable[AttemptResult]) -> dict[str, Run]:
    """The runs with a requested cancel; only read for outcomes that a cancel changes."""
    affected = [r.run.id for r in results if not isinstance(r.outcome, _FINAL_DESPITE_CANCEL)]
    found = tx.get_runs(affected, lock=True) if affected else {}
    return {i: run for i, run in found.items() if run.cancel_at is not None}


def _settlement(
    result: AttemptResult, run_terms: RunTerms, *, cancelled: Run | None, now: datetime
) -> Settlement:
    run, terms, outcome = result.run, run_terms.terms, result.outcome
    if run.started_at is not None and result.started_at is None:
        run = replace(run, started_at=None)
    # After a requested cancel, any failure counts as cancelled. With at-most-once delivery a lost lease
    # stays lost, and so does work without a result, because it is unknown whether it was done.
    is_lost = isinstance(outcome, Lost) or (isinstance(outcome, Failed) and outcome.unknown)
    if cancelled is not None and not (is_lost and terms.delivery is Delivery.AT_MOST_ONCE):
        outcome = Cancelled(reason=cancelled.reason or Reason.BY_HAND.value, cost=outcome.cost)
    return settle_outcome(
        run,
        outcome,
        retry=terms.retry,
        delivery=terms.delivery,
        started_at=result.started_at,
        now=now,
    )


def _written_before(tx: Transaction, missing: Sequence[Settlement]) -> set[str]:
    """The runs whose attempt is already stored with the same outcome: their result came twice."""
    if not missing:
        return set()
    ends = tx.get_run_rows(Attempt, [s.run.id for s in missing])
    return {
        s.run.id
        for s in missing
        if any(
            (a.fence, a.lease_id, a.outcome) == (s.attempt.fence, s.attempt.lease_id, s.attempt.outcome)
            and (a.outcome != Reason.LOST or a.error == s.attempt.error)
            for a in ends.get(s.run.id, ())
        )
    }


def _stale_fact(run: Run, *, now: datetime) -> Fact:
    return AnswerStale(at=now, namespace=run.namespace, run_id=run.id, fence=run.fence)


def _settlement_fact(s: Settlement, *, now: datetime) -> Fact:
    run, fence = s.run, s.attempt.fence
    if s.event is RunEvent.SUCCEED:
        return succeeded_fact(run, fence=fence, now=now)
    if s.event is RunEvent.QUIET:
        return skipped_fact(run, now=now)
    start = run_fields(run, now=now)
    if s.event is RunEvent.RETRY:
        return RunWillRetry(fence=fence, attempts=run.attempts, error=run.error, fire_at=run.fire_at, **start)
    if s.event is RunEvent.RELEASE:
        return RunReleased(fence=fence, reason=run.reason, error=run.error, **start)
    if s.event is RunEvent.PARK:
        return RunParked(fence=fence, attempts=run.attempts, reason=run.reason, error=run.error, **start)
    if s.event is RunEvent.CANCEL:
        return RunCancelled(reason=run.reason, **start)
    return RunFailed(fence=fence, attempts=run.attempts, error=run.error, **start)


def _lock_run(tx: Transaction, run_id: str) -> tuple[Run, ScheduleRecord | None]:
    """Lock a run and its schedule, the schedule first."""
    seen = tx.get_runs([run_id]).get(run_id)
    due = None
    if seen is not None and seen.schedule_id:
        due = lock_readable_schedules(tx, [seen.schedule_id]).get(seen.schedule_id)
    run = tx.get_runs([run_id], lock=True).get(run_id)
    if run is None:
        raise NotFound(f"no run {run_id}", field="run_id", value=run_id, fix="run list shows the ids")
    return run, due


def _check_not_archived(run: Run, due: ScheduleRecord | None) -> None:
    if due is not None and due.progress.state is ScheduleState.ARCHIVED:
        raise NotAllowed(
            f"run {run.id} belongs to {due.schedule.name}, which is archived",
            field="run_id",
            value=run.id,
            rule="an archived schedule never runs again",
            fix="create a new schedule",
        )


def _change_run(tx: Transaction, after: Run, was: Run) -> None:
    if not tx.change_runs([RunChange(after, was.state, was.fence)]):
        raise NotAllowed(
            f"run {was.id} was changed by another process",
            field="run_id",
            value=was.id,
            rule="a run is only changed from the state in which it was read",
            fix="read the run and try again",
        )


def _audit_entry(run: Run, action: str, *, actor: str, origin: str, reason: str, now: datetime) -> AuditEntry:
    return AuditEntry(
        at=now,
        namespace=run.namespace,
        actor=actor,
        origin=origin,
        action=action,
        subject=run.id,
        before=run.state.value,
        reason=reason,
    )
