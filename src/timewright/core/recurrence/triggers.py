"""The kinds of trigger: `Cron`, `Every`, `Rrule`, `After`, `Once`, `Manual` and `AnyOf`.

All have the methods of `Trigger`, and none reads a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar, overload
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from timewright.core.moments import (
    EPOCH,
    ZERO,
    as_duration,
    as_instant,
    check_duration,
    format_duration,
    format_instant,
    parse_duration,
)
from timewright.core.recurrence import Trigger, ZonedTrigger
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.offset_periods import DstPolicy
from timewright.core.recurrence.rrule import Rrule
from timewright.core.recurrence.words import join_words
from timewright.core.schedule.upstream import EndKind, end_verb
from timewright.core.zones import DEFAULT_ZONE, name_of_zone
from timewright.errors import InvalidDuration, InvalidInput

if TYPE_CHECKING:
    # The grammar is loaded when a phrase is read, so that `import timewright` stays light.
    from timewright.core.recurrence.phrases import TriggerSpec


__all__ = [
    "After",
    "AnyOf",
    "AnyTrigger",
    "Cron",
    "EndKind",
    "Every",
    "Manual",
    "Once",
    "Rrule",
    "Trigger",
    "after",
    "cron",
    "every",
]

MAX_TRIGGERS = 20
OneTrigger = TypeVar("OneTrigger", bound=Trigger)
# Triggers with a time zone.
ZONED_TRIGGERS = (Cron, Rrule)


class Every(Trigger, frozen=True, tag="every"):
    """A fixed grid: anchor, anchor + interval, anchor + 2 × interval, …; it never drifts.

    Without an anchor the grid starts at the instant passed to a method. A stored schedule always has an
    anchor, by default its `start_at`, else its creation time.
    """

    interval: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        if check_duration(self.interval, field="every") == ZERO:
            raise InvalidInput(
                "every 0s would run endlessly",
                field="every",
                value="0s",
                rule="an interval is longer than zero",
                fix="every: 1s",
            )
        if self.anchor is not None:
            as_instant(self.anchor, field="anchor")

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first grid point after the instant; the anchor itself if it is later."""
        anchor = self.anchor or moment
        if anchor.tzinfo is not UTC:
            anchor = as_instant(anchor)
        if moment < anchor:
            return anchor
        steps = (moment - anchor) // self.interval + 1
        return _add_steps(anchor, self.interval, steps)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the last grid point before the instant; None before the anchor."""
        moment = as_instant(moment)
        if self.anchor is None:
            return moment - self.interval if moment - EPOCH >= self.interval else None
        anchor = as_instant(self.anchor)
        if moment <= anchor:
            return None
        steps = -((anchor - moment) // self.interval) - 1
        return anchor + steps * self.interval

    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of grid points after `after` up to and including `until`."""
        first = self.next_after(after)
        return 0 if first is None or first > until else (until - first) // self.interval + 1

    def with_anchor(self, at: datetime) -> Every:
        """Return the trigger with an anchor, unless it has one."""
        return self if self.anchor is not None else Every(self.interval, as_instant(at))

    def with_start(self, at: datetime) -> Every:
        """Return the trigger with its first occurrence at `at`, unless it has an anchor."""
        return self.with_anchor(at)

    def describe(self) -> str:
        """Return words: `every 5m`."""
        return f"every {format_duration(self.interval)}"


class After(Trigger, frozen=True, tag="after"):
    """A delay after the end of the last run; the first run starts one delay after creation.

    With `schedule`, each run of that schedule whose end matches `on` causes one occurrence.
    """

    delay: timedelta = ZERO
    schedule: str = ""
    on: EndKind = EndKind.SUCCESS

    def __post_init__(self) -> None:
        check_duration(self.delay, field="after")
        if not self.schedule and self.on is not EndKind.SUCCESS:
            raise InvalidInput(
                f"on {self.on.value} needs a schedule",
                field="on",
                value=self.on.value,
                rule="on selects runs of another schedule, so schedule must be set",
                fix="after: {schedule: nightly-load, on: failure}",
            )

    def next_after(self, moment: datetime) -> datetime | None:
        """Return one delay after `moment`, the end of a run; None if it follows another schedule."""
        return None if self.schedule else _add_steps(as_instant(moment), self.delay, 1)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return None: earlier instants depend on when runs ended."""
        return None

    def between(self, a: datetime, b: datetime, limit: int = 1000) -> tuple[datetime, ...]:
        """Return at most one instant: the following one depends on the end of that run."""
        found = self.next_after(a)
        return (found,) if limit > 0 and found is not None and a < found <= b else ()

    def describe(self) -> str:
        """Return words: `5m after the last run ended`, `after nightly-load succeeded`."""
        if not self.schedule:
            return f"{format_duration(self.delay)} after the last run ended"
        delay_words = f"{format_duration(self.delay)} " if self.delay else ""
        return f"{delay_words}after {self.schedule} {end_verb(self.on)}"


class Once(Trigger, frozen=True, tag="once"):
    """A single instant."""

    at: datetime

    def __post_init__(self) -> None:
        as_instant(self.at, field="at")

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the instant if it is later."""
        at = as_instant(self.at)
        return at if at > as_instant(moment) else None

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the instant if it is earlier."""
        at = as_instant(self.at)
        return at if at < as_instant(moment) else None

    def describe(self) -> str:
        """Return words: `once at 2026-03-10T12:00:00Z`."""
        return f"once at {format_instant(self.at)}"


class Manual(Trigger, frozen=True, tag="manual"):
    """No instants; runs only on request."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return None."""
        return None

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return None."""
        return None

    def describe(self) -> str:
        """Return words: `only on request`."""
        return "only on request"


_TIMES_OF_DAYS = re.compile(r"at ((?:\d\d:\d\d(?:, | and )?)+) (\D.*)")


class AnyOf(Trigger, frozen=True, tag="any_of"):
    """Several triggers of one schedule; instants that coincide are one occurrence."""

    triggers: tuple[Cron | Every | Once | Rrule, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.triggers) <= MAX_TRIGGERS:
            raise InvalidInput(
                f"a list of {len(self.triggers)} triggers",
                field="triggers",
                value=len(self.triggers),
                rule=f"1 to {MAX_TRIGGERS} triggers",
                fix="[{cron: '0 9 * * *'}, {every: 6h}]",
            )

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the earliest next instant of all triggers."""
        return min((at for t in self.triggers if (at := t.next_after(moment)) is not None), default=None)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the latest previous instant of all triggers."""
        return max((at for t in self.triggers if (at := t.previous_before(moment)) is not None), default=None)

    def matching_positions(self, planned_at: datetime) -> tuple[int, ...]:
        """Return the positions of the triggers that contain exactly this instant."""
        before = planned_at - timedelta(microseconds=1)
        return tuple(i for i, t in enumerate(self.triggers) if t.next_after(before) == planned_at)

    def describe(self) -> str:
        """Return words: each trigger, joined by `or`; times of the same days together, one zone once."""
        words = [trigger.describe() for trigger in self.triggers]
        zones = {one.zone_words if isinstance(one, ZonedTrigger) else "" for one in self.triggers}
        zone = f", {zones.pop()}" if len(zones) == 1 else ""
        if not zone or not all(one.endswith(zone) for one in words):
            return " or ".join(words)
        times: dict[str, list[str]] = {}
        for one in words:
            found = _TIMES_OF_DAYS.fullmatch(one.removesuffix(zone))
            days, clocks = (found[2], found[1]) if found else (one.removesuffix(zone), "")
            times.setdefault(days, []).extend(re.findall(r"[\d:]+", clocks))
        parts = [
            f"at {join_words(sorted(clocks))} {days}" if clocks else days for days, clocks in times.items()
        ]
        return " or ".join(parts) + zone


AnyTrigger = Cron | Every | After | Once | Manual | Rrule | AnyOf

_ANCHORED = (Every, Rrule)


@overload
def every(interval: timedelta, anchor: datetime | None = None) -> Every: ...
@overload
def every(interval: str, anchor: datetime | None = None) -> Every | Cron | Rrule | AnyOf: ...
@overload
def every(
    *,
    anchor: datetime | None = None,
    weeks: float = ...,
    days: float = ...,
    hours: float = ...,
    minutes: float = ...,
    seconds: float = ...,
) -> Every: ...
def every(
    interval: str | timedelta = "",
    anchor: datetime | None = None,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
) -> Every | Cron | Rrule | AnyOf:
    """Build a trigger: `every("5m")`, `every(minutes=5)`, or a phrase: `every("friday at 9am")`."""
    parts = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    if parts and interval != "":
        raise InvalidInput(
            f"every has two intervals, {interval} and {format_duration(parts)}",
            field="every",
            value=str(interval),
            rule="text, a timedelta, or numbers of units",
            fix='every("1h30m") or every(hours=1, minutes=30)',
        )
    interval = parts or interval
    try:
        return Every(as_duration(interval, field="every"), anchor)
    except InvalidDuration:
        if not isinstance(interval, str):
            raise
    from timewright.core.recurrence.phrases import parse_recurrence

    found = parse_recurrence(interval, after_every=True)
    if found.excluded or found.only:
        raise InvalidInput(
            f"every {interval!r} names a calendar",
            field="every",
            value=interval,
            rule="a calendar belongs to a schedule, not to its trigger",
            fix="calendar='except holidays' beside the trigger",
        )
    triggers = tuple(_build(spec, anchor) for spec in found.triggers)
    return triggers[0] if len(triggers) == 1 else AnyOf(triggers)


def _build(spec: TriggerSpec, anchor: datetime | None) -> Every | Cron | Rrule:
    zone = spec.zone or DEFAULT_ZONE
    if spec.kind == "every":
        return Every(parse_duration(spec.text), anchor)
    return Cron(spec.text, zone) if spec.kind == "cron" else Rrule(spec.text, zone, anchor=anchor)


def cron(
    expression: str, zone: str | ZoneInfo = DEFAULT_ZONE, *, dst: DstPolicy = "vixie", key: str | None = None
) -> Cron:
    """Build a cron trigger: `cron("0 9 * * mon-fri", "Europe/Berlin")`; no zone means the default zone."""
    return Cron(expression, name_of_zone(zone), dst, key)


def after(schedule: str, on: str | EndKind = EndKind.SUCCESS, delay: str | timedelta = ZERO) -> After:
    """Build a trigger that fires after runs of another schedule: `after("nightly-load")`."""
    return After(as_duration(delay, field="delay"), schedule, _parse_end_kind(on))


def _parse_end_kind(on: str | EndKind) -> EndKind:
    try:
        return EndKind(on)
    except ValueError:
        rule = f"one of {', '.join(EndKind)}"
        raise InvalidInput(
            f"on {on!r} is not an end of a run", field="on", value=on, rule=rule, fix="failure"
        ) from None


def with_anchor(trigger: AnyTrigger, at: datetime) -> AnyTrigger:
    """Return the trigger with an anchor for every interval and recurrence rule."""
    if isinstance(trigger, _ANCHORED):
        return trigger.with_anchor(at)
    if isinstance(trigger, AnyOf):
        return AnyOf(tuple(t.with_anchor(at) if isinstance(t, _ANCHORED) else t for t in trigger.triggers))
    return trigger


def with_start(trigger: AnyTrigger, at: datetime) -> AnyTrigger:
    """Return the trigger with intervals and rules counted from `at`, except those with an anchor."""
    if isinstance(trigger, AnyOf):
        return AnyOf(tuple(t.with_start(at) if isinstance(t, _ANCHORED) else t for t in trigger.triggers))
    return trigger.with_start(at) if isinstance(trigger, _ANCHORED) else trigger


def without_anchor(trigger: AnyTrigger) -> AnyTrigger:
    """Return the trigger without the anchor of any interval or recurrence rule."""
    if isinstance(trigger, AnyOf):
        bare = (replace(t, anchor=None) if isinstance(t, _ANCHORED) else t for t in trigger.triggers)
        return AnyOf(tuple(bare))
    return replace(trigger, anchor=None) if isinstance(trigger, _ANCHORED) else trigger


def with_zone(trigger: AnyTrigger, zone: str) -> AnyTrigger:
    """Return the trigger with this zone where it was made without one."""
    if isinstance(trigger, AnyOf):
        return AnyOf(tuple(_with_zone(part, zone) for part in trigger.triggers))
    return _with_zone(trigger, zone)


def _with_zone(trigger: OneTrigger, zone: str) -> OneTrigger:
    unnamed = isinstance(trigger, ZonedTrigger) and not trigger.names_zone
    return replace(trigger, zone=zone) if unnamed else trigger


def parts_of(trigger: AnyTrigger) -> tuple[AnyTrigger, ...]:
    """Return the triggers of a list of triggers, or the one trigger."""
    return trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)


def zone_of(trigger: AnyTrigger) -> str | None:
    """Return the zone of the trigger, or of the first one that has a zone."""
    return next((part.zone for part in parts_of(trigger) if isinstance(part, Cron | Rrule)), None)


def _add_steps(anchor: datetime, step: timedelta, count: int) -> datetime | None:
    """Return the instant `count` steps later, or None after the year 9999."""
    try:
        return anchor + count * step
    except OverflowError:
        return None
