"""Explain the state of a run: what it waits for, who holds it, or how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from timewright.core.budgets.budgets import describe_window
from timewright.core.budgets.spending import exhausted_budgets
from timewright.core.moments import MAX_STORED_INSTANT, ZERO, format_duration, format_instant
from timewright.core.policies.limits import is_grouped_key, limit_of, shown_limit
from timewright.core.policies.policies import Retry
from timewright.core.run.leasing import LimitUsage, WaitReason
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.schedule import Schedule
from timewright.ledger.lookups import find_owners, load_terms
from timewright.ledger.pauses import load_pauses
from timewright.ledger.records.instances import explain_placement
from timewright.ledger.workflow_runs.records import HELD_BY_WAIT
from timewright.operations.explain.dependencies import explain_unmet, explain_waiting, whole_seconds
from timewright.operations.explain.reasons import (
    SOURCE_REASONS,
    ExplanationPart,
    Remedy,
    RunContext,
    actor_and_reason,
    last_audit_entry,
    list_instances_remedy,
    pause_end_text,
    remedy,
    resume_remedy,
    update_remedy,
)
from timewright.ports import Transaction
from timewright.ports.rows import LiveRuns

_REASON_PREFIXES = tuple(
    f"{waits.value}: " for waits in (WaitReason.BUDGET, WaitReason.PROVIDER, WaitReason.PAUSE)
)


def explain_run_state(run_context: RunContext) -> ExplanationPart:
    """Explain why a run was planned, and its current state or how it ended."""
    part = (
        explain_waiting(run_context)
        or explain_unmet(run_context)
        or _EXPLAINERS[run_context.run.state](run_context)
    )
    return ExplanationPart(
        because=(*_planned(run_context.run), *part.because), policy=part.policy, remedies=part.remedies
    )


def _planned(run: Run) -> list[str]:
    because = [f"it was planned because {SOURCE_REASONS[run.source]}"]
    for rejected in run.trail:
        when = format_instant(rejected.at) if rejected.at is not None else "no further time"
        because.append(f"instead of {when} ({rejected.source.value}): {rejected.why}")
    if run.missed:
        because.append(f"{run.missed} occurrences before it were missed; the target receives that number")
    return because


def _ready(run_context: RunContext) -> ExplanationPart:
    run, now = run_context.run, run_context.now
    paused = _explain_pause(run_context)
    if paused is not None:
        return paused
    deferred = explain_deferral(run, now=now)
    if deferred is not None:
        return deferred
    if run.fire_at > now:
        why = "backoff after a failed attempt" if run.attempts else "jitter, spread or its requested time"
        if run.deferred_since is not None:
            until = format_instant(run.deferred_since + _retry(run_context).max_wait)
            why = f"the work deferred it ({run.error}), which it may do until {until} without an attempt"
        return ExplanationPart(
            because=(f"it may start at {format_instant(run.fire_at)}: {why}",), policy=("jitter", "retry")
        )
    if run_context.policy_error and run.queue:
        return ExplanationPart(
            because=(f"no queue leases anything: {run_context.policy_error}",), policy=("queue",)
        )
    limits = run_context.tx.get_limits(run.limit_keys) if run.limit_keys else {}
    full = {name: usage for name, usage in limits.items() if not usage.free}
    over = {name: at for name, usage in limits.items() if (at := usage.closed_until(now=now)) is not None}
    if over and not full:
        return ExplanationPart(
            because=tuple(
                f"limit {shown_limit(name)[1]} allows the next start at {format_instant(at)}"
                for name, at in over.items()
            ),
            policy=("limits", "rate"),
            remedies=tuple(remedy("limit get", ("limit", limit_of(name))) for name in over),
        )
    if full:
        return ExplanationPart(
            because=tuple(_full_limit(name, usage) for name, usage in full.items()),
            policy=("queue", "limits", "max_running"),
            remedies=tuple(_raise_limit_remedy(name, usage) for name, usage in full.items()),
        )
    lacking = "" if run.handoff else explain_placement(run_context.tx, run.needs, now=now)
    if lacking:
        remedies = (list_instances_remedy(),)
        return ExplanationPart(because=(lacking,), policy=("target", "runs_on"), remedies=remedies)
    worker = f"a worker that leases from queue {run.queue}" if run.handoff else "an engine"
    waited = format_duration(whole_seconds(now - run.fire_at))
    lease_remedy = (
        remedy("queue lease", ("queue", run.queue)) if run.handoff and run.queue else list_instances_remedy()
    )
    return ExplanationPart(
        because=(f"it has waited {waited} for {worker}; check that one is running",), remedies=(lease_remedy,)
    )


def _explain_pause(run_context: RunContext) -> ExplanationPart | None:
    """Explain a run that a pause holds. A pause of the installation leaves no mark at the run."""
    tx, run, now = run_context.tx, run_context.run, run_context.now
    pauses = load_pauses(tx, now=now)
    is_due = run.fire_at <= now or run.reason.startswith(f"{WaitReason.PAUSE.value}: ")
    if not is_due or not pauses.any_active:
        return None
    owner = find_owners(tx, [run], load_terms(tx, [run]))[run.id]
    pause = pauses.active_for(run.namespace, queue=run.queue, schedule=owner.schedule)
    if pause is None:
        return None
    until = pause_end_text(pause)
    why = f"{pause.describe()} is paused by {pause.actor}{f': {pause.reason}' if pause.reason else ''}"
    return ExplanationPart(because=(f"it waits until {until}: {why}",), remedies=(resume_remedy(pause),))


def _full_limit(name: str, usage: LimitUsage) -> str:
    kind, named = shown_limit(name)
    if kind == "schedule":
        return f"{usage.held} of its runs are running, and max_running is {usage.capacity}"
    return f"{kind} {named} is full: it allows {usage.capacity}, and {usage.held} are running"


def _raise_limit_remedy(name: str, usage: LimitUsage) -> Remedy:
    kind, named = shown_limit(name)
    if kind == "queue":
        return remedy("queue policy set", (kind, named), max_running=usage.capacity + 1)
    if kind == "schedule":
        return remedy("schedule update", (kind, named), max_running=usage.capacity + 1)
    if is_grouped_key(name):
        # `limit set` replaces the key and the rate too, so show them first.
        return remedy("limit get", (kind, limit_of(name)))
    return remedy("limit set", (kind, named), max_running=usage.capacity + 1)


def _held(run_context: RunContext) -> ExplanationPart:
    before = [
        run
        for run in run_context.tx.select(LiveRuns([run_context.run.schedule_id]))
        if run.id != run_context.run.id
    ]
    ahead = [run for run in before if run.state is not RunState.HELD] or before[:1]
    names = ", ".join(f"{run.id} ({run.state.value})" for run in ahead) or "a run that is about to end"
    return ExplanationPart(
        because=(f"it waits until these runs end: {names}",), policy=("overlap", "queue_limit")
    )


def _leased(run_context: RunContext) -> ExplanationPart:
    run = run_context.run
    if run.holder == HELD_BY_WAIT:
        # `run get` shows the question and the form that `run answer` takes.
        remedies = (remedy("run get", ("run", run.id)), remedy("run cancel", ("run", run.id)))
        return ExplanationPart(because=(), policy=("wait",), remedies=remedies)
    since = format_instant(run.leased_at) if run.leased_at else "an unknown time"
    until = format_instant(run.lease_until) if run.lease_until else "its end"
    because = [f"{run.holder or 'an unknown holder'} has leased it since {since}, until {until}"]
    if run.lease_until is not None and run.lease_until <= run_context.now:
        because.append("that lease has expired; an engine will reclaim it and count a loss")
    if run.cancel_at is not None:
        because.append(f"it was asked to stop at {format_instant(run.cancel_at)}: {run.reason}")
    return ExplanationPart(
        because=tuple(because), policy=("lease",), remedies=(remedy("run cancel", ("run", run.id)),)
    )


def _succeeded(run_context: RunContext) -> ExplanationPart:
    run = run_context.run
    because = []
    if run.started_at is not None and run.finished_at is not None:
        took = format_duration(max(run.finished_at - run.started_at, ZERO))
        late = format_duration(max(run.started_at - run.planned_at, ZERO))
        because.append(f"it started {late} after its planned time and took {took}")
    if run.attempts:
        because.append(f"{run.attempts} attempts failed before")
    if run.outcome_label:
        because.append(f"its handler returned the outcome label {run.outcome_label}")
    return ExplanationPart(because=tuple(because))


def _failed(run_context: RunContext) -> ExplanationPart:
    run = run_context.run
    because = [f"{_attempts_used(run_context)}; the last one ended with: {run.error or 'no message'}"]
    if run.reason == Reason.UNRESOLVED:
        because.append("its target cannot be resolved, so the schedule is parked")
    remedies = [remedy("run retry", ("run", run.id))]
    if run_context.schedule is not None:
        remedies.append(
            update_remedy(run_context.schedule, max_attempts=run_context.schedule.retry.max_attempts + 2)
        )
    return ExplanationPart(because=tuple(because), policy=("retry",), remedies=tuple(remedies))


def _parked(run_context: RunContext) -> ExplanationPart:
    run = run_context.run
    because = [
        f"{_attempts_used(run_context)}; {run.error or 'no message was stored'}",
        "a parked run does not start again until it is reset",
    ]
    if run.reason == Reason.UNKNOWN:
        because = [
            f"{run.error or 'its lease expired without a report'}; the work may have been done",
            "with at_most_once, a person must decide what happened",
        ]
    if run.reason == Reason.LOST:
        because[0] = (
            f"its lease or its process was lost {run.losses} times, and it is started again at most"
            f" {_retry(run_context).max_losses} times; the last loss: {run.error or 'no message was stored'}"
        )
    policy = ("delivery", "retry")
    return ExplanationPart(
        because=tuple(because), policy=policy, remedies=(remedy("run reset", ("run", run.id)),)
    )


def _cancelled(run_context: RunContext) -> ExplanationPart:
    run = run_context.run
    if run.reason == Reason.REPLACED:
        return ExplanationPart(because=("a newer occurrence replaced it",), policy=("overlap",))
    entry = last_audit_entry(run_context.tx, run.namespace, run.id, "run.cancel", by=run_context.now)
    who = actor_and_reason(entry) if entry is not None else f": {run.reason}"
    return ExplanationPart(
        because=(f"it was cancelled{who}",), remedies=(remedy("run retry", ("run", run.id)),)
    )


def _attempts_used(run_context: RunContext) -> str:
    return f"{run_context.run.attempts} of {_retry(run_context).max_attempts} attempts were used"


def _retry(run_context: RunContext) -> Retry:
    return load_terms(run_context.tx, [run_context.run])[run_context.run.id].terms.retry


_EXPLAINERS: Mapping[RunState, Callable[[RunContext], ExplanationPart]] = {
    RunState.READY: _ready,
    RunState.HELD: _held,
    RunState.LEASED: _leased,
    RunState.SUCCEEDED: _succeeded,
    RunState.FAILED: _failed,
    RunState.PARKED: _parked,
    RunState.CANCELLED: _cancelled,
}


def explain_deferral(run: Run, *, now: datetime) -> ExplanationPart | None:
    """Explain a run that waits only for a budget, a provider or the end of a pause; None for other runs."""
    if run.fire_at <= now or not run.reason.startswith(_REASON_PREFIXES):
        return None
    kind, name, why = run.reason.split(": ", 2)
    if kind == WaitReason.PAUSE.value:
        until = "its end" if run.fire_at >= MAX_STORED_INSTANT else format_instant(run.fire_at)
        return ExplanationPart(because=(f"it waits until {until}: {why}",))
    because = (
        f"it waits until {format_instant(run.fire_at)} for {kind} {name}: {why}",
        "waiting does not count as an attempt",
    )
    if kind == WaitReason.PROVIDER.value:
        return ExplanationPart(
            because=because, policy=("provider",), remedies=(remedy("provider open", (kind, name)),)
        )
    return ExplanationPart(
        because=because, policy=("budgets",), remedies=(remedy("budget get", (kind, name)),)
    )


def explain_budget_ahead(
    tx: Transaction, schedule: Schedule, at: datetime | None, *, now: datetime
) -> tuple[str, ...]:
    """Explain what a closed provider or a used-up budget means for a future occurrence."""
    load = tx.read_budgets().budgets_of_schedule(schedule)
    if load is None:
        return ()
    when, sentences = at or now, []
    until = load.window.closed_until(now=now) if load.window is not None else None
    if load.window is not None and until is not None and when < until:
        sentences.append(
            f"provider {load.provider} is {describe_window(load.window)}; its runs wait until then"
        )
    accounts = tx.get_accounts(load.account_keys(when))
    sentences += [
        f"budget {name} is used up until {format_instant(end)}: {why}"
        for name, end, why in exhausted_budgets(load, accounts, {}, now=when)
    ]
    return tuple(sentences)
