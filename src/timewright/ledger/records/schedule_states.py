"""Applies rules over answers when results are settled, and keeps the state of schedules between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.policies.answers import Judgement, judge
from timewright.core.policies.backoff import Steady
from timewright.core.policies.policies import Align, Clamp
from timewright.core.recurrence.triggers import Cron, Every
from timewright.core.run.lifecycle import RunEvent, Settlement
from timewright.core.run.run import Failed, Outcome, Reason, Released, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.errors import Conflict, InvalidInput, NotAllowed
from timewright.ledger.lookups import RunTerms
from timewright.ledger.run_ends import AttemptResult
from timewright.ports import StoredObject, Transaction

STATE_KIND = "schedule_state"
MAX_STATE_BYTES = 16_384
MAX_PREVIOUS_BYTES = 16_384
STATE_CHANGED = "the state of the schedule was changed by another run meanwhile"


class PreviousRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last run of a schedule that succeeded, as the next one is told about it."""

    run_id: str
    planned_at: datetime
    finished_at: datetime
    result: Any = None


class KeptState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule keeps between its runs: its state, and the values that `changed` compares with.

    `version` rises with every change of `value`: a run that read an earlier one cannot overwrite it.
    `seen_at` is when the run began that saw the values: an answer from before it is old, not a change.
    """

    value: Any = None
    version: int = 0
    seen: dict[str, Any] = {}
    seen_at: datetime | None = None
    previous: PreviousRun | None = None


NO_STATE = KeptState()


class JudgedResults(Struct, frozen=True, kw_only=True):
    """Results after the rules: outcomes by run id, which of them are quiet, and the states to write."""

    outcomes: Mapping[str, Outcome] = {}
    quiet: frozenset[str] = frozenset()
    states: Mapping[str, KeptState] = {}


def load_states(tx: Transaction, schedules: Iterable[Schedule]) -> dict[str, KeptState]:
    """Load the states of schedules by schedule id; a schedule without one has an empty state."""
    wanted = {one.id: NO_STATE for one in schedules}
    if wanted:
        for row in tx.get_objects(STATE_KIND, names=sorted(wanted)):
            wanted[row.name] = row.decode(KeptState)
    return wanted


def save_states(
    tx: Transaction, states: Mapping[str, KeptState], namespaces: Mapping[str, str], *, now: datetime
) -> None:
    """Write the states of schedules."""
    if states:
        tx.put_objects(
            [
                StoredObject.of(STATE_KIND, schedule_id, state, namespace=namespaces[schedule_id], at=now)
                for schedule_id, state in states.items()
            ]
        )


def change_state(
    tx: Transaction, schedule: Schedule, value: Any, *, version: int | None, now: datetime
) -> KeptState:
    """Set the state of a schedule from outside; `version` is the one it must replace, None any."""
    if not schedule.keep_state:
        raise NotAllowed(
            f"{schedule.name} keeps no state",
            field="schedule",
            value=schedule.name,
            rule="only a schedule with keep_state has a state",
            fix=f"schedule update {schedule.name} with keep_state: true",
        )
    # Locked, so that no run settles in between.
    tx.get_schedules([schedule.id], lock=True)
    before = load_states(tx, [schedule])[schedule.id]
    if version is not None and version != before.version:
        raise Conflict(
            f"the state of {schedule.name} has version {before.version}",
            field="version",
            value=version,
            rule="the version that the new state replaces",
            fix=f"version: {before.version}",
        )
    size = len(msgspec.json.encode(value))
    if size > MAX_STATE_BYTES:
        raise InvalidInput(
            f"the state has {size} bytes",
            field="state",
            value=size,
            rule=f"at most {MAX_STATE_BYTES} bytes as JSON",
            fix="store the data elsewhere, and keep in the state where it is",
        )
    after = replace(before, value=value, version=before.version + 1)
    save_states(tx, {schedule.id: after}, {schedule.id: schedule.namespace}, now=now)
    return after


def judge_results(
    tx: Transaction, results: Mapping[str, AttemptResult], terms: Mapping[str, RunTerms], *, now: datetime
) -> JudgedResults:
    """Apply the rules of schedules to the results of their runs; results of lost leases are left alone.

    The schedules are locked, so that two results of one schedule are judged one after the other.
    """
    ruled = {i: one for i, one in results.items() if (s := terms[i].schedule) is not None and s.uses_state}
    if not ruled:
        return JudgedResults()
    current = tx.get_runs(list(ruled), lock=True)
    states = load_states(tx, (schedule for i in ruled if (schedule := terms[i].schedule) is not None))
    outcomes: dict[str, Outcome] = {}
    quiet: set[str] = set()
    changed: dict[str, KeptState] = {}
    for i, result in ruled.items():
        schedule = terms[i].schedule
        if schedule is None or not _is_current(current.get(i), result):
            continue
        before = changed.get(schedule.id, states[schedule.id])
        judged = _judge(schedule, result, before, now=now)
        outcomes[i] = judged.outcome
        after = _next_state(schedule, result, judged, before, now=now)
        if after != before:
            changed[schedule.id] = after
        if judged.quiet and _is_first_attempt(result.run):
            quiet.add(i)
    return JudgedResults(outcomes=outcomes, quiet=frozenset(quiet), states=changed)


def _is_current(run: Run | None, result: AttemptResult) -> bool:
    return run is not None and run.state is RunState.LEASED and run.fence == result.run.fence


def _judge(schedule: Schedule, result: AttemptResult, kept: KeptState, *, now: datetime) -> Judgement:
    rules = schedule.answer_rules
    if result.is_check:
        judged = judge(rules, result.outcome, seen=kept.seen, state=kept.value, now=now)
        if isinstance(judged.outcome, Succeeded) and not judged.quiet:
            return Judgement(outcome=Released(reason="the state changed during its check"))
        if isinstance(judged.outcome, Failed):
            return replace(judged, outcome=replace(judged.outcome, error=f"check: {judged.outcome.error}"))
        return judged
    if result.check is not None:
        # The rules judged the check; what it saw counts as handled once the work is done.
        seen = judge(rules, result.check, seen=kept.seen, state=kept.value, now=now).seen
        is_done = isinstance(result.outcome, Succeeded)
        judged = Judgement(outcome=result.outcome, seen=seen if is_done else None)
    else:
        judged = judge(rules, result.outcome, seen=kept.seen, state=kept.value, now=now)
    if judged.seen is not None and kept.seen_at is not None and _began(result) < kept.seen_at:
        old = Succeeded(outcome_label="noop", result=result.outcome.result, cost=result.outcome.cost)
        return Judgement(outcome=old, quiet=True)
    return _check_state(judged, kept)


def _began(result: AttemptResult) -> datetime:
    return result.started_at or result.run.leased_at or result.run.created_at


def _check_state(judged: Judgement, kept: KeptState) -> Judgement:
    """Refuse a new state that is too large, or was computed from an earlier version."""
    outcome = judged.outcome
    if not isinstance(outcome, Succeeded) or outcome.state is None:
        return judged
    size = len(msgspec.json.encode(outcome.state.value))
    if outcome.state.version != kept.version:
        return Judgement(outcome=Failed(error=STATE_CHANGED, result=outcome.result, cost=outcome.cost))
    if size > MAX_STATE_BYTES:
        error = f"its state has {size} bytes; the limit is {MAX_STATE_BYTES}"
        return Judgement(outcome=Failed(error=error, result=outcome.result, cost=outcome.cost))
    return judged


def _next_state(
    schedule: Schedule, result: AttemptResult, judged: Judgement, before: KeptState, *, now: datetime
) -> KeptState:
    run, after, outcome = result.run, before, judged.outcome
    if not isinstance(outcome, Succeeded):
        return before
    if judged.seen is not None and judged.seen != before.seen:
        after = replace(before, seen=dict(judged.seen), seen_at=_began(result))
    if outcome.state is not None:
        after = replace(after, value=outcome.state.value, version=before.version + 1)
    if schedule.keep_state and not judged.quiet:
        value = outcome.result if len(msgspec.json.encode(outcome.result)) <= MAX_PREVIOUS_BYTES else None
        previous = PreviousRun(run_id=run.id, planned_at=run.planned_at, finished_at=now, result=value)
        after = replace(after, previous=previous)
    return after


def _is_first_attempt(run: Run) -> bool:
    """Whether nothing but this quiet attempt is known of an occurrence; others keep their own row."""
    return not (run.dedupe_scope or run.parent or run.attempts or run.losses) and run.fence == 1


def fold_quiet_runs(tx: Transaction, settled: Sequence[Settlement], terms: Mapping[str, RunTerms]) -> None:
    """Count quiet occurrences that follow each other in one row, which grows while nothing is new."""
    quiet = [one.run for one in settled if one.event is RunEvent.QUIET]
    foldable = [run for run in quiet if _counts_by_trigger(terms[run.id].schedule)]
    if not foldable:
        return
    before = tx.get_runs([run.previous for run in foldable if run.previous])
    rows: list[Run] = []
    for run in foldable:
        row = before.get(run.previous)
        if row is not None and _follows(row, run, terms[run.id].schedule):
            first = replace(run, planned_at=row.planned_at, previous=row.previous, dropped=row.dropped + 1)
            rows.append(replace(first, last_of=run.planned_at))
        else:
            rows.append(replace(run, last_of=run.planned_at, dropped=1))
    folded_into = [run.previous for run, row in zip(foldable, rows, strict=True) if row.dropped > 1]
    tx.repair_history(delete=folded_into, fold=rows)


def _follows(row: Run, run: Run, schedule: Schedule | None) -> bool:
    """Whether a run is the next planned occurrence after a quiet row."""
    is_quiet = row.state is RunState.SKIPPED and row.reason == Reason.QUIET and row.last_of is not None
    if not is_quiet or row.revision != run.revision or schedule is None or row.last_of is None:
        return False
    return schedule.trigger.next_after(row.last_of) == run.planned_at


def _counts_by_trigger(schedule: Schedule | None) -> bool:
    """Whether the trigger alone plans a schedule, so that what lies between two instants is known."""
    return (
        schedule is not None
        and isinstance(schedule.trigger, Cron | Every)
        and schedule.align is Align.GRID
        and isinstance(schedule.cadence, Steady)
        and not schedule.adaptive
        and schedule.clamp == Clamp()
        and schedule.calendar is None
        and not schedule.budgets
        and schedule.provider is None
    )
