"""Policy as data: every choice a schedule or a queue makes, with its default and its limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.backoff import Backoff, Exponential
from timewright.core.moments import DAY, MINUTE, SECOND, ZERO, bounded, spell_duration
from timewright.errors import InvalidInput

Priority = Annotated[int, Meta(ge=0, le=1000)]
Count = Annotated[int, Meta(ge=1, le=100_000)]

PRIORITIES = {"critical": 0, "high": 50, "normal": 100, "medium": 100, "low": 200}
NORMAL = PRIORITIES["normal"]
LONGEST_REST = MINUTE
REFUND_CAP = 10


class Overlap(StrEnum):
    """May two runs of one schedule coexist?"""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """What to do about occurrences that were missed."""

    NONE = "none"
    LAST = "last"
    ALL = "all"
    SPREAD = "spread"


class Align(StrEnum):
    """What an interval counts from: its anchor's grid, or the start of the last run."""

    GRID = "grid"
    NOW = "now"


class JitterSide(StrEnum):
    """Whether jitter may also be early."""

    LATE = "late"
    BOTH = "both"


class Offset(StrEnum):
    """Whether each occurrence moves by its own amount, or the whole schedule by one."""

    NONE = "none"
    STABLE = "stable"


class Delivery(StrEnum):
    """What a lost answer means: try again, or stop and ask a person."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Exhausted(StrEnum):
    """What becomes of a run whose attempts are used up."""

    FAIL = "fail"
    PARK = "park"


class FloorAction(StrEnum):
    """What to do with an interval below the floor."""

    REFUSE = "refuse"
    RAISE = "raise"


class Retry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a run is attempted, and how long it waits in between."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    backoff: Backoff = Exponential()
    exhausted: Exhausted = Exhausted.FAIL
    longest_wait: timedelta = DAY

    def __post_init__(self) -> None:
        bounded(self.longest_wait, field="retry.longest_wait")


class Clamp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How near and how far the next time may be from now, whatever anyone wishes."""

    min: timedelta | None = None
    max: timedelta | None = None

    def __post_init__(self) -> None:
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None:
                bounded(bound, field=f"clamp.{name}")
        if self.min is not None and self.max and self.min > self.max:
            raise InvalidInput(
                f"clamp.min {spell_duration(self.min)} is above clamp.max {spell_duration(self.max)}",
                field="clamp.min",
                value=spell_duration(self.min),
                rule="the minimum must not exceed the maximum",
                fix=f"min {spell_duration(self.max)} or less",
            )


class LeaseTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a lease lasts without news, and how long the work may take."""

    length: timedelta = 300 * SECOND
    time_limit: timedelta = 300 * SECOND
    grace: timedelta = 10 * SECOND

    def __post_init__(self) -> None:
        for name, value, floor in (
            ("length", self.length, SECOND),
            ("time_limit", self.time_limit, timedelta(milliseconds=1)),
            ("grace", self.grace, ZERO),
        ):
            bounded(value, field=f"lease.{name}")
            if value < floor:
                raise InvalidInput(
                    f"lease.{name} {spell_duration(value)} is too short",
                    field=f"lease.{name}",
                    value=spell_duration(value),
                    rule=f"at least {spell_duration(floor)}",
                    fix="300s is the default",
                )

    @property
    def renew_every(self) -> timedelta:
        """A third of the lease, so that two renewals may fail before it is lost."""
        return self.length / 3


class QueuePolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The standing policy of a named queue; the defaults are the cautious ones."""

    max_concurrent: Annotated[int, Meta(ge=1, le=100_000)] = 1
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    lease: timedelta = 300 * SECOND
    backoff: Backoff = Exponential()
    exhausted: Exhausted = Exhausted.PARK
    ageing: timedelta | None = None

    def __post_init__(self) -> None:
        LeaseTerms(length=self.lease)
        if self.ageing is not None and self.ageing < SECOND:
            raise InvalidInput(
                f"ageing {spell_duration(self.ageing)} is too short",
                field="ageing",
                value=spell_duration(self.ageing),
                rule="at least 1s, or leave it out",
                fix="ageing: 1m raises a waiting run by one step a minute",
            )

    @property
    def retry(self) -> Retry:
        """The same numbers as a retry policy for the queue's runs."""
        return Retry(max_attempts=self.max_attempts, backoff=self.backoff, exhausted=self.exhausted)


class Floor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shortest interval a schedule may ask for."""

    interval: timedelta = SECOND
    action: FloorAction = FloorAction.REFUSE

    def apply(self, interval: timedelta, *, field: str = "every") -> timedelta:
        """The interval itself, or the floor, or a refusal: as set."""
        if interval >= self.interval:
            return interval
        if self.action is FloorAction.RAISE and interval > ZERO:
            return self.interval
        raise InvalidInput(
            f"{field} {spell_duration(interval)} is below the floor of {spell_duration(self.interval)}",
            field=field,
            value=spell_duration(interval),
            rule=f"intervals are at least {spell_duration(self.interval)}",
            fix=f"{field}: {spell_duration(self.interval)}, or lower the setting interval_floor",
        )


def rest_until(wake_at: datetime | None, *, now: datetime, longest: timedelta = LONGEST_REST) -> timedelta:
    """How long to rest before looking again: until something is due, and never longer than the longest."""
    return longest if wake_at is None else min(max(wake_at - now, ZERO), longest)
