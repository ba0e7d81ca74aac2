"""When next, and why: pause beats clamp, clamp beats hint, hint beats baseline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from timewright.core.backoff import Ladder, Steady, Stretch
from timewright.core.calendars import Calendar, occurrence_after
from timewright.core.decision import Decision, Source
from timewright.core.hints import Hints
from timewright.core.moments import spell_duration, spell_instant
from timewright.core.policies import Align, Clamp
from timewright.core.schedule import Schedule, Standing
from timewright.core.triggers import After, AnyOf, AnyTrigger, Every, Manual, Once

__all__ = [
    "NO_CALENDARS",
    "Decision",
    "Source",
    "baseline",
    "baseline_source",
    "counts_from_now",
    "is_over",
    "is_steady",
    "nudged",
    "paused_until",
    "plan_next",
]

NO_CALENDARS: Mapping[str, Calendar] = {}


def plan_next(
    schedule: Schedule,
    standing: Standing,
    *,
    now: datetime,
    base: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Decision:
    """The next instant of a schedule, its source, and every candidate that lost.

    `base` is what intervals and clamps count from, by default `now`; a decision taken at the end of a
    run counts from its start. If that lies behind `now`, it is decided again from `now`.
    """
    until = paused_until(standing, now=now)
    base = base or now
    if until is None and is_steady(schedule, standing):
        return baseline(schedule, standing, now=now, base=base, calendars=calendars)
    decision = _governed(schedule, standing, now=now, base=base, calendars=calendars)
    if base < now and decision.at is not None and decision.at <= now:
        decision = _governed(schedule, standing, now=now, base=now, calendars=calendars)
    if decision.at is not None and decision.at <= standing.cursor:
        # What is decided already, perhaps ahead of time because someone left it out, is not planned again.
        now = standing.cursor + timedelta(microseconds=1)
        decision = _governed(schedule, standing, now=now, base=now, calendars=calendars)
    if until is not None:
        decision = decision.over(until, Source.PAUSED, why=f"paused until {spell_instant(until)}")
    return decision


def counts_from_now(schedule: Schedule) -> bool:
    """Whether its interval counts from the start of the last run; other triggers have their own instants."""
    return schedule.align is Align.NOW and isinstance(schedule.trigger, Every)


def is_steady(schedule: Schedule, standing: Standing) -> bool:
    """Whether the trigger alone decides: no hint, clamp, or cadence can move it."""
    return (
        not counts_from_now(schedule)
        and not isinstance(schedule.trigger, After)
        and not schedule.clamp.min
        and not schedule.clamp.max
        and not (schedule.adaptive and (standing.hints.interval or standing.hints.one_shot))
        and (standing.failures == 0 or isinstance(schedule.cadence, Steady))
    )


def is_over(schedule: Schedule, standing: Standing) -> bool:
    """Whether the schedule has had all the runs it may have."""
    return schedule.max_runs is not None and standing.runs >= schedule.max_runs


def paused_until(standing: Standing, *, now: datetime) -> datetime | None:
    """The later of the pause a person set and the pause a hint asked for, while it lasts."""
    ends = [standing.paused_until, standing.hints.pause.until if standing.hints.pause else None]
    return max((end for end in ends if end is not None and end > now), default=None)


def baseline(
    schedule: Schedule,
    standing: Standing,
    *,
    now: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Decision:
    """What the trigger says, before anyone else is asked."""
    source = baseline_source(schedule.trigger)
    if is_over(schedule, standing):
        return Decision(None, source)
    decision = Decision(_baseline_at(schedule, standing, now=now, base=base, calendars=calendars), source)
    return _in_time(_laddered(decision, schedule, standing), schedule)


def baseline_source(trigger: AnyTrigger) -> Source:
    """What to call an instant that comes from the trigger alone."""
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


def nudged(current: Decision, proposal: Decision) -> Decision:
    """A hint moves the next time at once, but only nearer."""
    if proposal.at is None or (current.at is not None and current.at <= proposal.at):
        return current
    return proposal.against(current.at, current.source, why="a nearer time was asked for")


def _governed(
    schedule: Schedule,
    standing: Standing,
    *,
    now: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar],
) -> Decision:
    decision = baseline(schedule, standing, now=now, base=base, calendars=calendars)
    if is_over(schedule, standing):
        return decision
    if schedule.adaptive:
        decision = _hinted(decision, standing.hints.fresh(now=now), now=now, base=base)
    return _in_time(_clamped(decision, schedule.clamp, base=base), schedule)


def _baseline_at(
    schedule: Schedule,
    standing: Standing,
    *,
    now: datetime,
    base: datetime,
    calendars: Mapping[str, Calendar],
) -> datetime | None:
    trigger = schedule.trigger
    if isinstance(trigger, Once):
        return trigger.at if trigger.at > standing.cursor and schedule.window.contains(trigger.at) else None
    if isinstance(trigger, After):
        return _after_last_run(trigger, standing, created_at=schedule.created_at)
    search_from = max(now, standing.cursor)
    if isinstance(trigger, Every):
        step = _stretched(schedule, standing, trigger.interval)
        if counts_from_now(schedule):
            # The window's start is an instant of its own; before it nothing counts.
            ahead = schedule.start_at is not None and schedule.start_at > now
            return schedule.start_at if ahead else base + step
        # On a grid a stretched interval leaves out points instead of leaving the grid.
        search_from += step - trigger.interval
    if schedule.start_at is not None:
        search_from = max(search_from, schedule.start_at - timedelta(microseconds=1))
    found = occurrence_after(trigger, search_from, rule=schedule.calendar, calendars=calendars)
    return found.at if found is not None else None


def _after_last_run(trigger: After, standing: Standing, *, created_at: datetime) -> datetime | None:
    """One delay after the last run; while that run is under way nobody knows, and what was decided stands.

    What another schedule's end asked for was decided when it ended.
    """
    at = trigger.next_after(standing.last_finished_at or created_at)
    if at is not None and at > standing.cursor:
        return at
    ahead = standing.next_at is not None and standing.next_at > standing.cursor
    return standing.next_at if ahead and standing.source is baseline_source(trigger) else None


def _stretched(schedule: Schedule, standing: Standing, interval: timedelta) -> timedelta:
    if isinstance(schedule.cadence, Stretch):
        return schedule.cadence.stretched(interval, standing.failures)
    return interval


def _laddered(decision: Decision, schedule: Schedule, standing: Standing) -> Decision:
    """Failures in a row keep a schedule on a ladder away for a while after the last one ended."""
    ended = standing.last_finished_at
    if not isinstance(schedule.cadence, Ladder) or not standing.failures or ended is None or not decision.at:
        return decision
    step = schedule.cadence.delay(standing.failures, seed=schedule.id)
    if ended + step <= decision.at:
        return decision
    why = f"{standing.failures} failures in a row wait {spell_duration(step)}"
    return decision.over(ended + step, decision.source, why=why)


def _hinted(decision: Decision, hints: Hints, *, now: datetime, base: datetime) -> Decision:
    """Two hints: the earlier, and the baseline is not asked; an interval replaces it; a one-shot competes."""
    if hints.interval is not None:
        at = base + hints.interval.interval
        decision = decision.over(at, Source.AI_INTERVAL, why="an interval hint is in force")
    if hints.one_shot is not None:
        at = max(hints.one_shot.at, now)
        if decision.at is None or at < decision.at:
            return decision.over(at, Source.AI_ONESHOT, why="a one-shot hint is earlier")
        return decision.against(at, Source.AI_ONESHOT, why="not earlier")
    return decision


def _clamped(decision: Decision, clamp: Clamp, *, base: datetime) -> Decision:
    """Minimum first, maximum second; a bound of zero is no bound."""
    if clamp.min and decision.at is not None and decision.at < base + clamp.min:
        why = f"nearer than the minimum of {spell_duration(clamp.min)}"
        decision = decision.over(base + clamp.min, Source.CLAMPED_MIN, why=why)
    if clamp.max and decision.at is not None and decision.at > base + clamp.max:
        why = f"further than the maximum of {spell_duration(clamp.max)}"
        decision = decision.over(base + clamp.max, Source.CLAMPED_MAX, why=why)
    return decision


def _in_time(decision: Decision, schedule: Schedule) -> Decision:
    """Nobody's wish reaches outside the schedule's own life."""
    start, end = schedule.start_at, schedule.end_at
    if decision.at is not None and start is not None and decision.at < start:
        decision = decision.over(start, decision.source, why=f"start_at is {spell_instant(start)}")
    if decision.at is not None and end is not None and decision.at > end:
        decision = decision.over(None, decision.source, why=f"end_at is {spell_instant(end)}")
    return decision
