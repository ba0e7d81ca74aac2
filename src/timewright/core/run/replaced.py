"""Instants of the trigger that a cadence replaced, and that are occurrences once a run ends the streak.

`replaced_after` is set by an admission in a streak of failures, no earlier than the first failure: trigger
instants between it and the cursor may have no row. If a run ends the streak that was planned before the
cursor, they are reopened: the next admission decides those after the run that have no row (ruling 23). They
stay open in another streak, which begins later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.run.run import Run
from timewright.core.run.verdicts import Admission
from timewright.core.schedule.decision import Source
from timewright.core.schedule.governor import counts_from_run, is_in_streak, plan_next
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, apply_decision


def has_reopened(schedule: Schedule, progress: ScheduleProgress) -> bool:
    """Whether instants between `replaced_after` and the cursor have to be decided."""
    in_streak = is_in_streak(schedule, progress)
    return (progress.reopened_after if in_streak else progress.replaced_after) is not None


def reopen_replaced(progress: ScheduleProgress, run: Run) -> ScheduleProgress:
    """Return the progress after a run ended a streak: what was replaced since its instant is open."""
    if progress.replaced_after is None:
        return progress
    begins = max(progress.replaced_after, run.planned_at)
    return replace(progress, replaced_after=begins if begins < progress.cursor else None)


def at_reopened(progress: ScheduleProgress) -> ScheduleProgress:
    """Return the progress as if nothing after `replaced_after` were decided."""
    return replace(progress, cursor=progress.replaced_after or progress.cursor, replaced_after=None)


def keep_reopened(progress: ScheduleProgress, *, cursor: datetime) -> ScheduleProgress:
    """Return the progress with the cursor at which it was; what is before it stays open."""
    if progress.cursor >= cursor:
        return progress
    return replace(progress, cursor=cursor, replaced_after=progress.cursor)


def close_reopened(
    schedule: Schedule,
    before: ScheduleProgress,
    admission: Admission,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """Return the result of a pass over reopened instants; what is left of them stays open."""
    after, decision = admission.progress, admission.decision
    is_incomplete = admission.more or decision.source is Source.PAUSED
    if is_incomplete and after.cursor < before.cursor:
        return replace(admission, progress=keep_reopened(after, cursor=before.cursor))
    after = replace(after, cursor=max(after.cursor, before.cursor))
    if decision.at is not None and decision.at <= before.cursor and decision.source is not Source.AI_ONESHOT:
        # A user skipped instants ahead, up to the cursor.
        decision = plan_next(schedule, after, now=now, calendars=calendars)
        after = apply_decision(schedule, after, decision)
    return replace(admission, progress=after, decision=decision)


def note_replaced(
    schedule: Schedule, before: ScheduleProgress, admission: Admission, *, has_pauses: bool
) -> Admission:
    """Return the result of a pass with the instant from which on a cadence may replace the trigger's.

    What a pause, a hint or the clamp replaced is no occurrence afterwards, so it counts from after them.
    """
    since, after = before.replaced_after, admission.progress
    begins = max(before.cursor, before.failing_since or before.cursor)
    if after.cursor > begins:
        since = since or begins
    is_hinted = schedule.adaptive and before.hints.interval is not None
    is_clamped = bool(schedule.clamp.min or schedule.clamp.max)
    if (
        not is_in_streak(schedule, before)
        or counts_from_run(schedule)
        or is_hinted
        or is_clamped
        or has_pauses
    ):
        since = None
    if since == after.replaced_after:
        return admission
    return replace(admission, progress=replace(after, replaced_after=since))
