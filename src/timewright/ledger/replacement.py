"""Cancels runs of a schedule: for a newer run that replaces them, or because it is archived."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import CancelRequested, Fact, RunCancelled
from timewright.core.run.catch_up import RUNS_EVERY_MISSED
from timewright.core.run.lifecycle import RunEvent, next_run_state, stop_deadline
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.schedule import Schedule
from timewright.ledger.backfills.records import continue_backfills
from timewright.ledger.dependencies.follow_ups import notify_downstream
from timewright.ledger.fact_builders import run_fields, skipped_fact
from timewright.ledger.workflow_runs.advance import stop_workflows
from timewright.ports import RunChange, RunFilter, Transaction
from timewright.ports.rows import LiveRuns

PAGE_ROWS = 1_000

# A run that could have started is cancelled; a held run is skipped.
_EVENTS = {
    Reason.REPLACED: RunEvent.CANCEL,
    Reason.SUPERSEDED: RunEvent.SKIP,
    Reason.BY_HAND: RunEvent.CANCEL,
}


class Replacement(Struct, frozen=True):
    """Whether the newer run may start at once, and the facts about the runs that it replaces."""

    can_start: bool
    facts: tuple[Fact, ...] = ()


def cancel_for_replacement(tx: Transaction, schedule: Schedule, *, now: datetime) -> Replacement:
    """Request a cancel of leased runs, within their grace; cancel ready runs; skip held ones.

    Occurrences that were caught up in one pass are not replaced while some of them wait: the newer run waits
    behind them.
    """
    live = tx.select(LiveRuns([schedule.id]))
    # Read again under lock: another process may have leased or released one of them since.
    current = list(tx.get_runs([run.id for run in live], lock=True).values()) if live else []
    # Judged by the definition under which it was admitted: an edit does not change what was missed.
    edited = {(run.schedule_id, run.revision) for run in current if run.revision != schedule.revision}
    terms = tx.get_revisions(edited) if edited else {}
    passes = {
        run.created_at
        for run in current
        if was_missed(terms.get((run.schedule_id, run.revision), schedule), run, current)
    }
    backlog = [run for run in current if run.state is RunState.HELD and run.created_at in passes]
    if backlog:
        newer = [run for run in current if run.state is RunState.HELD and run.created_at not in passes]
        return Replacement(False, tuple(cancel_runs(tx, newer, now=now, reason=Reason.SUPERSEDED)))
    leased = [run for run in current if run.state is RunState.LEASED]
    requested = _request_cancel(tx, leased, schedule, now=now)
    requested += stop_workflows(tx, leased, reason=Reason.REPLACED.value, now=now).facts
    ready = [run for run in current if run.state is RunState.READY]
    held = [run for run in current if run.state is RunState.HELD]
    cancelled = cancel_runs(tx, ready, now=now, reason=Reason.REPLACED)
    cancelled += cancel_runs(tx, held, now=now, reason=Reason.SUPERSEDED)
    return Replacement(not leased, (*requested, *cancelled))


def was_missed(schedule: Schedule, run: Run, others: Sequence[Run]) -> bool:
    """Whether a run is a missed occurrence: its successor was due too, or it was late beyond the grace."""
    if schedule.catch_up not in RUNS_EVERY_MISSED or run.dedupe_scope:
        return False
    following = schedule.trigger.next_after(run.planned_at)
    was_succeeded = following is not None and following <= run.created_at
    # The successor may be an instant of a hint.
    was_succeeded = was_succeeded or any(
        run.planned_at < one.planned_at <= run.created_at == one.created_at
        for one in others
        if not one.dedupe_scope
    )
    return was_succeeded or run.created_at - run.planned_at > schedule.grace


def cancel_unstarted(tx: Transaction, schedule_id: str, *, now: datetime) -> list[Fact]:
    """Cancel every run of a schedule that has not started."""
    facts: list[Fact] = []
    for state in (RunState.HELD, RunState.READY):
        which = RunFilter(schedule_id=schedule_id, state=state, limit=PAGE_ROWS)
        while True:
            page = tx.find(which)
            facts += cancel_runs(tx, page.rows, now=now, reason=Reason.BY_HAND, ends_backfills=True)
            if not page.cursor:
                break
            which = replace(which, cursor=page.cursor)
    return facts


def _request_cancel(tx: Transaction, runs: Sequence[Run], schedule: Schedule, *, now: datetime) -> list[Fact]:
    reason = Reason.REPLACED.value
    ends = [(run.id, stop_deadline(run, schedule.target, schedule.lease, now=now)) for run in runs]
    requested = tx.request_cancel(ends, at=now, reason=reason)
    return [CancelRequested(reason=reason, **run_fields(run, now=now)) for run in runs if run.id in requested]


def cancel_runs(
    tx: Transaction, runs: Sequence[Run], *, now: datetime, reason: Reason, ends_backfills: bool = False
) -> list[Fact]:
    """Cancel runs that have not started; the schedule is locked. Their backfills continue, or end."""
    after = [
        replace(run, state=next_run_state(run.state, _EVENTS[reason]), reason=reason.value, finished_at=now)
        for run in runs
    ]
    cancelled = tx.change_runs(
        [RunChange(a, run.state, run.fence) for a, run in zip(after, runs, strict=True)]
    )
    facts = [_cancel_fact(run, now=now) for run in after if run.id in cancelled]
    gone = [run for run in after if run.id in cancelled]
    facts += continue_backfills(tx, gone, now=now, holds=True, ends=ends_backfills)
    # A run that waited for a retry has ended now; the others never started.
    ended = [run for run in after if run.id in cancelled and run.started_at is not None]
    if ended and tx.read_run_end_effects().has_links:
        facts += notify_downstream(tx, ended, now=now)
    return facts


def _cancel_fact(run: Run, *, now: datetime) -> Fact:
    if run.state is RunState.SKIPPED:
        return skipped_fact(run, now=now)
    return RunCancelled(reason=run.reason, **run_fields(run, now=now))
