"""Leased, fenced, charged: what the leases of one run may and may not do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.policy import REFUND_CAP, Budget
from timewright.proof.rows import AttemptRow, RunRow
from timewright.proof.spans import MINUTE, spelled
from timewright.proof.view import SETTLED, View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

TERMINAL_OUTCOMES = frozenset({"succeeded", "cancelled"})
CHARGED = frozenset({"failed", "timed_out", "lost"})
OUTCOMES = CHARGED | TERMINAL_OUTCOMES | {"released"}
ENDS = {
    "succeeded": frozenset({"succeeded"}),
    "failed": CHARGED | {"released"},
    "parked": CHARGED | {"released"},
    "cancelled": OUTCOMES - {"succeeded"},
    "ready": CHARGED | {"released"},
    "held": CHARGED | {"released", "cancelled"},
    "skipped": CHARGED | {"released"},
}

# Who holds a workflow's run: its steps, or an executor outside, until the time limit of the workflow.
_NO_PROCESS = frozenset({"workflow", "executor"})


@invariant("I9", "lives by the table", counts="runs")
def a_run_moves_as_its_table_says(view: View, seen: Seen) -> Broken:
    """A run is where its last lease left it: each state follows from the outcome before it."""
    for run in view.history.runs:
        seen.count += 1
        wrong = _why_impossible(view, run)
        if wrong:
            yield f"run {run.id} {wrong}", (run, *view.attempts.get(run.id, ())[-1:])


@invariant("I10", "the fence rises", counts="leases")
def the_fence_rises(view: View, seen: Seen) -> Broken:
    """The fences of one run rise by one with every lease, none is given twice, and none is missing."""
    for run in view.history.runs:
        fences = [fence for fence, *_ in view.leases(run)]
        seen.count += len(fences)
        ids = [a.lease_id for a in view.attempts.get(run.id, ()) if a.lease_id]
        ids += [run.lease_id] if run.state == "leased" and run.lease_id else []
        if len(set(fences)) < len(fences) or len(set(ids)) < len(ids):
            yield f"run {run.id}: a fence or a lease was given twice", (run, *view.attempts[run.id])
        elif fences and fences[-1] > run.fence:
            yield f"run {run.id}: its fence fell from {fences[-1]} to {run.fence}", (run,)
        elif fences != list(range(1, run.fence + 1)) and not _is_odd(run):
            yield f"run {run.id}: {run.fence} leases were given, and {len(fences)} are recorded", (run,)


@invariant("I11", "only the last lease answers", counts="leases")
def only_the_last_lease_answers(view: View, seen: Seen) -> Broken:
    """A lease ends before the next begins: what was accepted came from the latest lease."""
    for run in view.history.runs:
        leases = list(view.leases(run))
        seen.count += len(leases)
        for (_, _, ended, before), (fence, began, _, _) in pairwise(leases):
            if ended is not None and began < ended - view.skew:
                said = f"run {run.id}: lease {fence} began at {spelled(began)}, before the last one ended"
                yield said, (run, *((before,) if before is not None else ()))
    yield from _accepted_late(view, seen)


@invariant("I12", "what is over stays over", counts="runs")
def what_is_over_is_not_leased(view: View, seen: Seen) -> Broken:
    """After its end a run is not leased again, unless someone with a name reset it in between."""
    for run in view.history.runs:
        attempts = view.attempts.get(run.id, [])
        seen.count += 1
        starts = [a.leased_at for a in attempts[1:]] + _live_start(run, attempts)
        for attempt, began in zip(attempts, starts, strict=False):
            if not _was_final(view, run, attempt):
                continue
            named = any(
                line.actor and attempt.ended_at - view.skew <= line.at <= began + view.skew
                for line in view.restarts(run)
            )
            if attempt.outcome == "succeeded" or not named:
                yield (
                    f"run {run.id} was over after fence {attempt.fence}, and was leased again",
                    (run, attempt),
                )


@invariant("I13", "ends once", counts="runs")
def a_run_ends_once(view: View, seen: Seen) -> Broken:
    """A run has one end, and one more for every time someone reset it."""
    for run in view.history.runs:
        seen.count += 1
        ends = [a for a in view.attempts.get(run.id, ()) if a.outcome in TERMINAL_OUTCOMES]
        good = [a for a in ends if a.outcome == "succeeded"]
        if len(good) > 1 or len(ends) > 1 + len(view.restarts(run)):
            yield f"run {run.id} ended {len(ends)} times", (run, *ends)
    answered: dict[tuple[str, int], int] = {}
    for note in view.notes.get("answered", ()):
        answered[note.subject, note.fence] = answered.get((note.subject, note.fence), 0) + 1
        if answered[note.subject, note.fence] == 2:
            yield f"two answers of lease {note.fence} of {note.subject} were accepted", (note,)


@invariant("I16", "no lease is taken early", counts="lost leases")
def no_lease_is_taken_early(view: View, seen: Seen) -> Broken:
    """A lease is taken back for its silence only at or after the end that was recorded last."""
    renewed = {(n.subject, n.fence): n.value for n in view.notes.get("renewed", ())}
    for attempt in view.history.attempts:
        if attempt.outcome != "lost":
            continue
        seen.count += 1
        promised = max(attempt.lease_until, renewed.get((attempt.run_id, attempt.fence), 0))
        if attempt.ended_at < promised:
            said = f"lease {attempt.fence} of {attempt.run_id} was taken at {spelled(attempt.ended_at)}"
            yield f"{said}, and was promised until {spelled(promised)}", (attempt,)


@invariant("I17", "a lease is bounded", counts="leases")
def a_lease_is_bounded(view: View, seen: Seen) -> Broken:
    """A lease lasts no longer than its length after the last renewal, and than the work may take."""
    for run in view.history.runs:
        budget = _schedule_budget(view, run)
        if budget is None or run.handoff:
            continue
        for _, began, ended, attempt in view.leases(run):
            until = attempt.lease_until if attempt is not None else run.lease_until
            if (attempt.holder if attempt is not None else run.holder) in _NO_PROCESS:
                continue
            seen.count += 1
            if until is None or until < began:
                yield f"run {run.id} is leased without an end, or until before it began", (run,)
            elif until > (view.now + view.grace if ended is None else ended) + budget.lease + view.skew:
                yield f"run {run.id} is leased until {spelled(until)}, longer than a lease is", (run,)
            elif until - began > _longest(view, run, budget) + view.grace:
                yield f"run {run.id} was leased for longer than its work may take", (run,)
    yield from _renewals(view, seen)


@invariant("I18", "a budget is a budget", counts="runs")
def a_budget_is_a_budget(view: View, seen: Seen) -> Broken:
    """A run is leased no oftener than its attempts and refunds; failure, time-out and loss are charged."""
    for run in view.history.runs:
        budget, attempts = view.budget(run), _since_restart(view, run)
        if budget is None or not attempts or _is_odd(run):
            continue
        seen.count += 1
        wrong = _why_uncharged(run, attempts, budget)
        if wrong:
            yield f"run {run.id} {wrong}", (run, *attempts)


@invariant("I19", "exhausted means over", counts="runs")
def exhausted_means_over(view: View, seen: Seen) -> Broken:
    """A run whose attempts are used up has failed or is parked, as its policy says, and waits for nobody."""
    for run in view.history.runs:
        budget, attempts = view.budget(run), _since_restart(view, run)
        if budget is None or not attempts or _is_odd(run):
            continue
        seen.count += 1
        wrong = _why_not_over(run, attempts[-1], budget)
        if wrong:
            yield f"run {run.id} {wrong}", (run, attempts[-1])


@invariant("I20", "backoff is kept", counts="retries")
def backoff_is_kept(view: View, seen: Seen) -> Broken:
    """The next attempt begins no sooner than its backoff after the last one ended."""
    for run in view.history.runs:
        budget, attempts = view.budget(run), _since_restart(view, run)
        if budget is None or _is_odd(run):
            continue
        begins = [a.leased_at for a in attempts[1:]] + _live_start(run, attempts)
        charged = 0
        for attempt, began in zip(attempts, begins, strict=False):
            charged += attempt.charged
            if not attempt.charged:
                continue
            seen.count += 1
            wait = budget.backoff.after(charged, run_id=run.id)
            if began < attempt.ended_at + wait:
                yield (
                    f"run {run.id} was leased at {spelled(began)}, before its backoff was over",
                    (run, attempt),
                )


@invariant("I26", "at most once", counts="runs")
def at_most_once_is_leased_once(view: View, seen: Seen) -> Broken:
    """A run that may happen at most once is leased once, and once more for every time someone reset it."""
    for run in view.history.runs:
        budget = _schedule_budget(view, run)
        if budget is None or not budget.at_most_once:
            continue
        seen.count += 1
        leases = sum(1 for _ in view.leases(run))
        if leases > 1 + len(view.restarts(run)):
            yield f"run {run.id} may happen at most once, and was leased {leases} times", (run,)


def _is_odd(run: RunRow) -> bool:
    """Runs that did not live their whole life here, or could not be understood."""
    return run.lane.startswith("import:") or run.reason == "unreadable"


def _live_start(run: RunRow, attempts: list[AttemptRow]) -> list[int]:
    live = run.state == "leased" and run.leased_at is not None and len(attempts) > 0
    return [run.leased_at] if live and run.leased_at is not None else []


def _schedule_budget(view: View, run: RunRow) -> Budget | None:
    policy = view.policy(run) if run.schedule_id else None
    return policy.budget if policy is not None else None


def _since_restart(view: View, run: RunRow) -> list[AttemptRow]:
    """The leases since someone last gave the run its attempts back."""
    restarts, attempts = view.restarts(run), view.attempts.get(run.id, [])
    if not restarts:
        return attempts
    begun = restarts[-1].at
    if any(a.leased_at <= begun <= a.ended_at and a.leased_at >= begun - view.skew for a in attempts):
        return []  # too near to tell whether it was before or after
    return [a for a in attempts if a.leased_at >= begun]


def _was_final(view: View, run: RunRow, attempt: AttemptRow) -> bool:
    budget = _schedule_budget(view, run)
    if attempt.outcome in TERMINAL_OUTCOMES:
        return True
    return budget is not None and budget.at_most_once


def _why_impossible(view: View, run: RunRow) -> str:
    attempts = view.attempts.get(run.id, [])
    leased = run.leased_at is not None and run.lease_until is not None and bool(run.holder)
    if run.state == "leased" and (not leased or run.fence < 1):
        return "is leased to nobody, or without an end"
    if run.state != "leased" and (run.lease_id or run.lease_until is not None):
        return f"is {run.state}, and still has a lease"
    if (run.state in SETTLED) != (run.finished_at is not None) and run.state != "parked":
        return f"is {run.state}, and its end is {'not ' if run.state in SETTLED else ''}recorded"
    strange = next((a.outcome for a in attempts if a.outcome not in OUTCOMES), "")
    if strange:
        return f"has a lease that ended in a way that does not exist: {strange}"
    if run.state not in ENDS or _is_odd(run):
        return ""
    if run.state == "succeeded" and not attempts:
        return "succeeded, and was never leased"
    if not attempts or view.restarts(run):
        return ""
    return "" if attempts[-1].outcome in ENDS[run.state] else f"is {run.state} after {attempts[-1].outcome}"


def _accepted_late(view: View, seen: Seen) -> Broken:
    """What was accepted though its lease was over, as a simulator saw it."""
    over: dict[tuple[str, int], int] = {}
    for note in view.history.notes or ():
        if note.kind not in ("renewed", "answered", "reclaimed"):
            continue
        seen.count += 1
        if (note.subject, note.fence) in over:
            yield f"{note.kind}: lease {note.fence} of {note.subject} was over already", (note,)
        if note.kind != "renewed":
            over[note.subject, note.fence] = note.at


def _longest(view: View, run: RunRow, budget: Budget) -> int:
    """How long the work of a run may take, with a lease to notice and a grace to end."""
    policy = view.policy(run)
    waits = policy.target.get("timeout") if policy is not None else None
    answer = 31 * MINUTE if waits is not None else 0
    return max(budget.time_limit, answer) + budget.lease_grace + 2 * budget.lease


def _renewals(view: View, seen: Seen) -> Broken:
    last: dict[tuple[str, int], int] = {}
    for note in view.notes.get("renewed", ()):
        seen.count += 1
        run = view.runs.get(note.subject)
        budget = view.budget(run) if run is not None else None
        if note.value < last.get((note.subject, note.fence), 0):
            yield f"a renewal of {note.subject} made its lease shorter", (note,)
        if budget is not None and note.value > note.at + budget.lease:
            yield f"a renewal of {note.subject} made its lease longer than a lease is", (note,)
        last[note.subject, note.fence] = note.value


def _why_uncharged(run: RunRow, attempts: list[AttemptRow], budget: Budget) -> str:
    charged = sum(a.charged for a in attempts)
    free = [a for a in attempts if a.outcome == "released" and not a.charged]
    for attempt in attempts:
        if attempt.outcome in CHARGED and not attempt.charged:
            return f"was not charged for the lease with fence {attempt.fence} that was {attempt.outcome}"
    if len(free) > REFUND_CAP:
        return f"was given back {len(free)} times without being charged"
    if run.attempts != charged:
        return f"says it used {run.attempts} attempts, and {charged} were charged"
    if charged > budget.max_attempts:
        return f"used {charged} attempts of {budget.max_attempts}"
    return ""


def _why_not_over(run: RunRow, last: AttemptRow, budget: Budget) -> str:
    silent = last.outcome in ("timed_out", "lost", "released")
    if budget.at_most_once and silent and not (run.state == "parked" and run.reason == "unknown"):
        return (
            ""
            if run.state == "cancelled"
            else f"got no answer, and is {run.state} instead of parked: unknown"
        )
    if run.attempts < budget.max_attempts or last.outcome in TERMINAL_OUTCOMES:
        return ""
    if run.state in ("ready", "held", "leased"):
        return f"used {run.attempts} of {budget.max_attempts} attempts, and is {run.state}"
    if run.state == "failed" and budget.parks and run.reason != "unresolved":
        return "used its attempts, and failed instead of being parked"
    if run.state == "parked" and not budget.parks and run.reason != "unknown":
        return "used its attempts, and was parked instead of failing"
    return ""
