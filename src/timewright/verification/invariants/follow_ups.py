"""Invariants of `after` and `needs`: one occurrence per upstream end, none before a needed end."""

from __future__ import annotations

from bisect import bisect_left

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.revision_spans import history_starts_at
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import DAY, SECOND, format_instant, parse_duration
from timewright.verification.rows import JsonObject, RunRow, ScheduleRow
from timewright.verification.view import HistoryView

# Ends of one instant are one microsecond apart; far fewer than a million end at once.
MAX_SHIFT_US = SECOND
EXACT_MATCH_US = 100
INACTIVE_STATES = frozenset({"archived", "finished", "pending_approval"})

# A run created before the history begins may have ended this much later and been pruned since.
MAX_RUN_LENGTH_US = DAY


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
    unmatched = _UnmatchedOccurrences(view, rows, delay=parse_duration(policy.trigger.get("delay", "PT0S")))
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

    def __init__(self, view: HistoryView, rows: list[RunRow], *, delay: int) -> None:
        self.delay = delay
        self.rows = sorted((row for row in rows if row.source == "baseline-after"), key=_planned)
        self._view = view
        self._late = delay + MAX_SHIFT_US + view.skew

    def match(self, runs: list[RunRow], ends: dict[str, list[int]]) -> set[str]:
        """Match each run to an occurrence, the most certain matches first; return the unmatched runs.

        Among ends of one instant, that of a reset run comes last: it may have been followed before its reset.
        """
        waiting = sorted(runs, key=lambda run: (run.finished_at or 0, bool(self._view.resets(run))))
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


@invariant("I43", "needs are met before the start", unit="first leases")
def dependencies_are_met_before_the_lease(view: HistoryView, coverage: Coverage) -> Violations:
    """An occurrence is leased only after a fresh end of everything it needs, or after its wait ran out."""
    for schedule in view.history.schedules:
        if not any(revision.body.get("needs") for revision in view.revisions.get(schedule.id, ())):
            continue
        for run in view.occurrences.get(schedule.id, ()):
            leased_at = view.first_lease(run)
            if leased_at is None:
                continue
            coverage.count += 1
            missing = [
                _unmet_need(view, run, needs, leased_at) for needs in _needs_in_force(view, run, leased_at)
            ]
            if missing and all(missing):
                planned = f"{schedule.name}: {format_instant(run.planned_at)}"
                message = f"{planned} was leased at {format_instant(leased_at)} without {missing[-1]}"
                yield message, (run,)


def _needs_in_force(view: HistoryView, run: RunRow, at: int) -> list[list[JsonObject]]:
    """The needs that may have been in force at an instant; revisions within the skew all count."""
    revisions = view.revisions.get(run.schedule_id, ())
    before = [one for one in revisions if one.at < at - view.skew][-1:]
    around = [one for one in revisions if at - view.skew <= one.at <= at + view.skew]
    return [one.body.get("needs", []) for one in (*before, *around)]


def _unmet_need(view: HistoryView, run: RunRow, needs: list[JsonObject], leased_at: int) -> str:
    """Describe the first unmet need at a lease; empty if all were met."""
    for need in needs:
        wait = parse_duration(need.get("wait", "PT0S"))
        gave_up = need.get("else") == "run" and leased_at >= run.planned_at + wait - view.skew
        if gave_up or _is_met(view, run, need, leased_at):
            continue
        return f"an end of {need['schedule']}"
    return ""


def _is_met(view: HistoryView, run: RunRow, need: JsonObject, leased_at: int) -> bool:
    oldest, newest = run.planned_at - parse_duration(need["within"]), leased_at + view.skew
    known = history_starts_at(view, view.schedules[run.schedule_id])
    if known and oldest < known + MAX_RUN_LENGTH_US:
        # The run that met the need may be pruned.
        return True
    ids = {
        one.id
        for one in view.history.schedules
        if (one.namespace, one.name) == (run.namespace, need["schedule"])
    }
    return any(
        oldest <= end <= newest
        for one in ids
        for other in view.runs_by_schedule.get(one, ())
        if other.source != "backfill"
        for end in _ends_as(view, other, need.get("on", "success"))
    )


def _ends_as(view: HistoryView, run: RunRow, on: str) -> list[int]:
    """The instants at which a run may have ended this way; a reset run may have failed before."""
    won = [one.ended_at for one in view.attempts.get(run.id, ()) if one.outcome == "succeeded"]
    if on == "success":
        return won
    every = possible_ends(view, run) if run.fence else []
    return every if on == "end" else [end for end in every if end not in won]
