"""Invariants of what a schedule shows now: its state, its next time, and when it wakes."""

from __future__ import annotations

from collections.abc import Iterator

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.decision_times import DecisionTimes, decision_times
from timewright.verification.oracle.instant_sets import MAX_LOOKAHEAD_US
from timewright.verification.oracle.revision_spans import history_starts_at, last_instant
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import format_instant, parse_instant
from timewright.verification.rows import JsonObject, ScheduleRow
from timewright.verification.view import NEVER, HistoryView

REPEATING_TRIGGERS = ("every", "cron", "rrule")
# Each ends a schedule, and leaves an audit entry.
ENDING_ACTIONS = ("schedule.archive", "schedule.finish", "schedule.reject")


@invariant("I40", "previews match decisions", unit="previews")
def previews_match_decisions(view: HistoryView, coverage: Coverage) -> Violations:
    """The next time shown follows from what is recorded; previewed instants are those that are decided."""
    for schedule in view.history.schedules:
        policy = view.policies.get((schedule.id, schedule.revision))
        if policy is None:
            continue
        coverage.count += 1
        times = decision_times(view, schedule.id)
        for error in _next_time_errors(view, schedule, policy, times):
            yield f"{schedule.name} {error}", (schedule,)
        if _is_governed(view, schedule, policy) or policy.rolls_by_calendar or not _is_planned(schedule):
            continue
        expected = _next_planned(view, schedule, policy)
        if expected is not None and schedule.next_at != expected:
            message = f"{schedule.name} shows {format_instant(schedule.next_at)} as its next time"
            yield f"{message}, but its plan has {format_instant(expected)}", (schedule,)
    for event in view.events.get("previewed", ()):
        coverage.count += 1
        rows = [row for row in view.occurrences.get(event.subject, ()) if row.revision == event.fence]
        decided = sorted(row.planned_at for row in rows if row.planned_at > event.at)
        gaps = any(row.last_of is not None and last_instant(row) > event.at for row in rows)
        both = list(zip(event.values, decided, strict=False))
        if not gaps and any(shown != at for shown, at in both):
            yield f"{event.subject}: the previewed instants differ from the decided ones", (event,)


def _next_time_errors(
    view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy, times: DecisionTimes | None
) -> Iterator[str]:
    """What is wrong with the next time of a schedule, whatever decides it."""
    at, paused_until = schedule.next_at, _paused_until(schedule)
    if schedule.state not in ("active", "paused") or times is None:
        return
    if schedule.state == "paused" or schedule.source == "paused":
        if at != paused_until and (at is None or at > view.now):
            yield f"shows {format_instant(at)} as its next time, but is paused {_until(paused_until)}"
    elif at is None:
        if _has_further_instants(view, schedule, policy):
            yield "is active and has no next time"
    elif at <= (schedule.replaced_after or schedule.cursor) and schedule.source.startswith("baseline"):
        yield f"shows {format_instant(at)} as its next time, which is decided"
    elif not times.explains_next(policy):
        yield f"shows {format_instant(at)} as its next time, which follows from nothing that is recorded"
    is_late = schedule.wake_at is None or schedule.wake_at > max(at or 0, view.now + view.grace)
    if at is not None and is_late and not view.is_set_aside(schedule):
        yield f"is not woken at its next time {format_instant(at)}, but at {format_instant(schedule.wake_at)}"


def state_error(view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy | None) -> str:
    """What contradicts the state of a schedule; "" if nothing does."""
    if history_starts_at(view, schedule):
        return ""
    rows = [row for row in view.adjustments.get(schedule.id, ()) if row.kind in ("pause", "resume")]
    pause = rows[-1] if rows and rows[-1].kind == "pause" else None
    if schedule.state == "paused" and (pause is None or not schedule.paused_at):
        return "is paused, but nobody paused it since it was resumed"
    if schedule.state == "active" and pause and (pause.until or NEVER) > view.now + view.skew:
        return f"is active, but was paused at {format_instant(pause.at)} {_until(pause.until)}"
    if schedule.state == "active" and schedule.paused_at and not _is_resuming(view, schedule):
        return f"is active, but its pause since {format_instant(schedule.paused_at)} has not ended"
    if schedule.state == "parked" and not schedule.reason:
        return "is parked without a reason"
    actions = {line.action for line in view.audit.get(schedule.id, ())}
    ends_itself = schedule.state == "finished" and (policy is None or _may_finish(view, schedule, policy))
    if schedule.state in ("archived", "finished") and not ends_itself and not actions & {*ENDING_ACTIONS}:
        return f"is {schedule.state}, but nothing ended it"
    return ""


def _is_resuming(view: HistoryView, schedule: ScheduleRow) -> bool:
    """Whether the pause has ended, but stays stored: `catch_up` has not decided all that was due.

    A hinted pause since then puts that off. An edit since then may have left nothing of that, and then the
    next occurrence removes the pause.
    """
    until, by = schedule.paused_until, view.now + view.skew
    if until is None or until > by:
        return False
    is_due = schedule.next_at is not None and schedule.next_at <= by
    rows = view.adjustments.get(schedule.id, ())
    return (
        is_due or schedule.source == "paused" or any(row.kind == "edit" and row.at >= until for row in rows)
    )


def _has_further_instants(view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy) -> bool:
    """Whether an occurrence follows in any case: a recurrence rule may have a count, and a cron years."""
    if policy.trigger.get("kind") not in REPEATING_TRIGGERS or policy.has_bounds:
        return False
    return view.planned_instants(policy) is None or _next_planned(view, schedule, policy) is not None


def _may_finish(view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy) -> bool:
    """Whether a schedule may have finished by itself: nothing follows, or the watched change has come."""
    runs = view.occurrences.get(schedule.id, ())
    has_changed = policy.ends_at_change and any(run.state == "succeeded" for run in runs)
    return has_changed or not _has_further_instants(view, schedule, policy)


def _paused_until(schedule: ScheduleRow) -> int | None:
    """When the pauses of a person and of a hint are over; None if a person must resume it."""
    hint: JsonObject | None = schedule.hints.get("pause")
    hinted = parse_instant(hint["until"]) if hint else None
    if schedule.state == "paused" and schedule.paused_until is None:
        return None
    return max((at for at in (schedule.paused_until, hinted) if at is not None), default=None)


def _until(at: int | None) -> str:
    return "until it is resumed" if at is None else f"until {format_instant(at)}"


def _next_planned(view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy) -> int | None:
    """The first instant after the cursor, by the oracle, within the lookahead."""
    plan = view.planned_instants(policy)
    if plan is None:
        return None
    return plan.first_after(schedule.cursor, until=schedule.cursor + MAX_LOOKAHEAD_US)


def _is_governed(view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy) -> bool:
    """Whether anything but the trigger may have decided the next time: a hint or a failure, if any."""
    is_possible = policy.clamp_min or policy.clamp_max or not policy.follows_trigger
    kinds = ("interval", "one_shot", "failing")
    rows = view.adjustments.get(schedule.id, ())
    return bool(is_possible) or (policy.is_governed and any(row.kind in kinds for row in rows))


def _is_planned(schedule: ScheduleRow) -> bool:
    by_trigger = schedule.source.startswith("baseline") and not schedule.hints
    return schedule.state == "active" and schedule.next_at is not None and by_trigger
