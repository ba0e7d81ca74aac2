"""The ordinary case of admission, by the shortest way: what a busy store admits most of the time."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from timewright.core.backoff import Steady
from timewright.core.catch_up import Flight
from timewright.core.decision import Decision
from timewright.core.due import BASELINES
from timewright.core.following import follows
from timewright.core.hints import NO_HINTS
from timewright.core.policies import Align, Overlap
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import Cron, Every, Rrule
from timewright.core.verdicts import Admission, Fire

_PERIODIC = (Cron, Every, Rrule)
# Looked through one by one, which is faster than to reckon where in a set a word stands.
_BASELINES = tuple(BASELINES)


def on_time(schedule: Schedule, standing: Standing, *, flight: Flight, now: datetime) -> Admission | None:
    """What `judge` would give, for most of what a busy store admits; nothing if the case is not ordinary."""
    following = next_on_time(schedule, standing, flight=flight, now=now)
    if following is None:
        return None
    fire, moved = stepped(standing, following)
    return Admission((fire,), moved, Decision(following, fire.source))


def stepped(standing: Standing, following: datetime) -> tuple[Fire, Standing]:
    """What becomes of the instant at which a schedule stood, and where it stands after it."""
    at, source = standing.next_at, standing.source
    assert at is not None
    assert source is not None
    fire = Fire(planned_at=at, fire_at=at, source=source, missed=standing.missed)
    return fire, replace(
        standing, cursor=at, next_at=following, wake_at=following, runs=standing.runs + 1, missed=0
    )


def next_on_time(schedule: Schedule, standing: Standing, *, flight: Flight, now: datetime) -> datetime | None:
    """The next instant but one, in the ordinary case: one is due, on time, and nothing moves the schedule."""
    at, trigger = standing.next_at, schedule.trigger
    if (
        at is None
        or standing.state is not ScheduleState.ACTIVE
        or standing.hints is not NO_HINTS
        or standing.trail
        or standing.paused_at is not None
        or standing.paused_until is not None
        or standing.source not in _BASELINES
        or not standing.cursor < at <= now
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
        or (standing.failures and not isinstance(schedule.cadence, Steady))
        or ((flight.live or flight.held) and schedule.overlap is not Overlap.ALLOW)
    ):
        return None
    following = trigger.next_after(at)
    return following if following is not None and following > now else None


def stands_alone(schedule: Schedule, flight: Flight) -> bool:
    """Whether nothing that others do until its instant may change what becomes of it."""
    is_free = schedule.overlap is Overlap.ALLOW or not (flight.live or flight.held)
    return is_free and not follows(schedule.trigger)
