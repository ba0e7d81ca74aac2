"""Applies the end of a run to its schedule: the failure count, the next instant, and whether it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.policies.backoff import Steady
from timewright.core.recurrence.triggers import After, Manual
from timewright.core.run.replaced import at_reopened, has_reopened, reopen_replaced
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.due import replaced_at
from timewright.core.schedule.governor import (
    NO_CALENDARS,
    counts_from_last_start,
    counts_from_run,
    end_expired_hint,
    has_used_max_runs,
    is_in_streak,
    is_requested,
    plan_next,
    restart_interval,
)
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision


def settle_schedule(
    schedule: Schedule,
    progress: ScheduleProgress,
    run: Run,
    *,
    now: datetime,
    idle: bool = True,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[ScheduleProgress, Decision | None]:
    """Apply a finished run to its schedule: the failure count first, then the next instant.

    Returns the progress and, if the next instant was decided again, the decision.
    """
    before, failures = progress, _consecutive_failures(progress, run)
    since = (before.failing_since if before.failures else now) if failures else None
    progress = replace(before, failures=failures, failing_since=since, last_finished_at=now)
    if not before.failures and is_in_streak(schedule, progress):
        # The cadence decides only from this failure on, and the trigger from the end of a hint until then.
        steady = end_expired_hint(schedule, replace(progress, failures=0), now=now, calendars=calendars)
        progress = replace(steady, failures=failures)
    if is_in_streak(schedule, before) and not failures and not has_reopened(schedule, before):
        # What an earlier success opened, and a limit carries over, stays open.
        is_open = progress.state is ScheduleState.ACTIVE and not run.dedupe_scope
        is_open = is_open and not has_used_max_runs(schedule, progress)
        is_open = is_open and _ends_streak(schedule, before, progress)
        progress = reopen_replaced(progress, run) if is_open else replace(progress, replaced_after=None)
    if progress.state is not ScheduleState.ACTIVE:
        return progress, None
    # The end of a run that was replaced is no failure, after others that ended in a pause.
    has_failed = progress.failures > before.failures
    if has_failed and schedule.disable_after is not None and progress.failures >= schedule.disable_after:
        why = f"disabled after {progress.failures} failures in a row"
        is_replaced = is_in_streak(schedule, before) and not counts_from_last_start(schedule)
        if is_replaced and replaced_at(schedule, before) is None:
            # What the cadence replaced until now is no occurrence, so a resume must not record it.
            progress = replace(progress, cursor=max(progress.cursor, now))
        return _stop(progress, ScheduleState.PARKED, why), None
    if run.reason == Reason.UNRESOLVED and run.state is RunState.FAILED:
        return _stop(progress, ScheduleState.PARKED, f"target does not resolve: {run.error}"), None
    is_news = run.state is RunState.SUCCEEDED and run.reason != Reason.QUIET and not run.outcome_label
    if schedule.watch is not None and schedule.watch.once and is_news:
        return _stop(progress, ScheduleState.FINISHED, "its watch saw a change"), None
    decision = _decide_at_settle(schedule, before, progress, run, now=now, calendars=calendars)
    if decision is not None:
        progress = apply_decision(schedule, progress, decision)
        progress = restart_interval(schedule, progress, at=run.started_at or now, now=now)
        if counts_from_last_start(schedule):
            # Decided without them: at the next admission they would count as expired after this decision.
            hints = replace(progress.hints.unexpired(now=now), pause=progress.hints.pause)
            progress = replace(progress, hints=hints)
    if progress.next_at is None and idle and not isinstance(schedule.trigger, Manual | After):
        return _stop(progress, ScheduleState.FINISHED, "no further occurrences"), None
    return progress, decision


def _stop(progress: ScheduleProgress, state: ScheduleState, reason: str) -> ScheduleProgress:
    return replace(progress, state=state, reason=reason, next_at=None, wake_at=None)


def _consecutive_failures(progress: ScheduleProgress, run: Run) -> int:
    """Return the consecutive failures: a failure adds one, a success resets, a cancel changes nothing."""
    if run.state is RunState.SUCCEEDED:
        return 0
    if run.state in (RunState.FAILED, RunState.PARKED):
        return progress.failures + 1
    return progress.failures


def _decide_at_settle(
    schedule: Schedule,
    before: ScheduleProgress,
    after: ScheduleProgress,
    run: Run,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Decision | None:
    """Return the new decision at the end of a run, or None to keep the stored one.

    Grid and cron are planned at admission; failures and hints change that. A manual run keeps the next time.
    """
    follows_end = isinstance(schedule.trigger, After)
    if run.dedupe_scope and not (follows_end and after.next_at is None):
        return None
    if after.source is Source.PAUSED and after.next_at is not None and after.next_at <= now:
        # The pause is over, and the next admission decides at its end.
        return None
    is_replaced = run.state is RunState.CANCELLED and run.reason == Reason.REPLACED
    if is_replaced and after.next_at is not None and not follows_end:
        # The run that replaces it has started the next interval.
        return None
    if not counts_from_run(schedule):
        is_due = after.next_at is not None and after.next_at <= now
        if is_due and is_requested(after.source, after.trail):
            # A hint decided it, whatever ends or has expired since.
            return None
        if _ends_streak(schedule, before, after):
            # What came due during the run is decided by the next admission, so plan from the cursor.
            hints = after.hints.unexpired(now=now)
            opened = at_reopened(replace(after, hints=replace(hints, interval=None)))
            decision = plan_next(schedule, opened, now=opened.cursor, calendars=calendars)
            if hints.interval is None:
                return decision
            # A hint decides what follows, but it replaced nothing of what came due before it was made.
            began = hints.interval.began
            if began is not None and decision.at is not None and decision.at <= began:
                return decision
        if is_due or not _is_governed(schedule, after, now=now):
            return None
    base = run.started_at if counts_from_last_start(schedule) or schedule.adaptive else None
    return plan_next(schedule, after, now=now, base=base, calendars=calendars)


def _ends_streak(schedule: Schedule, before: ScheduleProgress, after: ScheduleProgress) -> bool:
    """Whether the run ended a streak of failures, so that the trigger decides again, or a hint for it."""
    return is_in_streak(schedule, before) and not after.failures and not counts_from_run(schedule)


def _is_governed(schedule: Schedule, progress: ScheduleProgress, *, now: datetime) -> bool:
    """Whether a cadence or an interval hint decides the next instant.

    A one-shot hint that is earlier was chosen before, and a later one changes nothing yet. When an interval
    hint expires, the next admission decides.
    """
    hinted = schedule.adaptive and progress.hints.unexpired(now=now).interval is not None
    return hinted or (progress.failures > 0 and not isinstance(schedule.cadence, Steady))
