"""What one schedule asks of another: which ends count, and what it needs before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from timewright.core.moments import ZERO, bounded, spell_duration, spell_instant
from timewright.errors import InvalidInput

MOST_NEEDS = 20

Upstream = Annotated[str, Meta(min_length=1, max_length=255)]


class On(StrEnum):
    """Which end of another schedule's run counts: it succeeded, it failed for good, or either."""

    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"


class Otherwise(StrEnum):
    """What becomes of an occurrence whose need was not met in time."""

    SKIP = "skip"
    RUN = "run"
    PARK = "park"


class Need(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An end of another schedule that must be so fresh before an occurrence starts.

    It is met by an end from `within` before the planned instant on; the occurrence waits for one at most
    `wait` after that instant.
    """

    schedule: Upstream
    within: timedelta
    on: On = On.SUCCESS
    wait: timedelta = ZERO
    else_: Otherwise = field(default=Otherwise.SKIP, name="else")

    def __post_init__(self) -> None:
        bounded(self.wait, field="wait")
        if bounded(self.within, field="within") == ZERO:
            raise InvalidInput(
                "within 0s could never be met",
                field="within",
                value="0s",
                rule="longer than zero: how old the end may be",
                fix="within: 2h",
            )

    def is_met(self, met_at: datetime | None, *, planned_at: datetime) -> bool:
        """Whether the last end that counts is fresh enough for an occurrence."""
        return met_at is not None and met_at >= planned_at - self.within

    def describe(self) -> str:
        """In words: `nightly-load succeeded within 2h`."""
        return f"{self.schedule} {_ENDED[self.on]} within {spell_duration(self.within)}"


class Wait(Struct, frozen=True, kw_only=True):
    """Not yet: until when at most, and for what."""

    until: datetime
    need: Need


class Unmet(Struct, frozen=True, kw_only=True):
    """Not at all: the need whose time is over, and when it was last met."""

    need: Need
    met_at: datetime | None

    def describe(self) -> str:
        """In words: `nightly-load never succeeded`, with when it last did if it did."""
        return why_unmet(self.need, self.met_at)


_ENDED = {On.SUCCESS: "succeeded", On.FAILURE: "failed", On.END: "ended"}


def ended_words(on: On) -> str:
    """What a run did that ended so: `succeeded`, `failed`, `ended`."""
    return _ENDED[on]


def why_unmet(need: Need, met_at: datetime | None) -> str:
    """What is missing, with when it was last there."""
    if met_at is None:
        return f"{need.schedule} never {_ENDED[need.on]}"
    last = f"{need.schedule} last {_ENDED[need.on]} at {spell_instant(met_at)}"
    return f"{last}, longer ago than {spell_duration(need.within)}"


def weigh(
    needs: Sequence[Need], met: Mapping[tuple[str, On], datetime], *, planned_at: datetime, now: datetime
) -> Wait | Unmet | None:
    """What an occurrence still waits for, or will not get; nothing when all it needs is there."""
    waits: list[Wait] = []
    for need in needs:
        met_at = met.get((need.schedule, need.on))
        if need.is_met(met_at, planned_at=planned_at):
            continue
        until = planned_at + need.wait
        if until > now:
            waits.append(Wait(until=until, need=need))
        elif need.else_ is not Otherwise.RUN:
            return Unmet(need=need, met_at=met_at)
    return min(waits, key=lambda wait: wait.until, default=None)
