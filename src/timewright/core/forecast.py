"""The next occurrences of a schedule, and what would happen to each if nothing changed meanwhile.

A forecast is admission itself, walked ahead from wake to wake with nothing under way, so that preview
equals practice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from timewright.core.admission import Admission, admit
from timewright.core.calendars import Calendar
from timewright.core.catch_up import Flight
from timewright.core.decision import Source
from timewright.core.governor import NO_CALENDARS
from timewright.core.ordinary import next_on_time
from timewright.core.run import Reason, Run
from timewright.core.schedule import Schedule, Standing
from timewright.core.triggers import ZONED, AnyOf
from timewright.core.verdicts import Drop, Skip, Verdict
from timewright.core.zones import zone
from timewright.errors import InvalidInput

MOST_PREVIEWS = 10_000
# Between two occurrences there may be passes that decide nothing: the end of a pause, a backlog that waits.
_QUIET_PASSES = 100

IDLE = Flight()


class Preview(Struct, frozen=True, kw_only=True):
    """One occurrence ahead: when it is planned, when it may start, and why it would not."""

    planned_at: datetime
    fire_at: datetime | None
    source: Source
    fate: str
    reason: str = ""
    count: int = 1
    last_of: datetime | None = None
    fired_by: tuple[int, ...] = ()
    zone: str = "UTC"
    local: str = ""
    note: str = ""

    @property
    def excluded(self) -> bool:
        """Whether a calendar keeps it from running."""
        return self.reason == Reason.EXCLUDED


def forecast(
    schedule: Schedule,
    standing: Standing,
    *,
    now: datetime,
    count: int = 5,
    until: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[Preview, ...]:
    """The next occurrences, at most `count` of them and none that is decided after `until`."""
    if not 1 <= count <= MOST_PREVIEWS:
        raise InvalidInput(
            f"count {count} is out of range",
            field="count",
            value=count,
            rule=f"1 to {MOST_PREVIEWS}",
            fix="count: 5",
        )
    found: list[Preview] = []
    for pass_ in _passes(schedule, standing, now=now, until=until, calendars=calendars):
        found.extend(_preview(schedule, verdict) for verdict in pass_.verdicts)
        if len(found) >= count:
            break
    return tuple(found[:count])


def forecast_on_time(schedule: Schedule, standing: Standing, *, count: int) -> tuple[Preview, ...] | None:
    """What `forecast` says of a schedule that is on time and that nothing moves, by the shortest way.

    The first instant must be the trigger's own next one. Nothing if the case is not as ordinary.
    """
    at, source = standing.next_at, standing.source
    if at is None or source is None or next_on_time(schedule, standing, flight=IDLE, now=at) is None:
        return None
    name = _zone_of(schedule, ())
    there = zone(name) if name != "UTC" else None
    found: list[Preview] = []
    while at is not None and len(found) < count:
        local = (at.astimezone(there) if there is not None else at).isoformat()
        found.append(Preview(planned_at=at, fire_at=at, source=source, fate="fire", zone=name, local=local))
        at = schedule.trigger.next_after(at)
    return tuple(found)


def _passes(
    schedule: Schedule,
    standing: Standing,
    *,
    now: datetime,
    until: datetime | None,
    calendars: Mapping[str, Calendar],
) -> Iterator[Admission]:
    """Admission after admission, each at the instant the one before asked to look again."""
    quiet = 0
    while quiet < _QUIET_PASSES:
        admission = admit(schedule, standing, flight=IDLE, now=now, calendars=calendars)
        yield admission
        quiet = 0 if admission.verdicts else quiet + 1
        standing = admission.standing
        if standing.wake_at is None or (until is not None and standing.wake_at > until):
            return
        now = max(now, standing.wake_at)


def _preview(schedule: Schedule, verdict: Verdict) -> Preview:
    fired_by = () if isinstance(verdict, Skip | Drop) else verdict.fired_by
    name = _zone_of(schedule, fired_by)
    return Preview(
        planned_at=verdict.planned_at,
        fire_at=None if isinstance(verdict, Skip | Drop) else verdict.fire_at,
        source=verdict.source,
        fate=type(verdict).__name__.lower(),
        reason=verdict.reason.value if isinstance(verdict, Skip | Drop) else "",
        count=verdict.count if isinstance(verdict, Drop) else 1,
        last_of=verdict.last_of if isinstance(verdict, Drop) else None,
        fired_by=fired_by,
        zone=name,
        local=verdict.planned_at.astimezone(zone(name)).isoformat(),
    )


def preview_of(schedule: Schedule, run: Run) -> Preview:
    """A run that someone made for an instant ahead, among the occurrences."""
    name = _zone_of(schedule, run.fired_by)
    return Preview(
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        source=run.source,
        fate="fire",
        zone=name,
        local=run.planned_at.astimezone(zone(name)).isoformat(),
    )


def _zone_of(schedule: Schedule, fired_by: tuple[int, ...]) -> str:
    """The zone people read its times in: that of the expression that fired, or of the first one."""
    trigger = schedule.trigger
    if isinstance(trigger, AnyOf):
        fired = [trigger.triggers[i] for i in fired_by] or list(trigger.triggers)
        return next((one.zone for one in fired if isinstance(one, ZONED)), "UTC")
    return trigger.zone if isinstance(trigger, ZONED) else "UTC"
