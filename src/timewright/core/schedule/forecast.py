"""Previews the next occurrences of a schedule, and the verdict of each if nothing changes.

A forecast runs the real admission repeatedly with simulated time and nothing in flight, so that it always
agrees with what the engine will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice

from msgspec import Struct

from timewright.core.calendars import Calendar
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, AnyOf, zone_of
from timewright.core.run.admission import Admission, admit
from timewright.core.run.catch_up import InFlightCounts
from timewright.core.run.fast_path import next_if_on_time
from timewright.core.run.run import Reason, Run
from timewright.core.run.verdicts import Drop, Skip, Verdict
from timewright.core.schedule.decision import Source
from timewright.core.schedule.governor import NO_CALENDARS
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.core.zones import load_zone
from timewright.errors import InvalidInput

MAX_PREVIEWS = 10_000
# Passes that decide nothing, such as the end of a pause; more than this many in a row end the forecast.
_MAX_QUIET_PASSES = 100

NOTHING_IN_FLIGHT = InFlightCounts()


class Preview(Struct, frozen=True, kw_only=True):
    """One future occurrence: when it is planned, when it may start, and why it would be skipped."""

    planned_at: datetime
    fire_at: datetime | None
    source: Source
    verdict: str
    reason: str = ""
    count: int = 1
    last_of: datetime | None = None
    fired_by: tuple[int, ...] = ()
    zone: str = "UTC"
    local: str = ""
    note: str = ""

    @property
    def excluded(self) -> bool:
        """Whether a calendar excludes it."""
        return self.reason == Reason.EXCLUDED


def forecast(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    count: int = 5,
    until: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[Preview, ...]:
    """Return the next occurrences, at most `count`, and none that is decided after `until`."""
    if not 1 <= count <= MAX_PREVIEWS:
        raise InvalidInput(
            f"count {count} is out of range",
            field="count",
            value=count,
            rule=f"1 to {MAX_PREVIEWS}",
            fix="count: 5",
        )
    return tuple(islice(previews(schedule, progress, now=now, until=until, calendars=calendars), count))


def previews(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    until: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Iterator[Preview]:
    """Yield the next occurrences, as `forecast` returns them, without a limit."""
    for admission in _passes(schedule, progress, now=now, until=until, calendars=calendars):
        yield from (_preview(schedule, verdict) for verdict in admission.verdicts)


def forecast_on_time(
    schedule: Schedule, progress: ScheduleProgress, *, count: int
) -> tuple[Preview, ...] | None:
    """Return the result of `forecast` by the fast path, or None if the schedule does not qualify for it.

    The first instant must be the trigger's own next one.
    """
    at, source = progress.next_at, progress.source
    if (
        at is None
        or source is None
        or next_if_on_time(schedule, progress, in_flight=NOTHING_IN_FLIGHT, now=at) is None
    ):
        return None
    name = _zone_of(schedule, ())
    tz = load_zone(name) if name != "UTC" else None
    found: list[Preview] = []
    while at is not None and len(found) < count:
        local = (at.astimezone(tz) if tz is not None else at).isoformat()
        found.append(
            Preview(planned_at=at, fire_at=at, source=source, verdict="fire", zone=name, local=local)
        )
        at = schedule.trigger.next_after(at)
    return tuple(found)


def _passes(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    until: datetime | None,
    calendars: Mapping[str, Calendar],
) -> Iterator[Admission]:
    """Run admissions one after another, each at the `wake_at` of the one before."""
    quiet = 0
    while quiet < _MAX_QUIET_PASSES:
        admission = admit(schedule, progress, in_flight=NOTHING_IN_FLIGHT, now=now, calendars=calendars)
        yield admission
        quiet = 0 if admission.verdicts else quiet + 1
        progress = admission.progress
        if progress.wake_at is None or (until is not None and progress.wake_at > until):
            return
        now = max(now, progress.wake_at)


def _preview(schedule: Schedule, verdict: Verdict) -> Preview:
    fired_by = () if isinstance(verdict, Skip | Drop) else verdict.fired_by
    name = _zone_of(schedule, fired_by)
    return Preview(
        planned_at=verdict.planned_at,
        fire_at=None if isinstance(verdict, Skip | Drop) else verdict.fire_at,
        source=verdict.source,
        verdict=type(verdict).__name__.lower(),
        reason=verdict.reason.value if isinstance(verdict, Skip | Drop) else "",
        count=verdict.count if isinstance(verdict, Drop) else 1,
        last_of=verdict.last_of if isinstance(verdict, Drop) else None,
        fired_by=fired_by,
        zone=name,
        local=verdict.planned_at.astimezone(load_zone(name)).isoformat(),
    )


def preview_run(schedule: Schedule, run: Run) -> Preview:
    """Return a preview of a manual run that is planned for a future instant."""
    name = _zone_of(schedule, run.fired_by)
    return Preview(
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        source=run.source,
        verdict="fire",
        zone=name,
        local=run.planned_at.astimezone(load_zone(name)).isoformat(),
    )


def _zone_of(schedule: Schedule, fired_by: tuple[int, ...]) -> str:
    """Return the time zone for display: that of the trigger that fires, else of the first one."""
    trigger = schedule.trigger
    if isinstance(trigger, AnyOf):
        fired = [trigger.triggers[i] for i in fired_by] or list(trigger.triggers)
        return next((one.zone for one in fired if isinstance(one, ZONED_TRIGGERS)), "UTC")
    return zone_of(trigger) or "UTC"
