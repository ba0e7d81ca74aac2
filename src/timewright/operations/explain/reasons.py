"""Explain why an occurrence was skipped: the reason, the policy behind it, and remedies."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from timewright.core.calendars import Calendar, build_filter
from timewright.core.input.encoding import to_json_value
from timewright.core.moments import HOUR, format_duration, format_instant
from timewright.core.policies.policies import CatchUp
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.adjustments import Adjustment, AdjustmentKind
from timewright.core.schedule.decision import Source
from timewright.core.schedule.pauses import Pause
from timewright.core.schedule.schedule import Schedule
from timewright.operations.health.pauses import resume_command
from timewright.ports import AuditEntry, RunFilter, Transaction
from timewright.ports.objects import AdjustmentsOf
from timewright.ports.rows import AuditFilter

MAX_RUNS_BACK = 50
MAX_AUDIT_ROWS = 1000
RUNS_EVERY_MISSED = (CatchUp.ALL, CatchUp.SPREAD)

SOURCE_REASONS: Mapping[Source, str] = {
    Source.BASELINE_CRON: "of its trigger",
    Source.BASELINE_INTERVAL: "of its interval",
    Source.BASELINE_ONCE: "its one instant came",
    Source.BASELINE_AFTER: "a run of its upstream schedule ended",
    Source.AI_INTERVAL: "an interval hint was active",
    Source.AI_ONESHOT: "a one-shot hint requested it",
    Source.CLAMPED_MIN: "its clamp moved it to the earliest allowed instant",
    Source.CLAMPED_MAX: "its clamp moved it to the latest allowed instant",
    Source.PAUSED: "a pause ended",
    Source.MANUAL: "someone started it",
    Source.BACKFILL: "someone requested a backfill",
    Source.RETRY: "it was retried",
}


class Remedy(Struct, frozen=True, kw_only=True):
    """A remedy: an operation with its request, and the same as a command line."""

    operation: str
    request: dict[str, Any]
    command: str


class ExplanationPart(Struct, frozen=True, kw_only=True):
    """A part of an explanation: sentences, the policy fields that decided, and remedies."""

    because: tuple[str, ...]
    policy: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


class RunContext(Struct, frozen=True, kw_only=True):
    """A run and what is needed to explain it: its schedule as it was then, and its calendars."""

    tx: Transaction
    run: Run
    schedule: Schedule | None
    calendars: Mapping[str, Calendar]
    now: datetime
    policy_error: str = ""
    """Why no queue of its namespace leases anything; empty if they do."""


def remedy(operation: str, subject: tuple[str, str], **fields: Any) -> Remedy:
    """Build a remedy: an operation on an object, and the command line for it."""
    request = {subject[0]: subject[1], **fields}
    options = " ".join(_option(name, value) for name, value in fields.items())
    command = f"timewright {operation} {shlex.quote(subject[1])} {options}".rstrip()
    return Remedy(operation=operation, request=request, command=command)


def list_instances_remedy() -> Remedy:
    """Return the remedy `instance list`, which shows whether an engine runs."""
    return Remedy(operation="instance list", request={}, command="timewright instance list")


def resume_remedy(pause: Pause) -> Remedy:
    """Return the remedy `resume`, which ends a pause."""
    request = {"scope": pause.scope, "name": pause.name} if pause.name else {"scope": pause.scope}
    return Remedy(operation="resume", request=request, command=resume_command(pause))


def pause_end_text(pause: Pause) -> str:
    """Return when a pause ends, to follow "until"."""
    return format_instant(pause.until) if pause.until is not None else "someone resumes it"


def update_remedy(schedule: Schedule, **fields: Any) -> Remedy:
    """Return the remedy `schedule update` with some fields."""
    return remedy("schedule update", ("schedule", schedule.name), **fields)


def policy_fields(schedule: Schedule, fields: tuple[str, ...]) -> dict[str, Any]:
    """Return some policies of a schedule as JSON values."""
    return {name: to_json_value(getattr(schedule, name)) for name in fields}


def explain_skipped(run_context: RunContext) -> ExplanationPart:
    """Explain why a run was skipped."""
    reason, schedule = run_context.run.reason, run_context.schedule
    if schedule is not None and reason in _BY_POLICY:
        return _BY_POLICY[reason](schedule)
    if schedule is not None and reason in _BY_RUN:
        return _BY_RUN[reason](run_context, schedule)
    return ExplanationPart(because=(f"it was skipped: {reason or 'no reason was recorded'}",))


def last_audit_entry(
    tx: Transaction, namespace: str, subject: str, action: str, *, by: datetime
) -> AuditEntry | None:
    """Return the newest audit entry with this subject and action, not after `by`, among the last 1000."""
    page = tx.find(AuditFilter(namespace=namespace, limit=MAX_AUDIT_ROWS))
    return next((e for e in page.rows if (e.subject, e.action) == (subject, action) and e.at <= by), None)


def last_adjustment(
    tx: Transaction,
    schedule_id: str,
    *kinds: AdjustmentKind,
    by: datetime,
    planned_at: datetime | None = None,
) -> Adjustment | None:
    """Return the newest adjustment of these kinds, not after `by`, of one instant or of any."""
    for one in tx.select(AdjustmentsOf(schedule_id)):
        if one.kind in kinds and one.at <= by and planned_at in (None, one.planned_at):
            return one
    return None


def actor_and_reason(entry: AuditEntry | Adjustment | None) -> str:
    """Return who, when and why, as the end of a sentence."""
    if entry is None:
        return ""
    why = f": {entry.reason}" if entry.reason else ""
    return f" by {entry.actor} at {format_instant(entry.at)}{why}"


def _overlap(run_context: RunContext, schedule: Schedule) -> ExplanationPart:
    other = _overlapping_run(run_context)
    which = "another run of it was active"
    if other is not None:
        until = format_instant(other.finished_at) if other.finished_at else "now, and still is"
        which = f"{other.id}, planned for {format_instant(other.planned_at)}, was active until {until}"
    return ExplanationPart(
        because=(
            f"when it came due, {which}",
            "overlap: skip does not run an occurrence while an earlier run is active",
        ),
        policy=("overlap", "lease"),
        remedies=(update_remedy(schedule, overlap="queue"), update_remedy(schedule, overlap="allow")),
    )


def _overlapping_run(run_context: RunContext) -> Run | None:
    """Return the run of the schedule that was active when this one was skipped."""
    skipped = run_context.run
    which = RunFilter(schedule_id=skipped.schedule_id, until=skipped.created_at, limit=MAX_RUNS_BACK)
    earlier: tuple[Run, ...] = run_context.tx.find(which).rows
    for run in earlier:
        ended = run.finished_at is not None and run.finished_at <= skipped.created_at
        if run.state is not RunState.SKIPPED and not ended:
            return run
    return None


def _missed(run_context: RunContext, schedule: Schedule) -> ExplanationPart:
    run = run_context.run
    late = run.created_at - run.planned_at
    because = [
        f"no engine ran until {format_instant(run.created_at)}, {format_duration(late)} after its time",
        f"catch_up: {schedule.catch_up.value} did not run it",
    ]
    window = schedule.catch_up_window
    if window is not None and late > window:
        because.append(
            f"occurrences older than catch_up_window, {format_duration(window)}, are not caught up"
        )
    elif late <= schedule.grace:
        because.append("the next occurrence was due too, so it counts as missed, not as late")
    else:
        because.append(f"within a grace of {format_duration(schedule.grace)} it would have run")
    return ExplanationPart(
        because=tuple(because),
        policy=("catch_up", "catch_up_window", "grace"),
        remedies=(
            *_catch_up_remedies(schedule, late),
            remedy("schedule backfill", ("schedule", schedule.name), **_span(run)),
        ),
    )


def _catch_up_remedies(schedule: Schedule, late: timedelta) -> tuple[Remedy, ...]:
    """Return the policy changes that would catch up such an occurrence in future."""
    fields: dict[str, Any] = {} if schedule.catch_up in RUNS_EVERY_MISSED else {"catch_up": CatchUp.ALL.value}
    if schedule.catch_up_window is not None and late > schedule.catch_up_window:
        fields["catch_up_window"] = format_duration(-(-late // HOUR) * HOUR)
    return (update_remedy(schedule, **fields),) if fields else ()


def _span(run: Run) -> dict[str, str]:
    return {"since": format_instant(run.planned_at), "until": format_instant(run.last_of or run.planned_at)}


def _paused(run_context: RunContext, schedule: Schedule) -> ExplanationPart:
    run = run_context.run
    kinds = (AdjustmentKind.PAUSE, AdjustmentKind.HINT_PAUSE)
    who = last_adjustment(run_context.tx, schedule.id, *kinds, by=run.planned_at)
    return ExplanationPart(
        because=(
            f"the schedule was paused{actor_and_reason(who)}",
            "occurrences within a pause are not caught up",
        ),
        remedies=(remedy("schedule backfill", ("schedule", schedule.name), **_span(run)),),
    )


def _queue_full(schedule: Schedule) -> ExplanationPart:
    limit = schedule.queue_limit
    return ExplanationPart(
        because=(f"{limit} of its runs were already waiting, which is its queue_limit",),
        policy=("overlap", "queue_limit"),
        remedies=(update_remedy(schedule, queue_limit=limit * 2),),
    )


def _superseded(schedule: Schedule) -> ExplanationPart:
    return ExplanationPart(
        because=("a newer occurrence replaced it before it started", "overlap: replace keeps the newest"),
        policy=("overlap",),
        remedies=(update_remedy(schedule, overlap="queue"),),
    )


def _deadline(schedule: Schedule) -> ExplanationPart:
    deadline = schedule.deadline
    allowed = format_duration(deadline) if deadline is not None else "its deadline"
    return ExplanationPart(
        because=(f"it could not start within {allowed} of its planned time",),
        policy=("deadline",),
        remedies=(update_remedy(schedule, deadline=format_duration(deadline * 2)),) if deadline else (),
    )


def _clamped(schedule: Schedule) -> ExplanationPart:
    shortest = schedule.clamp.min
    because = "the clamp moved it to a later instant"
    if shortest is not None:
        because = f"it was closer than clamp.min ({format_duration(shortest)}) to the occurrence before it"
    return ExplanationPart(because=(because,), policy=("clamp",))


def _quiet(schedule: Schedule) -> ExplanationPart:
    because, policy = "a rule counts its answer as nothing new", "rules"
    if schedule.watch is not None:
        because, policy = f"it looked, and {schedule.watch.changed} had not changed", "watch"
    return ExplanationPart(because=(f"{because}; that uses no attempt",), policy=(policy,))


def exclusion_reason(calendar: Calendar, at: datetime) -> str:
    """Return which calendar excludes an instant, and the name of the day."""
    called = calendar.name_at(at) if calendar.covers(at) else ""
    return f"calendar {calendar.name} excludes this instant" + (f": {called}" if called else "")


def _excluded(run_context: RunContext, schedule: Schedule) -> ExplanationPart:
    rule = schedule.calendar
    closed_by = (
        build_filter(rule, run_context.calendars).excluded_by(run_context.run.planned_at) if rule else None
    )
    because = "a calendar excluded this instant at that time"
    if closed_by is not None:
        because = exclusion_reason(closed_by, run_context.run.planned_at)
    return ExplanationPart(
        because=(because,),
        policy=("calendar",),
        remedies=(remedy("calendar get", ("calendar", closed_by.name)),) if closed_by is not None else (),
    )


def _manual(run_context: RunContext, schedule: Schedule) -> ExplanationPart:
    run = run_context.run
    kinds = (AdjustmentKind.SKIP, AdjustmentKind.MOVE)
    who = last_adjustment(run_context.tx, schedule.id, *kinds, by=run.created_at, planned_at=run.planned_at)
    moved = f" and moved it to {format_instant(who.moved_to)}" if who is not None and who.moved_to else ""
    return ExplanationPart(
        because=(f"someone skipped it{moved}{actor_and_reason(who)}",),
        remedies=(remedy("schedule run", ("schedule", schedule.name)),),
    )


_BY_POLICY: Mapping[str, Callable[[Schedule], ExplanationPart]] = {
    Reason.QUEUE_FULL.value: _queue_full,
    Reason.SUPERSEDED.value: _superseded,
    Reason.DEADLINE.value: _deadline,
    Reason.CLAMPED.value: _clamped,
    Reason.QUIET.value: _quiet,
}
_BY_RUN: Mapping[str, Callable[[RunContext, Schedule], ExplanationPart]] = {
    Reason.OVERLAP.value: _overlap,
    Reason.MISSED.value: _missed,
    Reason.PAUSED.value: _paused,
    Reason.EXCLUDED.value: _excluded,
    Reason.BY_HAND.value: _manual,
}


def _option(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    return f"{flag} {shlex.quote('null' if value is None else str(value))}"
