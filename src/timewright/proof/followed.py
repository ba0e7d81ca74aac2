"""One after another: every end that a schedule waits for made one occurrence of it, and nothing else did."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.policy import Policy
from timewright.proof.rows import RunRow, ScheduleRow
from timewright.proof.spans import SECOND, span, spelled
from timewright.proof.stretches import known_from
from timewright.proof.view import View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

# Ends of one instant follow each other by a microsecond; this is far more than ever end at once.
APART = SECOND
EXACT = 100
OVER = frozenset({"archived", "finished", "pending_approval"})


@invariant("I41", "each end is followed once", counts="ends")
def every_end_is_followed_once(view: View, seen: Seen) -> Broken:
    """Every end that a schedule waits for made one occurrence of it, and none of those is without its end."""
    for schedule in view.history.schedules:
        policy = view.policies.get((schedule.id, schedule.revision))
        if policy is not None and _upstream(policy) and schedule.state not in OVER:
            yield from _followed(view, schedule, policy, seen)


def _followed(view: View, schedule: ScheduleRow, policy: Policy, seen: Seen) -> Broken:
    name, began = _upstream(policy), _said_since(view, schedule)
    others = {one.id for one in view.history.schedules if _is_named(one, schedule.namespace, name)}
    runs = [run for i in others for run in view.of_schedule.get(i, ())]
    rows = [row for row in view.occurrences.get(schedule.id, ()) if row.planned_at > began]
    left = _Left(rows, delay=span(policy.trigger.get("delay", "PT0S")), skew=view.skew)
    ends = {run.id: ends_of(view, run) for run in runs}
    waited_for = [run for run in runs if _counts(run, policy)]
    alone = left.match(waited_for, ends)
    for run in runs:
        if not _counts(run, policy) or not _is_owed(view, run, policy, began=began, delay=left.delay):
            continue
        seen.count += 1
        if run.id in alone:
            at = spelled(run.finished_at)
            yield f"{schedule.name}: run {run.id} of {name} ended at {at}, and nothing followed", (run,)
    if view.history.since is not None or view.history.cut or view.history.meta.get("pruned_to"):
        # The run that ended may be gone.
        return
    # One that was tried again may have ended so before, and none is followed twice.
    followed = {run.id for run in waited_for} - alone
    left.match([run for run in runs if run.id not in followed], ends)
    for row in left.rows:
        if row.planned_at - left.delay > began:
            yield f"{schedule.name}: {spelled(row.planned_at)} follows no end of {name}", (row,)


class _Left:
    """The occurrences of a schedule that no end was found for yet."""

    def __init__(self, rows: list[RunRow], *, delay: int, skew: int) -> None:
        self.delay = delay
        self.rows = sorted((row for row in rows if row.source == "baseline-after"), key=_planned)
        self._late = delay + APART + skew

    def match(self, runs: list[RunRow], ends: dict[str, list[int]]) -> set[str]:
        """Give every run its occurrence, the surest first; gives back the runs that have none."""
        waiting = sorted(runs, key=lambda run: run.finished_at or 0)
        for within, all_ends in ((EXACT, False), (EXACT, True), (self._late, True)):
            waiting = [
                run
                for run in waiting
                if not self._take([run.finished_at or 0, *(ends[run.id] if all_ends else ())], within=within)
            ]
        return {run.id for run in waiting}

    def _take(self, ends: list[int], *, within: int) -> bool:
        """Take the first occurrence that follows one of these ends; says whether there was one."""
        for end in ends:
            place = bisect_left(self.rows, end + self.delay, key=_planned)
            if place < len(self.rows) and self.rows[place].planned_at <= end + self.delay + within:
                del self.rows[place]
                return True
        return False


def ends_of(view: View, run: RunRow) -> list[int]:
    """Every instant at which a run may have ended: its leases, and where someone cancelled it."""
    cancels = [line.at for line in view.audit.get(run.id, ()) if line.action == "run.cancel"]
    now = [run.finished_at] if run.finished_at is not None else []
    return [*(attempt.ended_at for attempt in view.attempts.get(run.id, ())), *cancels, *now]


def _is_named(one: ScheduleRow, namespace: str, name: str) -> bool:
    return (one.namespace, one.name) == (namespace, name)


def _planned(row: RunRow) -> int:
    return row.planned_at


def _upstream(policy: Policy) -> str:
    return str(policy.trigger.get("schedule", "")) if policy.trigger.get("kind") == "after" else ""


def _said_since(view: View, schedule: ScheduleRow) -> int:
    """From when on a schedule has said without a break what it says now of whom it follows."""
    began = 0
    last = None
    for revision in view.revisions.get(schedule.id, ()):
        said = revision.body.get("trigger")
        began, last = (began if said == last else revision.at), said
    return began


def _counts(run: RunRow, policy: Policy) -> bool:
    """Whether the end of a run is of the kind that is waited for."""
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


def _is_owed(view: View, run: RunRow, policy: Policy, *, began: int, delay: int) -> bool:
    """Whether an end must have been followed by now: it came in time, and nothing may have kept it out."""
    assert run.finished_at is not None
    due = run.finished_at + delay
    inside = (policy.start_at or 0) <= due <= (policy.end_at or 2**62) and policy.max_runs is None
    schedule = view.schedules[policy.schedule_id]
    looks = schedule.wake_at is not None and schedule.wake_at <= due + APART
    if looks or schedule.state != "active" or schedule.source == "paused":
        # Nobody has looked since, which is another promise; or a pause is recorded when it is over.
        return False
    known = known_from(view, schedule)
    # One that was tried again was followed after its first end, or not at all.
    first = min(ends_of(view, run)) if view.restarts(run) else run.finished_at
    return inside and max(began, known) < first and due + view.grace < view.now
