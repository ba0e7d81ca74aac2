"""Decides the next instant of a schedule. Order of precedence: pause, clamp, hint, baseline (the trigger)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import NO_CALENDARS, Calendar, occurrence_after
from timewright.core.moments import ZERO, format_duration, format_instant
from timewright.core.policies.backoff import Ladder, Steady, Stretch
from timewright.core.policies.policies import Align, Clamp, JitterSide
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, Every, Manual, Once
from timewright.core.schedule.decision import Candidate, Decision, Source
from timewright.core.schedule.hints import NO_HINTS, Hints
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision

__all__ = [
    "NO_CALENDARS",
    "Decision",
    "Source",
    "baseline",
    "baseline_source",
    "count_to",
    "counts_from_last_start",
    "counts_from_run",
    "decide_pause",
    "end_expired_hint",
    "follows_trigger",
    "has_used_max_runs",
    "is_in_streak",
    "is_requested",
    "is_trigger_only",
    "last_base",
    "max_early",
    "pause_end",
    "plan_next",
    "plan_step",
    "pull_forward",
    "restart_interval",
]

REQUESTED = frozenset({Source.AI_INTERVAL, Source.AI_ONESHOT})
# Why a candidate lost to an earlier one: it is not the instant that a clamp moved.
NOT_EARLIER, EARLIER_REQUESTED = "not earlier", "an earlier time was requested"


def plan_next(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    base: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Decision:
    """Decide the next instant of a schedule, with its source and the rejected candidates.

    Intervals count from `base`, by default `now`; at the end of a run it is the start of that run.
    If the result is before `now`, it is decided again from `now`.
    """
    until = pause_end(progress, now=now)
    base = base or now
    if until is None and is_trigger_only(schedule, progress):
        return baseline(schedule, progress, now=now, base=base, calendars=calendars)
    # A run that ends late may have begun before an occurrence that came due since: clamps count from that.
    clamp_base = max(base, progress.cursor) if progress.cursor <= now else base
    decision = _decide(schedule, progress, now=now, base=base, clamp_base=clamp_base, calendars=calendars)
    if base < now and decision.at is not None and decision.at < now:
        decision = _decide(schedule, progress, now=now, base=now, calendars=calendars)
    # The cursor is ahead of now behind occurrences that a user skipped, or behind one that jitter admitted
    # early. A hint may request an earlier instant, but an interval still counts from the early occurrence.
    counts = decision.source is not Source.AI_ONESHOT and progress.hints.one_shot is None
    is_ahead = progress.cursor > now + (max_early(schedule) if counts else ZERO)
    is_open = is_ahead and is_requested(decision.source, decision.trail) and decision.at != progress.cursor
    if decision.at is not None and decision.at <= progress.cursor and not is_open:
        # Instants up to the cursor are decided, some ahead of time because a user skipped them.
        later = progress.cursor + timedelta(microseconds=1)
        decision = _decide(schedule, progress, now=later, base=progress.cursor, calendars=calendars)
    if until is not None:
        decision = decision.override(until, Source.PAUSED, why=f"paused until {format_instant(until)}")
    return decision


def plan_step(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    after: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Decision:
    """Return the trigger's first instant after another one, moved by the clamp but by no hint.

    The clamp counts from `base`, the last occurrence, and not from the time of the call: a late engine
    decides the same.
    """
    progress = replace(progress, cursor=after, hints=NO_HINTS)
    return _decide(schedule, progress, now=after, base=base, calendars=calendars)


def end_expired_hint(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> ScheduleProgress:
    """Return the progress as it was decided when an interval hint expired, if no pass has been made since.

    The trigger's instants since then are occurrences, whatever is decided now.
    """
    hint = progress.hints.interval if schedule.adaptive else None
    is_open = progress.state is ScheduleState.ACTIVE and progress.hints.pause is None
    if hint is None or not is_open or not follows_trigger(schedule, progress, now=now):
        return progress
    if progress.next_at is not None and progress.next_at <= hint.expires_at:
        return progress
    cursor = max(progress.cursor, hint.expires_at - timedelta(microseconds=1))
    unhinted = replace(progress, cursor=cursor, hints=replace(progress.hints, interval=None))
    proposal = plan_next(schedule, unhinted, now=cursor, calendars=calendars)
    if proposal.at is None or (progress.next_at is not None and progress.next_at <= proposal.at):
        return progress
    return apply_decision(schedule, unhinted, proposal)


def is_requested(source: Source | None, trail: Sequence[Candidate]) -> bool:
    """Whether a hint decided an instant, moved by the clamp or not.

    It may lie before the cursor, which runs ahead when a user skips occurrences.
    """
    if source not in (Source.CLAMPED_MIN, Source.CLAMPED_MAX):
        return source in REQUESTED
    return any(
        lost.source in REQUESTED and lost.why not in (NOT_EARLIER, EARLIER_REQUESTED) for lost in trail
    )


def last_base(schedule: Schedule, progress: ScheduleProgress) -> datetime | None:
    """Return from when the interval counts if it is decided again between runs; None means from now."""
    if not counts_from_last_start(schedule):
        return None
    return progress.last_started_at or schedule.created_at


def restart_interval(
    schedule: Schedule, progress: ScheduleProgress, *, at: datetime, now: datetime | None = None
) -> ScheduleProgress:
    """Return the progress whose interval counts from `at`, or from `now` if it has passed since.

    If a user skipped the instant where it ends, it counts from the cursor, the last one that was skipped.
    """
    if not counts_from_last_start(schedule) or not isinstance(schedule.trigger, Every):
        return progress
    step = _stretch_interval(schedule, progress, schedule.trigger.interval)
    if now is not None and at + step < now:
        at = now
    return replace(progress, last_started_at=progress.cursor if at + step <= progress.cursor else at)


def count_to(schedule: Schedule, progress: ScheduleProgress, decision: Decision) -> ScheduleProgress:
    """Return the progress whose interval ends at the decided instant: deciding again must not put it off."""
    trigger = schedule.trigger
    if not counts_from_last_start(schedule) or not isinstance(trigger, Every) or decision.at is None:
        return progress
    if decision.source is not Source.BASELINE_INTERVAL:
        return progress
    step = _stretch_interval(schedule, progress, trigger.interval)
    return replace(progress, last_started_at=decision.at - step)


def counts_from_last_start(schedule: Schedule) -> bool:
    """Whether the interval counts from the start of the last run (`align: now`)."""
    return schedule.align is Align.NOW and isinstance(schedule.trigger, Every)


def counts_from_run(schedule: Schedule) -> bool:
    """Whether its instants follow from its runs: the trigger has none between two of them."""
    return counts_from_last_start(schedule) or isinstance(schedule.trigger, After)


def is_trigger_only(schedule: Schedule, progress: ScheduleProgress) -> bool:
    """Whether the trigger alone decides: no hint, clamp or cadence applies."""
    return (
        not counts_from_run(schedule)
        and not schedule.clamp.min
        and not schedule.clamp.max
        and not (schedule.adaptive and (progress.hints.interval or progress.hints.one_shot))
        and (progress.failures == 0 or isinstance(schedule.cadence, Steady))
    )


def follows_trigger(schedule: Schedule, progress: ScheduleProgress, *, now: datetime) -> bool:
    """Whether every instant of the trigger is an occurrence, unless the clamp displaces it.

    An interval hint and a cadence after failures replace the trigger's instants; a one-shot hint adds one.
    """
    interval = progress.hints.interval if schedule.adaptive else None
    return (
        not counts_from_run(schedule)
        and (interval is None or interval.expires_at <= now)
        and (progress.failures == 0 or isinstance(schedule.cadence, Steady))
    )


def is_in_streak(schedule: Schedule, progress: ScheduleProgress) -> bool:
    """Whether a cadence decides, because the last runs failed."""
    return progress.failures > 0 and not isinstance(schedule.cadence, Steady)


def has_used_max_runs(schedule: Schedule, progress: ScheduleProgress) -> bool:
    """Whether the schedule has reached `max_runs`."""
    return schedule.max_runs is not None and progress.runs >= schedule.max_runs


def max_early(schedule: Schedule) -> timedelta:
    """Return how long before its instant an occurrence may be admitted, because of jitter."""
    return schedule.jitter if schedule.jitter_side is JitterSide.BOTH else ZERO


def pause_end(progress: ScheduleProgress, *, now: datetime) -> datetime | None:
    """Return the later end of the user's pause and the hint's pause; None if neither is active."""
    ends = [progress.paused_until, progress.hints.pause.until if progress.hints.pause else None]
    return max((end for end in ends if end is not None and end > now), default=None)


def decide_pause(progress: ScheduleProgress, *, until: datetime | None) -> Decision:
    """Return the decision of a pause; the last candidate of its trail is what was decided before it."""
    if progress.source is Source.PAUSED:
        return Decision(until, Source.PAUSED, progress.trail)
    decision = Decision(progress.next_at, progress.source or Source.MANUAL, progress.trail)
    why = "paused" if until is None else f"paused until {format_instant(until)}"
    return decision.override(until, Source.PAUSED, why=why)


def baseline(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Decision:
    """Return the decision of the trigger and the failure ladder alone, without hints and clamps."""
    source = baseline_source(schedule.trigger)
    # An end of another schedule's run is closed when it is due, also after the last run that follows one.
    if source is not Source.BASELINE_AFTER and has_used_max_runs(schedule, progress):
        return Decision(None, source)
    decision = Decision(_baseline_at(schedule, progress, now=now, base=base, calendars=calendars), source)
    return _apply_window(_apply_ladder(decision, schedule, progress), schedule)


def baseline_source(trigger: AnyTrigger) -> Source:
    """Return the source of instants that come from the trigger alone."""
    if isinstance(trigger, Manual):
        return Source.MANUAL
    if isinstance(trigger, Once):
        return Source.BASELINE_ONCE
    if isinstance(trigger, After) and trigger.schedule:
        return Source.BASELINE_AFTER
    if isinstance(trigger, Every | After):
        return Source.BASELINE_INTERVAL
    if isinstance(trigger, AnyOf) and all(isinstance(t, Every) for t in trigger.triggers):
        return Source.BASELINE_INTERVAL
    return Source.BASELINE_CRON


def pull_forward(current: Decision, proposal: Decision) -> Decision:
    """Return the proposal if it is earlier than the current decision, else the current decision."""
    if proposal.at is None or (current.at is not None and current.at <= proposal.at):
        return current
    return proposal.with_rejected(current.at, current.source, why=EARLIER_REQUESTED)


def _decide(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar],
    clamp_base: datetime | None = None,
) -> Decision:
    decision = baseline(schedule, progress, now=now, base=base, calendars=calendars)
    if has_used_max_runs(schedule, progress):
        return decision
    if schedule.adaptive:
        decision = _apply_hints(decision, progress.hints.unexpired(now=now), now=now, base=base)
    return _apply_window(_apply_clamp(decision, schedule.clamp, base=clamp_base or base), schedule)


def _baseline_at(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar],
) -> datetime | None:
    trigger = schedule.trigger
    if isinstance(trigger, Once):
        return trigger.at if trigger.at > progress.cursor and schedule.window.contains(trigger.at) else None
    if isinstance(trigger, After):
        return _after_last_run(trigger, progress, created_at=schedule.created_at)
    search_from = max(now, progress.cursor)
    if isinstance(trigger, Every):
        step = _stretch_interval(schedule, progress, trigger.interval)
        if counts_from_last_start(schedule):
            # `start_at` is itself an occurrence.
            is_later = schedule.start_at is not None and schedule.start_at > now
            return schedule.start_at if is_later else base + step
        # On a grid, a stretched interval skips points and stays on the grid.
        search_from += step - trigger.interval
    if schedule.start_at is not None:
        search_from = max(search_from, schedule.start_at - timedelta(microseconds=1))
    found = occurrence_after(trigger, search_from, rule=schedule.calendar, calendars=calendars)
    return found.at if found is not None else None


def _after_last_run(trigger: After, progress: ScheduleProgress, *, created_at: datetime) -> datetime | None:
    """Return one delay after the last run ended; while it is running, keep the decided instant.

    Occurrences after another schedule's runs are decided when those end (`core.run.following`).
    """
    at = trigger.next_after(progress.last_finished_at or created_at)
    if at is not None and at > progress.cursor:
        return at
    is_later = progress.next_at is not None and progress.next_at > progress.cursor
    return progress.next_at if is_later and progress.source is baseline_source(trigger) else None


def _stretch_interval(schedule: Schedule, progress: ScheduleProgress, interval: timedelta) -> timedelta:
    if isinstance(schedule.cadence, Stretch):
        return schedule.cadence.stretch(interval, progress.failures)
    return interval


def _apply_ladder(decision: Decision, schedule: Schedule, progress: ScheduleProgress) -> Decision:
    """Apply a ladder cadence: after consecutive failures, wait a ladder step from the end of the last run."""
    ended = progress.last_finished_at
    if not isinstance(schedule.cadence, Ladder) or not progress.failures or ended is None or not decision.at:
        return decision
    step = schedule.cadence.delay(progress.failures, seed=schedule.id)
    if ended + step <= decision.at:
        return decision
    why = f"{progress.failures} failures in a row wait {format_duration(step)}"
    return decision.override(ended + step, decision.source, why=why)


def _apply_hints(decision: Decision, hints: Hints, *, now: datetime, base: datetime) -> Decision:
    """Apply hints: an interval hint replaces the baseline; a one-shot hint wins if it is earlier."""
    if hints.interval is not None:
        at = base + hints.interval.interval
        decision = decision.override(at, Source.AI_INTERVAL, why="an interval hint is active")
    if hints.one_shot is not None:
        at = max(hints.one_shot.at, now)
        if decision.at is None or at < decision.at:
            return decision.override(at, Source.AI_ONESHOT, why="a one-shot hint is earlier")
        return decision.with_rejected(at, Source.AI_ONESHOT, why=NOT_EARLIER)
    return decision


def _apply_clamp(decision: Decision, clamp: Clamp, *, base: datetime) -> Decision:
    """Apply the minimum, then the maximum; a bound of zero means no bound."""
    if clamp.min and decision.at is not None and decision.at < base + clamp.min:
        why = f"earlier than the minimum of {format_duration(clamp.min)}"
        decision = decision.override(base + clamp.min, Source.CLAMPED_MIN, why=why)
    if clamp.max and decision.at is not None and decision.at > base + clamp.max:
        why = f"later than the maximum of {format_duration(clamp.max)}"
        decision = decision.override(base + clamp.max, Source.CLAMPED_MAX, why=why)
    return decision


def _apply_window(decision: Decision, schedule: Schedule) -> Decision:
    """Keep the decision between `start_at` and `end_at`."""
    start, end = schedule.start_at, schedule.end_at
    if decision.at is not None and start is not None and decision.at < start:
        decision = decision.override(start, decision.source, why=f"start_at is {format_instant(start)}")
    if decision.at is not None and end is not None and decision.at > end:
        decision = decision.override(None, decision.source, why=f"end_at is {format_instant(end)}")
    return decision
