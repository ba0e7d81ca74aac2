"""A fast path of admission for the usual case: one occurrence due, on time, trigger alone decides.

A property test checks that it gives the same result as `admit_general`.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from timewright.core.policies.backoff import Steady
from timewright.core.policies.policies import Align, Overlap
from timewright.core.recurrence.triggers import Cron, Every, Rrule
from timewright.core.run.catch_up import InFlightCounts
from timewright.core.run.following import follows_upstream
from timewright.core.run.verdicts import Admission, Fire
from timewright.core.schedule.decision import Decision
from timewright.core.schedule.due import BASELINE_SOURCES
from timewright.core.schedule.hints import NO_HINTS
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState

_PERIODIC = (Cron, Every, Rrule)
# A tuple, because comparing three enum members by identity is faster than hashing one.
_BASELINES = tuple(BASELINE_SOURCES)


def admit_on_time(
    schedule: Schedule, progress: ScheduleProgress, *, in_flight: InFlightCounts, now: datetime
) -> Admission | None:
    """Return the result of `admit_general` by the fast path, or None if the schedule does not qualify."""
    following = next_if_on_time(schedule, progress, in_flight=in_flight, now=now)
    if following is None:
        return None
    fire, moved = step_on_time(progress, following)
    return Admission((fire,), moved, Decision(following, fire.source))


def step_on_time(progress: ScheduleProgress, following: datetime) -> tuple[Fire, ScheduleProgress]:
    """Return the verdict for the planned instant, and the progress after it."""
    at, source = progress.next_at, progress.source
    assert at is not None
    assert source is not None
    fire = Fire(planned_at=at, fire_at=at, source=source, missed=progress.missed)
    return fire, replace(
        progress, cursor=at, next_at=following, wake_at=following, runs=progress.runs + 1, missed=0
    )


def next_if_on_time(
    schedule: Schedule, progress: ScheduleProgress, *, in_flight: InFlightCounts, now: datetime
) -> datetime | None:
    """Return the instant after the due one, or None if the fast path does not apply."""
    at, trigger = progress.next_at, schedule.trigger
    if (
        at is None
        or progress.state is not ScheduleState.ACTIVE
        or progress.hints is not NO_HINTS
        or progress.trail
        or progress.paused_at is not None
        or progress.paused_until is not None
        or progress.source not in _BASELINES
        or not progress.cursor < at <= now
        or not (now - at) <= schedule.grace
        or schedule.calendar is not None
        or schedule.jitter
        or schedule.deadline is not None
        or schedule.max_runs is not None
        or schedule.start_at is not None
        or schedule.end_at is not None
        or not isinstance(trigger, _PERIODIC)
        or schedule.align is not Align.GRID
        or schedule.clamp.min
        or schedule.clamp.max
        or (progress.failures and not isinstance(schedule.cadence, Steady))
        or ((in_flight.live or in_flight.held) and schedule.overlap is not Overlap.ALLOW)
    ):
        return None
    following = trigger.next_after(at)
    return following if following is not None and following > now else None


def can_decide_early(schedule: Schedule, in_flight: InFlightCounts) -> bool:
    """Whether the next occurrence may be decided before its instant: no other run can change the verdict."""
    is_free = schedule.overlap is Overlap.ALLOW or not (in_flight.live or in_flight.held)
    return is_free and not follows_upstream(schedule.trigger)
