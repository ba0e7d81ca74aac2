"""The ordinary case of admission, by the shortest way: what a busy store admits most of the time."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from timewright.core.catch_up import Flight
from timewright.core.decision import Decision
from timewright.core.due import BASELINES
from timewright.core.governor import is_steady
from timewright.core.hints import NO_HINTS
from timewright.core.policies import Overlap
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import Cron, Every, Rrule
from timewright.core.verdicts import Admission, Fire

_PERIODIC = (Cron, Every, Rrule)


def on_time(schedule: Schedule, standing: Standing, *, flight: Flight, now: datetime) -> Admission | None:
    """The ordinary case, by the shortest way: one occurrence, on time, of a schedule that nothing moves.

    It gives what `judge` would, for most of what a busy store admits; nothing if the case is not ordinary.
    """
    at, trigger = standing.next_at, schedule.trigger
    if (
        at is None
        or standing.state is not ScheduleState.ACTIVE
        or standing.hints is not NO_HINTS
        or standing.trail
        or standing.paused_at is not None
        or standing.paused_until is not None
        or standing.source not in BASELINES
        or not standing.cursor < at <= now
        or not (now - at) <= schedule.grace
        or schedule.calendar is not None
        or schedule.jitter
        or schedule.deadline is not None
        or schedule.max_runs is not None
        or schedule.start_at is not None
        or schedule.end_at is not None
        or not isinstance(trigger, _PERIODIC)
        or not is_steady(schedule, standing)
        or ((flight.live or flight.held) and schedule.overlap is not Overlap.ALLOW)
    ):
        return None
    following = trigger.next_after(at)
    if following is None or following <= now:
        return None
    fire = Fire(planned_at=at, fire_at=at, source=standing.source, missed=standing.missed)
    moved = replace(
        standing, cursor=at, next_at=following, wake_at=following, runs=standing.runs + 1, missed=0
    )
    return Admission((fire,), moved, Decision(following, standing.source))
