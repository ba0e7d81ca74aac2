"""When a schedule wants to run: `Cron` · `Every` · `Rrule` · `After` · `Once` · `Manual` · `AnyOf`.

Every trigger answers the same questions, and none of them looks at a clock: what comes strictly
after an instant, what came strictly before it, what lies between two, and how to say it in words.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from timewright.core.cron import Cron
from timewright.core.moments import (
    EPOCH,
    ZERO,
    as_duration,
    as_instant,
    bounded,
    spell_duration,
    spell_instant,
)
from timewright.core.recurrence import Rrule
from timewright.core.recurrence.spoken import is_spoken
from timewright.core.trigger import Trigger
from timewright.core.upstream import On, ended_words
from timewright.errors import InvalidDuration, InvalidInput

__all__ = [
    "After",
    "AnyOf",
    "AnyTrigger",
    "Cron",
    "Every",
    "Manual",
    "On",
    "Once",
    "Rrule",
    "Trigger",
    "after",
    "every",
]

MOST_TRIGGERS = 20


class Every(Trigger, frozen=True, tag="every"):
    """A fixed grid: anchor, anchor + interval, anchor + 2 × interval, …; it never drifts.

    Without an anchor the grid starts at the instant asked about; a stored schedule always has one,
    by default the instant of its creation.
    """

    interval: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        if bounded(self.interval, field="every") == ZERO:
            raise InvalidInput(
                "every 0s would run without end",
                field="every",
                value="0s",
                rule="an interval is longer than zero",
                fix="every 1s is the default floor",
            )
        if self.anchor is not None:
            as_instant(self.anchor, field="anchor")

    def next_after(self, moment: datetime) -> datetime | None:
        """The first point of the grid after the instant; the anchor itself if it is ahead."""
        anchor = self.anchor or moment
        if anchor.tzinfo is not UTC:
            anchor = as_instant(anchor)
        if moment < anchor:
            return anchor
        steps = (moment - anchor) // self.interval + 1
        return _reachable(anchor, self.interval, steps)

    def previous_before(self, moment: datetime) -> datetime | None:
        """The last point of the grid before the instant; nothing lies before the anchor."""
        moment = as_instant(moment)
        if self.anchor is None:
            return moment - self.interval if moment - EPOCH >= self.interval else None
        anchor = as_instant(self.anchor)
        if moment <= anchor:
            return None
        steps = -((anchor - moment) // self.interval) - 1
        return anchor + steps * self.interval

    def count(self, after: datetime, until: datetime) -> int:
        """How many points lie after one instant and not after another, by division alone."""
        first = self.next_after(after)
        return 0 if first is None or first > until else (until - first) // self.interval + 1

    def anchored(self, at: datetime) -> Every:
        """The same interval with an anchor, unless it has one."""
        return self if self.anchor is not None else Every(self.interval, as_instant(at))

    def describe(self) -> str:
        """In words: `every 5m`."""
        return f"every {spell_duration(self.interval)}"


class After(Trigger, frozen=True, tag="after"):
    """A delay counted from the end of the last run; the first run comes one delay after creation.

    With a `schedule` it is that one's runs whose ends count: each that ended so makes one occurrence.
    """

    delay: timedelta = ZERO
    schedule: str = ""
    on: On = On.SUCCESS

    def __post_init__(self) -> None:
        bounded(self.delay, field="after")
        if not self.schedule and self.on is not On.SUCCESS:
            raise InvalidInput(
                f"on {self.on.value} of what?",
                field="on",
                value=self.on.value,
                rule="on speaks of the end of another schedule's runs",
                fix="after: {schedule: nightly-load, on: failure}",
            )

    def next_after(self, moment: datetime) -> datetime | None:
        """The instant one delay after a run that ended at `moment`; another's ends nobody knows ahead."""
        return None if self.schedule else _reachable(as_instant(moment), self.delay, 1)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Nothing: what came before depends on when runs ended, not on the trigger."""
        return None

    def between(self, a: datetime, b: datetime, limit: int = 1000) -> tuple[datetime, ...]:
        """At most one: until that run has ended nobody knows the next."""
        found = self.next_after(a)
        return (found,) if limit > 0 and found is not None and a < found <= b else ()

    def planned(self, ended_at: datetime) -> datetime | None:
        """The instant that a run's end asks for."""
        return _reachable(as_instant(ended_at), self.delay, 1)

    def describe(self) -> str:
        """In words: `5m after the last run ended`, `after nightly-load succeeded`."""
        if not self.schedule:
            return f"{spell_duration(self.delay)} after the last run ended"
        late = f"{spell_duration(self.delay)} " if self.delay else ""
        return f"{late}after {self.schedule} {ended_words(self.on)}"


class Once(Trigger, frozen=True, tag="once"):
    """One instant, and never again."""

    at: datetime

    def __post_init__(self) -> None:
        as_instant(self.at, field="at")

    def next_after(self, moment: datetime) -> datetime | None:
        """The instant itself while it is ahead."""
        at = as_instant(self.at)
        return at if at > as_instant(moment) else None

    def previous_before(self, moment: datetime) -> datetime | None:
        """The instant itself once it is behind."""
        at = as_instant(self.at)
        return at if at < as_instant(moment) else None

    def describe(self) -> str:
        """In words: `once at 2026-03-10T12:00:00Z`."""
        return f"once at {spell_instant(self.at)}"


class Manual(Trigger, frozen=True, tag="manual"):
    """Never by itself; only when someone asks."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Nothing."""
        return None

    def previous_before(self, moment: datetime) -> datetime | None:
        """Nothing."""
        return None

    def describe(self) -> str:
        """In words."""
        return "only when asked"


class AnyOf(Trigger, frozen=True, tag="any_of"):
    """Several triggers on one schedule; whichever comes first fires, and a tie is one occurrence."""

    triggers: tuple[Cron | Every | Once | Rrule, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.triggers) <= MOST_TRIGGERS:
            raise InvalidInput(
                f"a list of {len(self.triggers)} triggers",
                field="triggers",
                value=len(self.triggers),
                rule=f"1 to {MOST_TRIGGERS} triggers",
                fix="[{cron: '0 9 * * *'}, {every: 6h}]",
            )

    def next_after(self, moment: datetime) -> datetime | None:
        """The earliest next of all."""
        return min((at for t in self.triggers if (at := t.next_after(moment)) is not None), default=None)

    def previous_before(self, moment: datetime) -> datetime | None:
        """The latest previous of all."""
        return max((at for t in self.triggers if (at := t.previous_before(moment)) is not None), default=None)

    def which(self, planned_at: datetime) -> tuple[int, ...]:
        """The positions of the triggers that name exactly this instant."""
        before = planned_at - timedelta(microseconds=1)
        return tuple(i for i, t in enumerate(self.triggers) if t.next_after(before) == planned_at)

    def describe(self) -> str:
        """In words: each trigger, joined by `or`."""
        return " or ".join(trigger.describe() for trigger in self.triggers)


AnyTrigger = Cron | Every | After | Once | Manual | Rrule | AnyOf

# What reads the clock of a zone.
ZONED = (Cron, Rrule)
_ANCHORED = (Every, Rrule)


def every(interval: str | timedelta, anchor: datetime | None = None) -> Every:
    """A grid from text: `every("5m")`."""
    if isinstance(interval, str) and is_spoken(interval):
        fix = f'"every {interval}" as a text, which is a trigger too; or a length such as 7d'
        rule = "every() makes a grid, and steps of the calendar are not all as long"
        raise InvalidDuration(
            f"every {interval!r} is a step of the calendar", field="every", value=interval, rule=rule, fix=fix
        )
    return Every(as_duration(interval, field="every"), anchor)


def after(schedule: str, on: str | On = On.SUCCESS, delay: str | timedelta = ZERO) -> After:
    """One occurrence for every run of another schedule that ended so: `after("nightly-load")`."""
    return After(as_duration(delay, field="delay"), schedule, _end(on))


def _end(on: str | On) -> On:
    try:
        return On(on)
    except ValueError:
        rule = f"one of {', '.join(On)}"
        raise InvalidInput(f"no run ends {on!r}", field="on", value=on, rule=rule, fix="failure") from None


def anchored(trigger: AnyTrigger, at: datetime) -> AnyTrigger:
    """The trigger as a schedule keeps it: every interval and every rule has an anchor."""
    if isinstance(trigger, _ANCHORED):
        return trigger.anchored(at)
    if isinstance(trigger, AnyOf):
        return AnyOf(tuple(t.anchored(at) if isinstance(t, _ANCHORED) else t for t in trigger.triggers))
    return trigger


def _reachable(anchor: datetime, step: timedelta, count: int) -> datetime | None:
    """The instant that many steps on, or nothing when it lies past the year 9999."""
    try:
        return anchor + count * step
    except OverflowError:
        return None
