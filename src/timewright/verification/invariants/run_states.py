"""Invariants of the states of runs: each follows from the leases of the run, and from its reason."""

from __future__ import annotations

from collections import Counter

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.revision_spans import LATE_SKIP_REASONS
from timewright.verification.rows import RunRow
from timewright.verification.view import TERMINAL_STATES, HistoryView

TERMINAL_OUTCOMES = frozenset({"succeeded", "cancelled"})
LIVE_STATES = ("ready", "held", "leased")
CHARGED_OUTCOMES = frozenset({"failed", "timed_out"})
ENDED_OUTCOMES = CHARGED_OUTCOMES | {"lost", "released"}
OUTCOMES = ENDED_OUTCOMES | TERMINAL_OUTCOMES | {"deferred"}
OUTCOMES_BEFORE_STATE = {
    "succeeded": frozenset({"succeeded"}),
    "failed": ENDED_OUTCOMES,
    "parked": ENDED_OUTCOMES,
    "cancelled": OUTCOMES - {"succeeded"},
    "ready": ENDED_OUTCOMES | {"deferred"},
    "held": ENDED_OUTCOMES | {"deferred", "cancelled"},
    "skipped": ENDED_OUTCOMES | {"deferred"},
}
IN_FLIGHT = ("ready", "leased")
# Why an occurrence or a run by hand is skipped, and why it is parked without a lease.
SKIP_REASONS = frozenset(
    {
        "overlap",
        "missed",
        "paused",
        "queue_full",
        "superseded",
        "deadline",
        "budget",
        "provider",
        "excluded",
        "clamped",
        "by_hand",
        "needs",
        "quiet",
    }
)
UNLEASED_PARK_REASONS = frozenset({"unreadable", "needs"})
LEASED_PARK_REASONS = frozenset({"exhausted", "lost", "unknown"}) | UNLEASED_PARK_REASONS
FAIL_REASONS = frozenset({"exhausted", "unresolved"})
# Why a run that was admitted is skipped later: it may have replaced another before.
REPLACING_SKIPS = frozenset({*LATE_SKIP_REASONS, "needs", "quiet"})
# What a run that is cancelled does not say, unless a person gave this reason.
NOT_CANCELLED_REASONS = (SKIP_REASONS - {"by_hand"}) | {"exhausted"}


@invariant("I9", "states follow outcomes", unit="runs")
def run_states_follow_their_last_lease(view: HistoryView, coverage: Coverage) -> Violations:
    """The state of a run follows from the outcome of its last lease, its reason, and its schedule's runs."""
    live = Counter(run.schedule_id for run in view.history.runs if run.exclusive and run.state in IN_FLIGHT)
    for run in view.history.runs:
        coverage.count += 1
        error = _state_error(view, run)
        if not error and run.schedule_id and not run.parent and not is_incomplete(run):
            error = _reason_error(view, run)
            # Of a part of the history, the run that another one waits for may be left out.
            error = error or ("" if view.since else _order_error(run, live[run.schedule_id]))
        if error:
            yield f"run {run.id} {error}", (run, *view.attempts.get(run.id, ())[-1:])


def is_incomplete(run: RunRow) -> bool:
    """Whether a run was imported or unreadable, so that its whole history is not known."""
    return run.dedupe_scope.startswith("import:") or run.reason == "unreadable"


def _state_error(view: HistoryView, run: RunRow) -> str:
    """What contradicts the state of a run in its lease, its end or its attempts; "" if nothing does."""
    attempts = view.attempts.get(run.id, [])
    leased = run.leased_at is not None and run.lease_until is not None and bool(run.holder)
    if run.state == "leased" and (not leased or run.fence < 1):
        return "is leased without a holder or an end"
    if run.state != "leased" and (run.lease_id or run.lease_until is not None):
        return f"is {run.state}, but still has a lease"
    if (run.state in TERMINAL_STATES) != (run.finished_at is not None) and run.state != "parked":
        return f"is {run.state}, but its end is {'not ' if run.state in TERMINAL_STATES else ''}recorded"
    strange = next((a.outcome for a in attempts if a.outcome not in OUTCOMES), "")
    if strange:
        return f"has a lease with an unknown outcome: {strange}"
    if run.state not in OUTCOMES_BEFORE_STATE or is_incomplete(run):
        return ""
    if run.state == "succeeded" and not attempts:
        return "succeeded, but was never leased"
    if not attempts or view.resets(run):
        return ""
    if run.state == "skipped" and run.reason == "quiet":
        return ""  # I56 checks the rows of quiet answers
    return (
        ""
        if attempts[-1].outcome in OUTCOMES_BEFORE_STATE[run.state]
        else f"is {run.state} after {attempts[-1].outcome}"
    )


def _reason_error(view: HistoryView, run: RunRow) -> str:
    """What contradicts the state of a schedule's run in its reason, or in what a person asked for."""
    reason, leased = run.reason.partition(":")[0], run.fence > 0
    if run.state == "skipped" and reason not in SKIP_REASONS:
        return f"is skipped because of {run.reason}, which skips nothing"
    if run.state == "parked" and reason not in (LEASED_PARK_REASONS if leased else UNLEASED_PARK_REASONS):
        return f"is parked because of {run.reason or 'nothing'}"
    if run.state == "failed" and (not leased or reason not in FAIL_REASONS):
        return f"failed because of {run.reason or 'nothing'} after {run.fence} leases"
    if run.state == "cancelled" and reason in NOT_CANCELLED_REASONS and not view.audit.get(run.id):
        return f"is cancelled, but nobody cancelled it: {run.reason}"
    if run.state == "cancelled" and reason == "replaced" and not _has_successor(view, run):
        return "is cancelled because it was replaced, but nothing replaced it"
    is_skipped = not run.dedupe_scope and run.planned_at in view.skipped_by_hand.get(run.schedule_id, ())
    if is_skipped and run.state == "cancelled" and not leased and reason == "by_hand":
        return "was skipped by hand, but is cancelled"
    return ""


def _has_successor(view: HistoryView, run: RunRow) -> bool:
    """Whether a later run was admitted before the end of one that was replaced; it may be replaced itself.

    The end is dated before the transaction that writes it, and the later run may be admitted in between.
    """
    ends = view.now if run.finished_at is None else run.finished_at + view.skew
    others = view.runs_by_schedule.get(run.schedule_id, ())
    later = (one for one in others if one.created_at <= ends and _is_later(one, run))
    return any(one.state != "skipped" or one.reason.partition(":")[0] in REPLACING_SKIPS for one in later)


def _is_later(one: RunRow, run: RunRow) -> bool:
    """Whether a run may have been admitted after another.

    The store's clock stands still after it was set back. Then only occurrences have an order: the ids of one
    millisecond increase within a process, but not between two.
    """
    if one.created_at != run.created_at:
        return one.created_at > run.created_at
    if one.dedupe_scope or run.dedupe_scope:
        return one.id != run.id
    return one.planned_at > run.planned_at


def _order_error(run: RunRow, live: int) -> str:
    """Whether a held run waits for nothing, or a run is in flight beside another."""
    if run.state == "held" and not run.reason and not (run.exclusive and live):
        return "is held, but no run of its schedule is in flight"
    if run.state in IN_FLIGHT and run.exclusive and live > 1:
        return f"is {run.state} beside another run of its schedule"
    return ""
