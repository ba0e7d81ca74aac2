"""Invariants of retention: pruning deletes only old finished runs, and growth is bounded."""

from __future__ import annotations

from collections import Counter

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.schedule_policy import MAX_REFUNDS
from timewright.verification.oracle.times import format_instant, id_created_at
from timewright.verification.rows import RunRow, ScheduleRow, SimulationEvent
from timewright.verification.view import TERMINAL_STATES, HistoryView

MAX_SKIP_ROWS = 2_000
MAX_ATTEMPT_ROWS = 1_000
KILOBYTE = 1024
# Results are stored as JSON, where one character may take six bytes.
MAX_JSON_ESCAPE_FACTOR = 6


@invariant("I31", "pruning deletes old finished runs", unit="runs")
def pruning_deletes_only_old_finished_runs(view: HistoryView, coverage: Coverage) -> Violations:
    """Pruning deletes only old, finished runs: no newer run is missing from its schedule's chain."""
    pruned = view.history.meta.get("pruned_to", "")
    floor = max(id_created_at(pruned) or 0, view.since)
    for run in view.history.runs:
        if run.previous and run.schedule_id:
            coverage.count += 1
            if _is_missing(view, run.previous, pruned, floor):
                yield f"run {run.previous} is missing, but pruning had not reached it", (run,)
    for schedule in view.history.schedules:
        if schedule.last_run and _is_missing(view, schedule.last_run, pruned, floor):
            yield f"{schedule.name}: its last run {schedule.last_run} is missing", (schedule,)
    for line in view.history.audit:
        if line.action == "schedule.run" and _is_missing(view, line.after, pruned, floor):
            yield f"run {line.after} was started by hand and is missing", (line,)
    for event in view.events.get("pruned", ()):
        coverage.count += 1
        owner = view.schedules.get(event.schedule_id)
        if event.detail not in TERMINAL_STATES:
            yield f"run {event.subject} was pruned while it was {event.detail}", (event,)
        if owner is not None and owner.cursor < event.value and not _is_past(view, owner, event):
            yield f"{owner.name}: its cursor is before an instant that was pruned", (owner, event)


@invariant("I64", "an artifact has its file", unit="artifacts")
def an_artifact_has_its_file(view: HistoryView, coverage: Coverage) -> Violations:
    """Every artifact belongs to an ended attempt, and its file has the size and digest as written."""
    for one in view.history.artifacts:
        coverage.count += 1
        if one.problem:
            yield f"artifact {one.name} of run {one.run_id}: {one.problem}", (one,)
        attempts = view.attempts.get(one.run_id)
        if attempts is not None and all(attempt.fence != one.fence for attempt in attempts):
            yield f"artifact {one.name} of run {one.run_id} belongs to no attempt", (one,)


@invariant("I36", "growth is bounded", unit="rows")
def growth_is_bounded(view: HistoryView, coverage: Coverage) -> Violations:
    """A run keeps a bounded number of attempts of bounded size, and an outage a bounded number of rows."""
    for run in view.history.runs:
        attempts = view.attempts.get(run.id, ())
        coverage.count += 1 + len(attempts)
        restarts = len(view.resets(run))
        if len(attempts) > (MAX_ATTEMPT_ROWS + MAX_REFUNDS) * (1 + restarts):
            yield f"run {run.id} has {len(attempts)} attempts", (run,)
        cap = _result_limit(view, run)
        for attempt in attempts:
            if cap is not None and attempt.size > cap:
                yield (
                    f"a result of run {run.id} takes {attempt.size} bytes, but the limit is {cap}",
                    (attempt,),
                )
    skipped = Counter(
        (run.schedule_id, run.created_at)
        for run in view.history.runs
        if run.state == "skipped" and not run.dedupe_scope and not run.dropped
    )
    for (schedule_id, at), count in skipped.items():
        if count > MAX_SKIP_ROWS:
            owner = view.schedules.get(schedule_id)
            message = f"{count} skips of {schedule_id} at {format_instant(at)} have a row each instead of one"
            yield message, (owner,) if owner is not None else ()


def _is_past(view: HistoryView, owner: ScheduleRow, event: SimulationEvent) -> bool:
    """Whether the pruned instant cannot become due again: its schedule is archived, or it was skipped and is
    past.
    """
    by_hand = event.value in view.skipped_by_hand.get(owner.id, ())
    return owner.state == "archived" or (by_hand and event.at >= event.value)


def _is_missing(view: HistoryView, run_id: str, pruned: str, floor: int) -> bool:
    if run_id in view.runs or run_id <= pruned:
        return False
    made = id_created_at(run_id)
    return made is not None and made > floor


def _result_limit(view: HistoryView, run: RunRow) -> int | None:
    policy = view.policy(run) if run.schedule_id else None
    if policy is None or policy.target.get("kind") != "http":
        return None
    return (int(policy.target.get("max_response_kb", 100)) * MAX_JSON_ESCAPE_FACTOR + 64) * KILOBYTE


@invariant("I56", "quiet runs did nothing new", unit="quiet rows")
def quiet_rows_follow_one_quiet_answer(view: HistoryView, coverage: Coverage) -> Violations:
    """A quiet row ends with one uncharged success of its newest occurrence, and no row of its own follows."""
    for run in view.history.runs:
        if run.state != "skipped" or run.reason != "quiet":
            continue
        coverage.count += 1
        attempts = view.attempts.get(run.id, [])
        answers = [(a.fence, a.outcome, a.charged) for a in attempts]
        if answers != [(1, "succeeded", False)]:
            yield f"run {run.id} is quiet, but not by one uncharged answer", (run, *attempts[-1:])
        elif run.dedupe_scope or run.attempts:
            yield f"run {run.id} is quiet, but is no occurrence or used an attempt", (run,)
