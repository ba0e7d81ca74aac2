"""Invariant of `after` triggers: each upstream end makes exactly one occurrence, and nothing else does."""

from __future__ import annotations

from bisect import bisect_left

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.revision_spans import history_starts_at
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import SECOND, format_instant, parse_duration
from timewright.verification.rows import RunRow, ScheduleRow
from timewright.verification.view import HistoryView

# Ends of one instant are one microsecond apart; far fewer than a million end at once.
MAX_SHIFT_US = SECOND
EXACT_MATCH_US = 100
INACTIVE_STATES = frozenset({"archived", "finished", "pending_approval"})


@invariant("I41", "each upstream end is followed once", unit="upstream ends")
def every_end_is_followed_once(view: HistoryView, coverage: Coverage) -> Violations:
    """Every end that a schedule follows made one occurrence of it, and each such occurrence has its end."""
    for schedule in view.history.schedules:
        policy = view.policies.get((schedule.id, schedule.revision))
        if policy is not None and _upstream(policy) and schedule.state not in INACTIVE_STATES:
            yield from _check_schedule(view, schedule, policy, coverage)


def _check_schedule(
    view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy, coverage: Coverage
) -> Violations:
    name, began = _upstream(policy), _trigger_since(view, schedule)
    others = {one.id for one in view.history.schedules if _is_named(one, schedule.namespace, name)}
    runs = [run for i in others for run in view.runs_by_schedule.get(i, ())]
    rows = [row for row in view.occurrences.get(schedule.id, ()) if row.planned_at > began]
    unmatched = _UnmatchedOccurrences(
        rows, delay=parse_duration(policy.trigger.get("delay", "PT0S")), skew=view.skew
    )
    ends = {run.id: possible_ends(view, run) for run in runs}
    followable = [run for run in runs if _is_followed_kind(run, policy)]
    unfollowed = unmatched.match(followable, ends)
    for run in runs:
        if not _is_followed_kind(run, policy) or not _is_owed(
            view, run, policy, began=began, delay=unmatched.delay
        ):
            continue
        coverage.count += 1
        if run.id in unfollowed:
            at = format_instant(run.finished_at)
            yield f"{schedule.name}: run {run.id} of {name} ended at {at}, but no run followed", (run,)
    if view.history.since is not None or view.history.cut or view.history.meta.get("pruned_to"):
        # The upstream run may be pruned.
        return
    # A reset run may have ended this way before its reset; no run is followed twice.
    matched = {run.id for run in followable} - unfollowed
    unmatched.match([run for run in runs if run.id not in matched], ends)
    for row in unmatched.rows:
        if row.planned_at - unmatched.delay > began:
            yield f"{schedule.name}: {format_instant(row.planned_at)} follows no end of {name}", (row,)


class _UnmatchedOccurrences:
    """The occurrences of a schedule that are not matched to an upstream end yet."""

    def __init__(self, rows: list[RunRow], *, delay: int, skew: int) -> None:
        self.delay = delay
        self.rows = sorted((row for row in rows if row.source == "baseline-after"), key=_planned)
        self._late = delay + MAX_SHIFT_US + skew

    def match(self, runs: list[RunRow], ends: dict[str, list[int]]) -> set[str]:
        """Match each run to an occurrence, the most certain matches first; return the unmatched runs."""
        waiting = sorted(runs, key=lambda run: run.finished_at or 0)
        for within, all_ends in ((EXACT_MATCH_US, False), (EXACT_MATCH_US, True), (self._late, True)):
            waiting = [
                run
                for run in waiting
                if not self._take_match(
                    [run.finished_at or 0, *(ends[run.id] if all_ends else ())], within=within
                )
            ]
        return {run.id for run in waiting}

    def _take_match(self, ends: list[int], *, within: int) -> bool:
        """Remove the first occurrence that follows one of these ends; return whether there was one."""
        for end in ends:
            place = bisect_left(self.rows, end + self.delay, key=_planned)
            if place < len(self.rows) and self.rows[place].planned_at <= end + self.delay + within:
                del self.rows[place]
                return True
        return False


def possible_ends(view: HistoryView, run: RunRow) -> list[int]:
    """Every instant at which a run may have ended: its finished leases and its cancellations."""
    cancels = [line.at for line in view.audit.get(run.id, ()) if line.action == "run.cancel"]
    now = [run.finished_at] if run.finished_at is not None else []
    return [*(attempt.ended_at for attempt in view.attempts.get(run.id, ())), *cancels, *now]


def _is_named(one: ScheduleRow, namespace: str, name: str) -> bool:
    return (one.namespace, one.name) == (namespace, name)


def _planned(row: RunRow) -> int:
    return row.planned_at


def _upstream(policy: SchedulePolicy) -> str:
    return str(policy.trigger.get("schedule", "")) if policy.trigger.get("kind") == "after" else ""


def _trigger_since(view: HistoryView, schedule: ScheduleRow) -> int:
    """Since when the schedule has had its current trigger without a break."""
    began = 0
    last = None
    for revision in view.revisions.get(schedule.id, ()):
        trigger = revision.body.get("trigger")
        began, last = (began if trigger == last else revision.at), trigger
    return began


def _is_followed_kind(run: RunRow, policy: SchedulePolicy) -> bool:
    """Whether the end of a run is of the kind that the trigger follows."""
    if run.source == "backfill" or run.finished_at is None:
        return False
    on = policy.trigger.get("on", "success")
    failed = run.state in ("failed", "parked") and run.fence > 0
    cancelled = run.state == "cancelled" and run.started_at is not None
    return {
        "success": run.state == "succeeded",
        "failure": failed,
        "end": run.state == "succeeded" or failed or cancelled,
    }[on]


def _is_owed(view: HistoryView, run: RunRow, policy: SchedulePolicy, *, began: int, delay: int) -> bool:
    """Whether an end must have been followed by now."""
    assert run.finished_at is not None
    due = run.finished_at + delay
    inside = (policy.start_at or 0) <= due <= (policy.end_at or 2**62) and policy.max_runs is None
    schedule = view.schedules[policy.schedule_id]
    is_pending = schedule.wake_at is not None and schedule.wake_at <= due + MAX_SHIFT_US
    if is_pending or schedule.state != "active" or schedule.source == "paused":
        # No admission pass since then (another invariant), or the pause is recorded only when it ends.
        return False
    known = history_starts_at(view, schedule)
    # A reset run was followed after its first end, or not at all.
    first = min(possible_ends(view, run)) if view.resets(run) else run.finished_at
    return inside and max(began, known) < first and due + view.grace < view.now
