"""Explain an occurrence or a run: what happened or will happen, why, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.finding import list_names
from timewright.core.moments import check_storable, format_instant
from timewright.core.recurrence.triggers import Manual, zone_of
from timewright.core.run.needs import needs_of_schedule
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.schedule.decision import Candidate, Source
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.zones import local_time
from timewright.errors import Forbidden
from timewright.ledger.lookups import load_calendars, load_terms
from timewright.ledger.records.instances import explain_waiting, is_alive, read_offers
from timewright.ledger.records.notes import occurrence_notes
from timewright.ledger.workflow_runs.records import (
    HELD_BY_EXECUTOR,
    HELD_BY_WAIT,
    HELD_BY_WORKFLOW,
    WorkflowContext,
    load_plan,
    workflow_context,
)
from timewright.ledger.workflow_runs.waits import WaitingStep, find_waiting_step
from timewright.operations.access.permissions import check_agent_permission, is_agent
from timewright.operations.context import NestedStore, OperationContext
from timewright.operations.explain.dependencies import explain_links, explain_unmet
from timewright.operations.explain.future import WILL_RUN, explain_unrecorded
from timewright.operations.explain.idle import UnrecordedOccurrence
from timewright.operations.explain.reasons import (
    Remedy,
    RunContext,
    explain_skipped,
    list_instances_remedy,
    policy_fields,
)
from timewright.operations.explain.run import explain_budget_ahead, explain_run_state
from timewright.operations.health.overdue import is_due
from timewright.operations.health.pauses import check_may_end_pause
from timewright.operations.lookup import find_run, find_schedule
from timewright.operations.registry import FAILED_RUN, GetRun, ObjectName, OperationRequest, operations
from timewright.operations.views import RunSummary, summarize_runs
from timewright.ports import RunFilter, ScheduleRecord, Transaction
from timewright.ports.rows import RunsBesideOccurrence
from timewright.ports.workflow import StepRow

_STATE_PHRASES = {
    RunState.READY: "waits to start",
    RunState.HELD: "waits for an earlier run",
    RunState.LEASED: "is running",
    RunState.SUCCEEDED: "ran and succeeded",
    RunState.FAILED: "ran and failed",
    RunState.PARKED: "is parked and waits for a person",
    RunState.SKIPPED: "did not run",
    RunState.CANCELLED: "was cancelled",
}

MAX_NAMES_SHOWN = 10


class ExplainSchedule(OperationRequest, frozen=True, kw_only=True):
    """Which occurrence: at an instant, the last one, or by default the next."""

    schedule: ObjectName
    at: datetime | None = None
    last: bool = False


class Explanation(Struct, frozen=True, kw_only=True):
    """What happened to an occurrence or will, why, by which policy, and what would change it.

    `status` is the state of its run, or for an instant without a run: `planned`, `not_planned`, `paused`,
    `excluded`, `undecided`, `displaced`, `forgotten`, `pending_approval`, `ended` or `unaccounted`.
    """

    schedule: str
    at: datetime | None
    local: str
    status: str
    reason: str
    summary: str
    because: tuple[str, ...]
    policy: dict[str, Any]
    remedies: tuple[Remedy, ...]
    source: Source | None = None
    trail: tuple[Candidate, ...] = ()
    run: RunSummary | None = None
    attempts: tuple[Attempt, ...] = ()
    previous_at: datetime | None = None
    next_at: datetime | None = None
    note: str = ""


@operations.read(
    "schedule explain",
    scope="read",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "last": True},
        {"schedule": "nightly-report", "at": "2026-03-10T03:00:00Z"},
    ),
)
def explain_schedule(context: OperationContext, tx: Transaction, request: ExplainSchedule) -> Explanation:
    """Explain why an occurrence ran, did not run, or will run: at an instant, the last, or the next."""
    now, policy_error = context.now(), _policy_file_error(context)
    record = find_schedule(tx, context.namespace, request.schedule)
    if request.at is not None:
        check_storable(request.at, field="at")
    run = _find_occurrence_run(tx, record, request)
    if run is not None:
        explanation = _explain_with_run(tx, run, record.schedule, policy_error=policy_error, now=now)
        explanation = _for_caller(context, tx, record, explanation, now=now)
        return replace(explanation, at=request.at) if request.at is not None else explanation
    unrecorded = explain_unrecorded(tx, record, request.at, settings=context.settings, now=now)
    waits = explain_budget_ahead(tx, record.schedule, unrecorded.at, now=now)
    phrase = "will be due, and then wait" if waits and unrecorded.status == "planned" else unrecorded.summary
    unrecorded = replace(unrecorded, summary=phrase, because=(*unrecorded.because, *waits))
    unrecorded = _with_placement(tx, record, unrecorded, now=now)
    explanation = _explain_without_run(record, unrecorded, last=request.last)
    explanation = _for_caller(context, tx, record, explanation, now=now)
    return _with_note(tx, record.schedule, explanation)


@operations.read("run explain", scope="read", examples=({"run": FAILED_RUN},))
def explain_run(context: OperationContext, tx: Transaction, request: GetRun) -> Explanation:
    """Explain why a run was created, and why it ended, waits or never started."""
    now, policy_error = context.now(), _policy_file_error(context)
    run = find_run(tx, context.namespace, request.run)
    record = tx.get_schedules([run.schedule_id]).get(run.schedule_id) if run.schedule_id else None
    current = record.schedule if record is not None else None
    explanation = _explain_with_run(tx, run, current, policy_error=policy_error, now=now)
    return _for_caller(context, tx, record, explanation, now=now)


def _for_caller(
    context: OperationContext,
    tx: Transaction,
    record: ScheduleRecord | None,
    explanation: Explanation,
    *,
    now: datetime,
) -> Explanation:
    """Return an explanation without the remedies that an agent may not use: it says so, and whom to ask."""
    if not is_agent(context):
        return explanation
    permitted, refusals = [], list[str]()
    context = replace(context, store=NestedStore(tx, now=now))
    for one in explanation.remedies:
        try:
            if not operations[one.operation].read_only:
                check_agent_permission(context, one.operation)
            if one.operation == "schedule resume" and record is not None:
                check_may_end_pause(context, tx, record, now=now)
        except Forbidden as refusal:
            refusals.append(f"{refusal.message}; {refusal.fix}")
        else:
            permitted.append(one)
    return replace(
        explanation, remedies=tuple(permitted), because=(*explanation.because, *dict.fromkeys(refusals))
    )


def _with_placement(
    tx: Transaction, record: ScheduleRecord, unrecorded: UnrecordedOccurrence, *, now: datetime
) -> UnrecordedOccurrence:
    """Add why an occurrence waits or will wait, if no live instance can run it."""
    needs, offers = needs_of_schedule(record.schedule), read_offers(tx)
    is_now = is_due(record, now=now) and unrecorded.at == record.progress.next_at
    if not is_now and unrecorded.summary != WILL_RUN:
        return unrecorded
    if is_now or any(is_alive(one.seen, now=now) for one in offers):
        why = explain_waiting(offers, needs, now=now) if offers and needs else ""
        start = "is due, and waits" if is_now else "will be due, and then wait"
        summary = f"{start} for an instance that can run it"
    else:
        why = "no instance is running now, so nothing starts; start one: timewright up, or your program"
        summary = f"{WILL_RUN} if an instance is running then"
    if not why:
        return unrecorded
    remedies = (*(() if is_now else unrecorded.remedies), list_instances_remedy())
    return replace(unrecorded, summary=summary, because=(why, *unrecorded.because), remedies=remedies)


def _find_occurrence_run(tx: Transaction, record: ScheduleRecord, request: ExplainSchedule) -> Run | None:
    """Return the run of the occurrence, if there is one; a manual schedule has no next one, so its last."""
    if request.at is not None:
        own = tx.find_occurrence(record.schedule.id, request.at)
        return own or _find_run_beside(tx, record.schedule.id, request.at)
    is_manual = isinstance(record.schedule.trigger, Manual) and record.progress.state is ScheduleState.ACTIVE
    if request.last or is_manual:
        page = tx.find(RunFilter(schedule_id=record.schedule.id, limit=1))
        return page.rows[0] if page.rows else None
    return None


def _find_run_beside(tx: Transaction, schedule_id: str, at: datetime) -> Run | None:
    """Return the newest run of an instant that is not its occurrence: of a backfill, or by hand."""
    found = tx.select(RunsBesideOccurrence(schedule_id=schedule_id, planned_at=at))
    return found[-1] if found else None


def _explain_run_again(tx: Transaction, run: Run) -> tuple[str, ...]:
    """Explain which backfill or manual run is for the time of a skipped occurrence."""
    if run.state is not RunState.SKIPPED or not run.schedule_id or run.dedupe_scope:
        return ()
    again = _find_run_beside(tx, run.schedule_id, run.planned_at)
    return (f"{again.id} for the same time {_STATE_PHRASES[again.state]}",) if again is not None else ()


def _policy_file_error(context: OperationContext) -> str:
    file = context.queue_policy_file()
    return file.error.message if file is not None and file.error is not None else ""


def _explain_with_run(
    tx: Transaction, run: Run, current: Schedule | None, *, policy_error: str, now: datetime
) -> Explanation:
    """Explain a run with the revision of its schedule that admitted it."""
    admitted_as = load_terms(tx, [run])[run.id].schedule
    schedule = (
        replace(admitted_as, name=current.name)
        if admitted_as is not None and current is not None
        else admitted_as
    )
    calendars = load_calendars(tx, [schedule]).for_schedule(schedule) if schedule is not None else {}
    run_context = RunContext(
        tx=tx, run=run, schedule=schedule, calendars=calendars, now=now, policy_error=policy_error
    )
    skipped = run.state is RunState.SKIPPED
    why = (
        (explain_unmet(run_context) or explain_skipped(run_context))
        if skipped
        else explain_run_state(run_context)
    )
    name = current.name if current is not None else ""
    explanation = Explanation(
        schedule=name,
        at=run.planned_at,
        local=_local_time(schedule, run.planned_at),
        status=run.state.value,
        reason=run.reason,
        summary=_summary(run, name or run_label(run)),
        because=(
            *explain_workflow_step(tx, run),
            *why.because,
            *_explain_run_again(tx, run),
            *explain_links(tx, run),
        ),
        policy=policy_fields(schedule, why.policy) if schedule is not None else {},
        remedies=why.remedies,
        source=run.source,
        trail=run.trail,
        run=summarize_runs(tx, [run])[0],
        attempts=tx.get_run_rows(Attempt, [run.id]).get(run.id, ()),
    )
    return _with_note(tx, schedule, explanation) if schedule is not None else explanation


def _with_note(tx: Transaction, schedule: Schedule, explanation: Explanation) -> Explanation:
    """Add the note on the occurrence."""
    if explanation.at is None:
        return explanation
    note = occurrence_notes(tx, schedule.id, [explanation.at], namespace=schedule.namespace).get(
        explanation.at
    )
    return replace(explanation, note=note.text) if note is not None else explanation


def _summary(run: Run, name: str) -> str:
    # A pause is stored with its id, which says nothing to a reader.
    reason = run.reason.split(": ", 2)[-1] if run.reason.startswith("pause: ") else run.reason
    why = f": {reason}" if reason else ""
    if run.last_of is not None:
        span = f"{format_instant(run.planned_at)} to {format_instant(run.last_of)}"
        return f"{name}: {run.dropped} occurrences from {span} did not run{why}"
    return f"{name}: the run planned for {format_instant(run.planned_at)} {_STATE_PHRASES[run.state]}{why}"


def _explain_without_run(record: ScheduleRecord, found: UnrecordedOccurrence, *, last: bool) -> Explanation:
    """Explain an instant that has no run."""
    because = ("the schedule has never run", *found.because) if last else found.because
    when = f" {format_instant(found.at)}" if found.at is not None else ""
    decided = found.at is not None and found.at == record.progress.next_at
    return Explanation(
        schedule=record.schedule.name,
        at=found.at,
        local=_local_time(record.schedule, found.at),
        status=found.status,
        reason=found.reason,
        summary=f"{record.schedule.name}:{when} {found.summary}",
        because=because,
        policy=policy_fields(record.schedule, found.policy),
        remedies=found.remedies,
        source=record.progress.source if decided else None,
        trail=record.progress.trail if decided else (),
        previous_at=found.previous_at,
        next_at=found.next_at,
    )


def _local_time(schedule: Schedule | None, at: datetime | None) -> str:
    """Return the instant in the schedule's time zone."""
    if schedule is None or at is None:
        return ""
    return local_time(at, zone_of(schedule.trigger) or "UTC")


def run_label(run: Run) -> str:
    """Return the label of a run without a schedule: its workflow and step, or its queue."""
    part = workflow_context(run) if run.parent or not run.queue else None
    if part is None:
        return f"queue {run.queue}"
    return f"{part.workflow}.{part.step}" if part.step else part.workflow


def explain_workflow_step(tx: Transaction, run: Run) -> list[str]:
    """Explain the role of a run in its workflow; empty if it has none."""
    part = workflow_context(run)
    if part is None:
        return []
    sentences = _explain_step(tx, run, part) if run.parent and part.step else []
    if run.state is RunState.LEASED and run.holder == HELD_BY_EXECUTOR:
        until = f" by {format_instant(run.lease_until)}" if run.lease_until is not None else ""
        sentences.append(f"the executor of workflow {part.workflow} runs it, and may report{until}")
    if run.state is RunState.LEASED and run.holder == HELD_BY_WAIT:
        sentences.append(_explain_wait(find_waiting_step(tx, run)))
    if run.state is RunState.LEASED and run.holder == HELD_BY_WORKFLOW and part.pin is not None:
        sentences += _explain_workflow_run(tx, run, part.pin)
    return sentences


def _explain_wait(waiting: WaitingStep) -> str:
    wait, ways = waiting.wait, []
    if wait.answer is not None:
        ways.append(f"an answer{f' from {wait.answer.to}' if wait.answer.to else ''}")
    if wait.event is not None:
        ways.append(f"the event {wait.event.name}")
    until = f" until {format_instant(waiting.until)}" if waiting.until is not None else ""
    return f"it waits for {' or '.join(ways) or 'time to pass'}{until}; no worker has it"


def _explain_step(tx: Transaction, run: Run, part: WorkflowContext) -> list[str]:
    item = f", item {part.item}" if part.item is not None else ""
    sentences = [
        f"it is step {part.step}{item} of workflow {part.workflow} version {part.version}, in {run.parent}"
    ]
    plan = load_plan(tx, run.namespace, part)
    needs = plan.steps[part.step].needs if plan is not None else ()
    if not needs:
        return [*sentences, "it needs no other step"]
    rows = tx.get_steps(run.parent, needs)
    ends = tx.get_runs([row.run_id for row in rows.values() if row.run_id])
    named = list_names([_need(name, rows, ends) for name in needs], max_shown=MAX_NAMES_SHOWN)
    return [*sentences, f"it waited for {named}"]


def _need(name: str, rows: Mapping[str, StepRow], ends: Mapping[str, Run]) -> str:
    row = rows.get(name)
    run = ends.get(row.run_id) if row is not None else None
    at = f" at {format_instant(run.finished_at)}" if run is not None and run.finished_at is not None else ""
    return f"{name} ({row.state if row is not None else 'waiting'}{at})"


def _explain_workflow_run(tx: Transaction, run: Run, pin: WorkflowContext) -> list[str]:
    totals = tx.get_steps(run.id, [""]).get("")
    plan = load_plan(tx, run.namespace, pin)
    if totals is None or plan is None:
        return []
    sentences = [f"{totals.met} of {len(plan.steps)} steps are settled, {totals.live} step runs are active"]
    if totals.parked:
        sentences.append(f"{totals.parked} step runs are parked and wait for a person")
    if totals.state in ("paused", "stopping"):
        sentences.append(f"the workflow is {totals.state}")
    return sentences
