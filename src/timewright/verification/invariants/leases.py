"""Invariants of leases: fences, attempts, reclaiming and backoff of one run."""

from __future__ import annotations

import math
from itertools import pairwise

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.invariants.run_states import (
    CHARGED_OUTCOMES,
    LIVE_STATES,
    TERMINAL_OUTCOMES,
    is_incomplete,
)
from timewright.verification.oracle.schedule_policy import MAX_REFUNDS, RetryBudget
from timewright.verification.oracle.times import MINUTE, format_instant
from timewright.verification.rows import AttemptRow, RunRow
from timewright.verification.view import NEVER, HistoryView

# The error of a lease that ended by expiry. Other losses are reported by the holder, or prove that it died.
EXPIRED = ("", "lease expired without a result")
HOLDER_DIED = "the process of its holder has ended"

# Holders of a workflow's run: its steps or an external executor hold it until the workflow's time limit.
_WORKFLOW_HOLDERS = frozenset({"workflow", "executor"})


@invariant("I10", "fences rise", unit="leases")
def the_fence_rises(view: HistoryView, coverage: Coverage) -> Violations:
    """The fences of a run rise by one with every lease; none repeats and none is missing."""
    for run in view.history.runs:
        fences = [fence for fence, *_ in view.leases(run)]
        coverage.count += len(fences)
        ids = [a.lease_id for a in view.attempts.get(run.id, ()) if a.lease_id]
        ids += [run.lease_id] if run.state == "leased" and run.lease_id else []
        if len(set(fences)) < len(fences) or len(set(ids)) < len(ids):
            yield f"run {run.id}: a fence or a lease id was granted twice", (run, *view.attempts[run.id])
        elif fences and fences[-1] > run.fence:
            yield f"run {run.id}: its fence fell from {fences[-1]} to {run.fence}", (run,)
        elif fences != list(range(1, run.fence + 1)) and not is_incomplete(run):
            yield f"run {run.id}: {run.fence} leases were granted, but {len(fences)} are recorded", (run,)


@invariant("I11", "only the latest lease settles", unit="leases")
def only_the_latest_lease_settles(view: HistoryView, coverage: Coverage) -> Violations:
    """A lease ends before the next begins, so every accepted result came from the latest lease."""
    for run in view.history.runs:
        leases = list(view.leases(run))
        coverage.count += len(leases)
        for (_, _, ended, before), (fence, began, _, _) in pairwise(leases):
            if ended is not None and began < ended - view.skew:
                message = (
                    f"run {run.id}: lease {fence} began at {format_instant(began)}, before the last ended"
                )
                yield message, (run, *((before,) if before is not None else ()))
    yield from _accepted_late(view, coverage)


@invariant("I12", "finished runs stay finished", unit="runs")
def finished_runs_are_not_leased_again(view: HistoryView, coverage: Coverage) -> Violations:
    """A finished run is not leased again, unless a named user reset it in between."""
    for run in view.history.runs:
        attempts = view.attempts.get(run.id, [])
        coverage.count += 1
        starts = [a.leased_at for a in attempts[1:]] + _live_start(run, attempts)
        for attempt, began in zip(attempts, starts, strict=False):
            if not _was_final(view, run, attempt):
                continue
            named = any(
                line.actor and attempt.ended_at - view.skew <= line.at <= began + view.skew
                for line in view.resets(run)
            )
            if attempt.outcome == "succeeded" or not named:
                yield (
                    f"run {run.id} was finished after fence {attempt.fence}, but was leased again",
                    (run, attempt),
                )


@invariant("I13", "ends once", unit="runs")
def a_run_ends_once(view: HistoryView, coverage: Coverage) -> Violations:
    """A run ends once, and once more for every reset."""
    for run in view.history.runs:
        coverage.count += 1
        ends = [a for a in view.attempts.get(run.id, ()) if a.outcome in TERMINAL_OUTCOMES]
        good = [a for a in ends if a.outcome == "succeeded"]
        if len(good) > 1 or len(ends) > 1 + len(view.resets(run)):
            yield f"run {run.id} ended {len(ends)} times", (run, *ends)
    settled: dict[tuple[str, int], int] = {}
    for event in view.events.get("settled", ()):
        settled[event.subject, event.fence] = settled.get((event.subject, event.fence), 0) + 1
        if settled[event.subject, event.fence] == 2:
            yield f"two results of lease {event.fence} of {event.subject} were accepted", (event,)


@invariant("I16", "no early reclaim", unit="lost leases")
def no_lease_is_reclaimed_early(view: HistoryView, coverage: Coverage) -> Violations:
    """A lease is reclaimed only at or after its last recorded end, unless its holder is proven dead."""
    died = {event.subject: event.at for event in view.events.get("died", ())}
    renewed = {(e.subject, e.fence): e.value for e in view.events.get("renewed", ())}
    for attempt in view.history.attempts:
        if attempt.outcome != "lost":
            continue
        coverage.count += 1
        promised = max(attempt.lease_until, renewed.get((attempt.run_id, attempt.fence), 0))
        was_alive = view.history.events is not None and attempt.error == HOLDER_DIED
        # The store's clock may be behind the one that saw the holder die.
        was_alive = was_alive and died.get(attempt.holder, NEVER) > attempt.ended_at + view.skew
        if was_alive:
            yield f"lease {attempt.fence} of {attempt.run_id} was reclaimed from a living holder", (attempt,)
        elif attempt.error in EXPIRED and attempt.ended_at < promised:
            message = f"lease {attempt.fence} of {attempt.run_id} was reclaimed"
            message = f"{message} at {format_instant(attempt.ended_at)}"
            yield f"{message}, but lasted until {format_instant(promised)}", (attempt,)


@invariant("I17", "leases are bounded", unit="leases")
def a_lease_is_bounded(view: HistoryView, coverage: Coverage) -> Violations:
    """A lease ends within its length after the last renewal, and within the work's longest duration."""
    for run in view.history.runs:
        budget = _schedule_budget(view, run)
        if budget is None or run.handoff:
            continue
        for _, began, ended, attempt in view.leases(run):
            until = attempt.lease_until if attempt is not None else run.lease_until
            if (attempt.holder if attempt is not None else run.holder) in _WORKFLOW_HOLDERS:
                continue
            coverage.count += 1
            if until is None or until < began:
                yield f"run {run.id} is leased without an end, or until before its start", (run,)
            elif until > (view.now + view.grace if ended is None else ended) + budget.lease + view.skew:
                yield f"run {run.id} is leased until {format_instant(until)}, beyond its lease length", (run,)
            elif (
                longest := _longest(view, run, budget)
            ) is not None and until - began > longest + view.grace:
                yield f"run {run.id} was leased for longer than its work may take", (run,)
    yield from _renewals(view, coverage)


@invariant("I18", "attempts stay within the retry policy", unit="runs")
def attempts_stay_within_the_retry_budget(view: HistoryView, coverage: Coverage) -> Violations:
    """A run has one lease per attempt, loss, deferral and refund; failure and timeout are attempts."""
    for run in view.history.runs:
        budget, attempts = view.retry_budget(run), _attempts_since_reset(view, run)
        if budget is None or not attempts or is_incomplete(run):
            continue
        coverage.count += 1
        error = _charge_error(run, attempts, budget)
        if error:
            yield f"run {run.id} {error}", (run, *attempts)


@invariant("I19", "exhausted runs end", unit="runs")
def exhausted_runs_fail_or_park(view: HistoryView, coverage: Coverage) -> Violations:
    """A run whose attempts are used up has failed or is parked; one that was lost too often is parked."""
    for run in view.history.runs:
        budget, attempts = view.retry_budget(run), _attempts_since_reset(view, run)
        if budget is None or not attempts or is_incomplete(run):
            continue
        coverage.count += 1
        error = _exhaustion_error(run, attempts[-1], budget)
        if error:
            yield f"run {run.id} {error}", (run, attempts[-1])


@invariant("I20", "backoff is kept", unit="retries")
def backoff_is_kept(view: HistoryView, coverage: Coverage) -> Violations:
    """The next attempt begins at the earliest one backoff after the last one ended."""
    for run in view.history.runs:
        budget, attempts = view.retry_budget(run), _attempts_since_reset(view, run)
        if budget is None or is_incomplete(run):
            continue
        begins = [a.leased_at for a in attempts[1:]] + _live_start(run, attempts)
        charged = 0
        for attempt, began in zip(attempts, begins, strict=False):
            charged += attempt.charged
            if not attempt.charged:
                continue
            coverage.count += 1
            wait = budget.backoff.after(charged, run_id=run.id)
            if began < attempt.ended_at + wait:
                yield (
                    f"run {run.id} was leased at {format_instant(began)}, before its backoff was over",
                    (run, attempt),
                )


@invariant("I26", "at most once", unit="runs")
def at_most_once_is_leased_once(view: HistoryView, coverage: Coverage) -> Violations:
    """An at-most-once run is leased once, and once more for every reset."""
    for run in view.history.runs:
        budget = _schedule_budget(view, run)
        if budget is None or not budget.at_most_once:
            continue
        coverage.count += 1
        leases = sum(1 for _ in view.leases(run))
        if leases > 1 + len(view.resets(run)):
            yield f"run {run.id} is at-most-once, but was leased {leases} times", (run,)


@invariant("I45", "output precedes the result", unit="attempts with output")
def output_is_written_before_the_result(view: HistoryView, coverage: Coverage) -> Violations:
    """When the result of an attempt is written, all of its output is written already."""
    if view.history.events is None:
        coverage.not_checked_because = "not checked here: needs the events of a simulation"
        return
    for event in view.events.get("output", ()):
        coverage.count += 1
        if event.value < event.limit:
            message = (
                f"run {event.subject}, fence {event.fence}, ended with {event.value} of {event.limit} bytes"
            )
            yield f"{message} of its output stored", (event,)


@invariant("I47", "one copy per process", unit="executions")
def a_process_runs_one_copy_of_a_run(view: HistoryView, coverage: Coverage) -> Violations:
    """Two copies of one run never run side by side in one process."""
    if view.history.events is None:
        coverage.not_checked_because = "not checked here: needs the events of a simulation"
        return
    running: dict[tuple[str, str], int] = {}
    for event in view.history.events:
        key = (event.subject, event.detail)
        if event.kind == "work ended" and running.get(key) == event.fence:
            del running[key]
        elif event.kind == "work began":
            coverage.count += 1
            if key in running:
                message = f"run {event.subject}: fence {event.fence} began in {event.detail}"
                yield f"{message} while fence {running[key]} was running there", (event,)
            running[key] = event.fence


def _live_start(run: RunRow, attempts: list[AttemptRow]) -> list[int]:
    live = run.state == "leased" and run.leased_at is not None and len(attempts) > 0
    return [run.leased_at] if live and run.leased_at is not None else []


def _schedule_budget(view: HistoryView, run: RunRow) -> RetryBudget | None:
    policy = view.policy(run) if run.schedule_id else None
    return policy.retry_budget if policy is not None else None


def _attempts_since_reset(view: HistoryView, run: RunRow) -> list[AttemptRow]:
    """The attempts since the last reset."""
    restarts, attempts = view.resets(run), view.attempts.get(run.id, [])
    if not restarts:
        return attempts
    begun = restarts[-1].at
    if any(a.leased_at <= begun <= a.ended_at and a.leased_at >= begun - view.skew for a in attempts):
        return []  # within the skew of the reset: before or after is unknown
    return [a for a in attempts if a.leased_at >= begun]


def _was_final(view: HistoryView, run: RunRow, attempt: AttemptRow) -> bool:
    budget = _schedule_budget(view, run)
    if attempt.outcome in TERMINAL_OUTCOMES:
        return True
    return budget is not None and budget.at_most_once


def _accepted_late(view: HistoryView, coverage: Coverage) -> Violations:
    """Renewals and results that were accepted after their lease had ended, as recorded by a simulation."""
    over: dict[tuple[str, int], int] = {}
    for event in view.history.events or ():
        if event.kind not in ("renewed", "settled", "reclaimed"):
            continue
        coverage.count += 1
        if (event.subject, event.fence) in over:
            yield f"{event.kind}: lease {event.fence} of {event.subject} had already ended", (event,)
        if event.kind != "renewed":
            over[event.subject, event.fence] = event.at


def _longest(view: HistoryView, run: RunRow, budget: RetryBudget) -> float:
    """The longest a run may be leased: its time limit, a lease to notice its end, and the grace.

    No limit without a time limit, and for a function that may run on a thread, which cannot be killed.
    """
    policy = view.policy(run)
    target = policy.target if policy is not None else {}
    if budget.time_limit is None or (target.get("kind") == "call" and target.get("isolation") != "process"):
        return math.inf
    waits = target.get("timeout")
    answer = 31 * MINUTE if waits is not None else 0
    return max(budget.time_limit, answer) + budget.lease_grace + 2 * budget.lease


def _renewals(view: HistoryView, coverage: Coverage) -> Violations:
    last: dict[tuple[str, int], int] = {}
    for event in view.events.get("renewed", ()):
        coverage.count += 1
        run = view.runs.get(event.subject)
        budget = view.retry_budget(run) if run is not None else None
        if event.value < last.get((event.subject, event.fence), 0):
            yield f"a renewal of {event.subject} shortened its lease", (event,)
        if budget is not None and event.value > event.at + budget.lease:
            yield f"a renewal of {event.subject} extended its lease beyond the lease length", (event,)
        last[event.subject, event.fence] = event.value


def _charge_error(run: RunRow, attempts: list[AttemptRow], budget: RetryBudget) -> str:
    charged = sum(a.charged for a in attempts)
    free = [a for a in attempts if a.outcome == "released" and not a.charged]
    charges = CHARGED_OUTCOMES | ({"lost"} if budget.losses_are_attempts else set())
    for attempt in attempts:
        if attempt.outcome in charges and not attempt.charged:
            return f"was not charged for the {attempt.outcome} lease with fence {attempt.fence}"
        if attempt.charged and attempt.outcome not in charges | {"released"}:
            return f"was charged for the {attempt.outcome} lease with fence {attempt.fence}"
    lost = 0 if budget.losses_are_attempts else sum(a.outcome == "lost" for a in attempts)
    if not lost <= run.losses <= lost + len(free):
        return f"counts {run.losses} losses, but {lost} leases were lost"
    if run.losses > budget.max_losses + 1:
        return f"was lost {run.losses} times, but is started again only {budget.max_losses} times"
    if len(free) - (run.losses - lost) > MAX_REFUNDS:
        return f"was released {len(free)} times without a charge"
    if run.attempts != charged:
        return f"counts {run.attempts} attempts, but {charged} were charged"
    if charged > budget.max_attempts:
        return f"used {charged} attempts of {budget.max_attempts}"
    return ""


def _exhaustion_error(run: RunRow, last: AttemptRow, budget: RetryBudget) -> str:
    silent = last.outcome in ("timed_out", "lost", "released")
    if budget.at_most_once and silent and not (run.state == "parked" and run.reason == "unknown"):
        return (
            ""
            if run.state == "cancelled"
            else f"got no result, but is {run.state} instead of parked: unknown"
        )
    is_lost, is_over = run.state == "parked" and run.reason == "lost", run.losses > budget.max_losses
    if not budget.at_most_once and ((is_lost and not is_over) or (is_over and run.state in LIVE_STATES)):
        return f"was lost {run.losses} times of {budget.max_losses}, but is {run.state} {run.reason}".rstrip()
    if run.attempts < budget.max_attempts or last.outcome in TERMINAL_OUTCOMES or is_lost:
        return ""
    if run.state in LIVE_STATES:
        return f"used {run.attempts} of {budget.max_attempts} attempts, but is {run.state}"
    if run.state == "failed" and budget.parks_when_exhausted and run.reason != "unresolved":
        return "used its attempts, but failed instead of being parked"
    if run.state == "parked" and not budget.parks_when_exhausted and run.reason != "unknown":
        return "used its attempts, but was parked instead of failing"
    return ""
