"""Policies of schedules and queues as data, with defaults and limits, and presets of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.moments import DAY, MINUTE, SECOND, ZERO, check_duration, format_duration
from timewright.core.policies.backoff import Backoff, Constant, Exponential, Ladder, Stretch
from timewright.core.policies.limits import MAX_LIMITS, LimitUse
from timewright.errors import InvalidInput

Priority = Annotated[int, Meta(ge=0, le=1000)]
Count = Annotated[int, Meta(ge=1, le=100_000)]

PRIORITIES = {"critical": 0, "high": 50, "normal": 100, "medium": 100, "low": 200}
NORMAL_PRIORITY = PRIORITIES["normal"]
MAX_SLEEP = MINUTE
MAX_REFUNDS = 10
# The lease of entries that are leased from outside: their workers renew less often than an instance.
OUTSIDE_LEASE = 300 * SECOND


class Overlap(StrEnum):
    """What to do with an occurrence while another run of the schedule is unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """What to do with missed occurrences."""

    NONE = "none"
    LAST = "last"
    ALL = "all"
    SPREAD = "spread"


class Align(StrEnum):
    """What an interval counts from: its anchor (a fixed grid), or the start of the last run."""

    GRID = "grid"
    NOW = "now"


class JitterSide(StrEnum):
    """Whether jitter may also start a run early."""

    LATE = "late"
    BOTH = "both"


class Offset(StrEnum):
    """Whether jitter differs per occurrence, or is one stable offset for the schedule."""

    NONE = "none"
    STABLE = "stable"


class Delivery(StrEnum):
    """What to do if a result is lost: retry, or park the run."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Exhausted(StrEnum):
    """What to do with a run whose attempts are used up."""

    FAIL = "fail"
    PARK = "park"


class FloorAction(StrEnum):
    """What to do with an interval below the minimum."""

    REFUSE = "refuse"
    RAISE = "raise"


class Retry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a run is attempted, and the delay between attempts.

    `max_attempts` counts attempts in which the work failed or timed out. A lost lease, a killed process and a
    stop of ours are losses: the run is started again at most `max_losses` times, then parked as lost. With
    `losses_are_attempts` a lost lease or process uses an attempt instead. `max_wait` limits how long the work
    may defer its run without an attempt.
    """

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 1
    backoff: Backoff = Exponential()
    exhausted: Exhausted = Exhausted.FAIL
    max_losses: Annotated[int, Meta(ge=0, le=1000)] = 3
    losses_are_attempts: bool = False
    max_wait: timedelta = DAY

    def __post_init__(self) -> None:
        check_duration(self.max_wait, field="retry.max_wait")


class Clamp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The minimum and maximum time to the next occurrence; overrides hints and the trigger."""

    min: timedelta | None = None
    max: timedelta | None = None

    def __post_init__(self) -> None:
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None:
                check_duration(bound, field=f"clamp.{name}")
        if self.min is not None and self.max and self.min > self.max:
            raise InvalidInput(
                f"clamp.min {format_duration(self.min)} is above clamp.max {format_duration(self.max)}",
                field="clamp.min",
                value=format_duration(self.min),
                rule="the minimum must not exceed the maximum",
                fix=f"min {format_duration(self.max)} or less",
            )


class LeaseTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a lease lasts without renewal, and how long an attempt may take (None: as long as it takes).

    A lease is renewed while its process lives, so `length` is not a limit on the work.
    """

    length: timedelta = MINUTE
    time_limit: timedelta | None = None
    grace: timedelta = 10 * SECOND

    def __post_init__(self) -> None:
        for name, value, floor in (
            ("length", self.length, SECOND),
            ("time_limit", self.time_limit, timedelta(milliseconds=1)),
            ("grace", self.grace, ZERO),
        ):
            if value is None:
                continue
            check_duration(value, field=f"lease.{name}")
            if value < floor:
                raise InvalidInput(
                    f"lease.{name} {format_duration(value)} is too short",
                    field=f"lease.{name}",
                    value=format_duration(value),
                    rule=f"at least {format_duration(floor)}",
                    fix="60s is the default length; time_limit: none sets no limit",
                )

    @property
    def renew_every(self) -> timedelta:
        """One third of the lease, so that two renewals may fail before it expires."""
        return self.length / 3


class QueuePolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of a named queue."""

    max_running: Annotated[int, Meta(ge=1, le=100_000)] = 1
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    lease: timedelta = OUTSIDE_LEASE
    backoff: Backoff = Exponential()
    exhausted: Exhausted = Exhausted.PARK
    ageing: timedelta | None = None
    limits: Annotated[tuple[LimitUse, ...], Meta(max_length=MAX_LIMITS)] = ()

    def __post_init__(self) -> None:
        LeaseTerms(length=self.lease)
        if self.ageing is not None and self.ageing < SECOND:
            raise InvalidInput(
                f"ageing {format_duration(self.ageing)} is too short",
                field="ageing",
                value=format_duration(self.ageing),
                rule="at least 1s, or leave it out",
                fix="ageing: 1m raises a waiting run by one step a minute",
            )

    @property
    def retry(self) -> Retry:
        """The retry policy of the queue's runs; an expired lease uses an attempt."""
        return Retry(
            max_attempts=self.max_attempts,
            backoff=self.backoff,
            exhausted=self.exhausted,
            losses_are_attempts=True,
        )


class Floor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The minimum interval of schedules."""

    interval: timedelta = SECOND
    action: FloorAction = FloorAction.REFUSE

    def apply(self, interval: timedelta, *, field: str = "every") -> timedelta:
        """Return the interval, raised to the minimum if `action` allows it; else raise InvalidInput."""
        if interval >= self.interval:
            return interval
        if self.action is FloorAction.RAISE and interval > ZERO:
            return self.interval
        raise InvalidInput(
            f"{field} {format_duration(interval)} is below the minimum of {format_duration(self.interval)}",
            field=field,
            value=format_duration(interval),
            rule=f"intervals are at least {format_duration(self.interval)}",
            fix=f"{field}: {format_duration(self.interval)}, or lower the setting interval_floor",
        )


def sleep_until(wake_at: datetime | None, *, now: datetime, max_sleep: timedelta = MAX_SLEEP) -> timedelta:
    """Return how long to sleep: until `wake_at`, at most `max_sleep`."""
    return max_sleep if wake_at is None else min(max(wake_at - now, ZERO), max_sleep)


#     routine    periodic jobs in an application: fixed grid, three attempts with jitter, no catch-up
#     queue      durable work queue: three attempts, delay doubles up to a minute, then parked
#     adaptive   endpoints that an agent may adjust: interval from the last start, stretched by failures
#     desktop    jobs on one machine: grid of at least ten seconds, failure ladder, parked after five failures
#     workflow   cron that starts workflows: no catch-up unless requested, three attempts to start
#
# Fields that the user sets override the preset.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "routine": {
            "align": Align.GRID,
            "catch_up": CatchUp.NONE,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(
                max_attempts=3,
                backoff=Exponential(base=SECOND, factor=2.0, cap=DAY, jitter=0.2),
                losses_are_attempts=True,
            ),
            "lease": LeaseTerms(time_limit=300 * SECOND),
        },
        "queue": {
            "overlap": Overlap.ALLOW,
            "retry": QueuePolicy().retry,
            "lease": LeaseTerms(length=OUTSIDE_LEASE),
        },
        "adaptive": {
            "align": Align.NOW,
            "catch_up": CatchUp.LAST,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=1),
            "cadence": Stretch(doublings=5),
            "lease": LeaseTerms(length=30 * SECOND),
            "adaptive": True,
        },
        "desktop": {
            "align": Align.GRID,
            "catch_up": CatchUp.LAST,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=1),
            "cadence": Ladder(steps=(30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE)),
            "disable_after": 5,
        },
        "workflow": {
            "align": Align.GRID,
            "catch_up": CatchUp.NONE,
            "catch_up_limit": 100,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=3, backoff=Constant(wait=SECOND), exhausted=Exhausted.FAIL),
        },
    }
)

FLOORS: Mapping[str, Floor] = MappingProxyType(
    {"desktop": Floor(interval=10 * SECOND, action=FloorAction.RAISE)}
)
