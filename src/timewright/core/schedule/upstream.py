"""Dependencies between schedules: the kinds of end that count, and needs that an occurrence waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from timewright.core.moments import ZERO, check_duration, format_duration, format_instant
from timewright.errors import InvalidInput

MAX_NEEDS = 20

Upstream = Annotated[str, Meta(min_length=1, max_length=255)]


class EndKind(StrEnum):
    """Which end of an upstream run counts: it succeeded, it failed finally, or either."""

    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"


class UnmetAction(StrEnum):
    """What to do with an occurrence whose need was not met in time."""

    SKIP = "skip"
    RUN = "run"
    PARK = "park"


class Need(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A recent run of another schedule that an occurrence requires before it starts.

    It is met by a run that ended at most `within` before the planned instant, or later. The occurrence waits
    for one until `wait` after that instant.
    """

    schedule: Upstream
    within: timedelta
    on: EndKind = EndKind.SUCCESS
    wait: timedelta = ZERO
    else_: UnmetAction = field(default=UnmetAction.SKIP, name="else")

    def __post_init__(self) -> None:
        check_duration(self.wait, field="wait")
        if check_duration(self.within, field="within") == ZERO:
            raise InvalidInput(
                "within 0s can never be met",
                field="within",
                value="0s",
                rule="longer than zero: the maximum age of the upstream run's end",
                fix="within: 2h",
            )

    def is_met(self, met_at: datetime | None, *, planned_at: datetime) -> bool:
        """Whether the last matching end is recent enough for an occurrence."""
        return met_at is not None and met_at >= planned_at - self.within

    def describe(self) -> str:
        """Return words: `nightly-load succeeded within 2h`."""
        return f"{self.schedule} {_ENDED[self.on]} within {format_duration(self.within)}"


class NeedWait(Struct, frozen=True, kw_only=True):
    """A need that is not met yet, and until when to wait for it."""

    until: datetime
    need: Need


class UnmetNeed(Struct, frozen=True, kw_only=True):
    """A need that was not met in time, and when it was last met."""

    need: Need
    met_at: datetime | None

    def describe(self) -> str:
        """Return words: `nightly-load never succeeded`, or when it last did."""
        return describe_unmet(self.need, self.met_at)


_ENDED = {EndKind.SUCCESS: "succeeded", EndKind.FAILURE: "failed", EndKind.END: "ended"}


def end_verb(on: EndKind) -> str:
    """Return the verb for a kind of end: `succeeded`, `failed`, `ended`."""
    return _ENDED[on]


def describe_unmet(need: Need, met_at: datetime | None) -> str:
    """Return why a need is not met, with when it was last met."""
    if met_at is None:
        return f"{need.schedule} never {_ENDED[need.on]}"
    last = f"{need.schedule} last {_ENDED[need.on]} at {format_instant(met_at)}"
    return f"{last}, longer ago than {format_duration(need.within)}"


def check_needs(
    needs: Sequence[Need], met: Mapping[tuple[str, EndKind], datetime], *, planned_at: datetime, now: datetime
) -> NeedWait | UnmetNeed | None:
    """Return the need that an occurrence waits for or has missed; None if all needs are met."""
    waits: list[NeedWait] = []
    for need in needs:
        met_at = met.get((need.schedule, need.on))
        if need.is_met(met_at, planned_at=planned_at):
            continue
        until = planned_at + need.wait
        if until > now:
            waits.append(NeedWait(until=until, need=need))
        elif need.else_ is not UnmetAction.RUN:
            return UnmetNeed(need=need, met_at=met_at)
    return min(waits, key=lambda wait: wait.until, default=None)
