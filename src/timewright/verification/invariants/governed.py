"""Checks of schedules whose instants also depend on hints, runs and overlap; used by the invariants."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from timewright.verification.checker import Violations
from timewright.verification.oracle.instant_sets import MAX_LOOKAHEAD_US
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import format_instant, parse_duration, parse_instant
from timewright.verification.rows import RunRow, ScheduleRow
from timewright.verification.view import HistoryView

RUNS_EVERY_MISSED = ("all", "spread")
# Changes after which the next time is not counted from the last run alone.
_REPLANNING = frozenset(
    f"schedule.{verb}"
    for verb in ("hint", "clear_hints", "pause", "resume", "update", "skip", "move", "approve", "archive")
)


def check_superseded(policy: SchedulePolicy, rows: list[RunRow]) -> Violations:
    """No missed occurrence is superseded if the catch-up policy runs every missed one."""
    if policy.catch_up not in RUNS_EVERY_MISSED or not policy.follows_trigger:
        return
    # An instant that the clamp displaced is no occurrence, so nothing is missed because of it.
    instants = [row.planned_at for row in rows if row.reason != "clamped"]
    for row in rows:
        if row.state != "skipped" or row.reason != "superseded" or row.planned_at > row.created_at:
            continue
        is_followed = any(row.planned_at < at <= row.created_at for at in instants)
        if is_followed or row.created_at - row.planned_at > policy.grace:
            at = format_instant(row.planned_at)
            yield f"{at} was missed and superseded, but catch_up is {policy.catch_up}", (row,)


def check_hint_ends(view: HistoryView, schedule: ScheduleRow) -> Violations:
    """A schedule is decided again when a hint expires: it wakes by then, and then follows its trigger."""
    policy = view.policies.get((schedule.id, schedule.revision))
    if policy is None or not policy.adaptive or schedule.state != "active" or schedule.source == "paused":
        return
    if view.is_set_aside(schedule):
        return
    for kind in ("interval", "one_shot"):
        expiry = _expiry(schedule.hints.get(kind))
        # While a backlog is caught up, an expired hint is kept and the schedule wakes again soon.
        latest = max(expiry, view.now + view.grace) if expiry is not None else None
        if latest is not None and schedule.wake_at is not None and schedule.wake_at > latest:
            yield f"{schedule.name}: nothing wakes it when its {kind} hint expires", (schedule,)
    expired = max((ended for _, ended in view.interval_hints.get(schedule.id, ())), default=None)
    if expired is None or expired > view.now - view.grace or schedule.next_at is None or schedule.failures:
        return
    if schedule.wake_at is not None and schedule.wake_at <= expired:
        return  # No admission has come since: every instance is stopped or late.
    plan = view.planned_instants(policy) if policy.follows_trigger else None
    if plan is None or policy.calendar is not None or policy.clamp_min:
        return
    # A success by hand ends a streak of failures, but what the cadence decided before it stands.
    kept = [until - 1 for _, until in view.streaks.get(schedule.id, ()) if until <= schedule.next_at]
    after = max(schedule.cursor, expired - 1, *kept)
    expected = plan.first_after(after, until=after + MAX_LOOKAHEAD_US)
    if expected is not None and schedule.next_at > expected:
        shown = format_instant(schedule.next_at)
        message = f"its next time is {shown}, but its hint has expired and its trigger has"
        yield f"{schedule.name}: {message} {format_instant(expected)}", (schedule,)


def check_counted_from_start(view: HistoryView, rows: list[RunRow]) -> Violations:
    """With `align: now`, a run is followed one interval after its start, or after its end if that is past."""
    for before, run in pairwise(rows):
        policy = view.policy(run)
        expected = _expected_after(view, policy, before, run) if policy is not None else None
        if expected is not None and run.planned_at != expected:
            at, due = format_instant(run.planned_at), format_instant(expected)
            yield f"{at} follows a run that started one interval before {due}", (before, run)


def _expected_after(view: HistoryView, policy: SchedulePolicy, before: RunRow, run: RunRow) -> int | None:
    """The instant that follows a success; None if something else may have decided it."""
    started, ended = before.started_at, before.finished_at
    if not policy.aligned_to_now or run.source != "baseline-interval":
        return None
    is_exempt = policy.clamp_min or policy.clamp_max or policy.calendar is not None
    if is_exempt or before.revision != run.revision or before.state != "succeeded" or view.resets(before):
        return None
    # The end may be dated before its commit, in which case the next run was admitted before it.
    if started is None or ended is None or min(run.planned_at, run.created_at) <= ended + view.skew:
        return None
    changes = view.audit.get(run.schedule_id, ())
    if any(line.action in _REPLANNING and before.created_at <= line.at <= run.created_at for line in changes):
        return None
    if any(began <= run.created_at and ended <= until for began, until in _hints(view, run)):
        return None
    if _ended_between(view, before, run):
        return None
    interval = parse_duration(policy.trigger["interval"])
    return started + interval if started + interval >= ended else ended + interval


def _ended_between(view: HistoryView, before: RunRow, run: RunRow) -> bool:
    """Whether another run may have ended later than `before`; it then decided the next time."""
    ended = before.finished_at or 0
    others = [row for row in view.occurrences.get(run.schedule_id, ()) if row.id not in (before.id, run.id)]
    return any(
        row.created_at < run.created_at
        and (ended <= (row.finished_at or view.now) or any(ended <= line.at for line in view.resets(row)))
        for row in others
    )


def _hints(view: HistoryView, run: RunRow) -> list[tuple[int, int]]:
    return view.interval_hints.get(run.schedule_id, [])


def _expiry(hint: Any) -> int | None:
    text = hint.get("expires_at") if isinstance(hint, dict) else None
    return parse_instant(text) if isinstance(text, str) else None
