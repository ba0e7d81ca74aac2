"""How long to stay away after a failure.

`Exponential`, `Ladder` and `Constant` say when a failed run is tried again. `Steady`, `Stretch` and
`Ladder` say what failures do to the schedule itself (its cadence).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.jitter import share
from timewright.core.moments import LONGEST_DURATION, MINUTE, SECOND, ZERO, bounded
from timewright.errors import InvalidInput

Fraction = Annotated[float, Meta(ge=0, le=1)]

_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_EXPONENT = 64


class Exponential(Struct, frozen=True, tag="exponential", tag_field="kind", forbid_unknown_fields=True):
    """base, base × factor, base × factor² … up to the cap; jitter only ever adds."""

    base: timedelta = SECOND
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    cap: timedelta = MINUTE
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        bounded(self.base, field="base")
        bounded(self.cap, field="cap")

    def delay(self, failures: int, *, seed: str = "") -> timedelta:
        """The wait after that many failed attempts, in whole milliseconds before jitter."""
        exponent = min(max(failures, 1) - 1, _LONGEST_EXPONENT)
        wait = min(self.base / _MILLISECOND * self.factor**exponent, self.cap / _MILLISECOND)
        return _with_jitter(timedelta(milliseconds=int(wait + 0.5)), self.jitter, seed=seed, step=failures)


class Ladder(Struct, frozen=True, tag="ladder", tag_field="kind", forbid_unknown_fields=True):
    """A table of waits; the last step repeats."""

    steps: tuple[timedelta, ...] = (30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE)
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= 100:
            raise InvalidInput(
                f"a ladder of {len(self.steps)} steps",
                field="steps",
                value=len(self.steps),
                rule="1 to 100 steps",
                fix="[30s, 1m, 5m, 15m, 60m]",
            )
        for step in self.steps:
            bounded(step, field="steps")

    def delay(self, failures: int, *, seed: str = "") -> timedelta:
        """The step for that many failures in a row."""
        step = self.steps[min(max(failures, 1), len(self.steps)) - 1]
        return _with_jitter(step, self.jitter, seed=seed, step=failures)


class Constant(Struct, frozen=True, tag="constant", tag_field="kind", forbid_unknown_fields=True):
    """The same wait every time."""

    wait: timedelta = SECOND
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        bounded(self.wait, field="wait")

    def delay(self, failures: int, *, seed: str = "") -> timedelta:
        """The wait, whatever the number of failures."""
        return _with_jitter(self.wait, self.jitter, seed=seed, step=failures)


class Steady(Struct, frozen=True, tag="none", tag_field="kind", forbid_unknown_fields=True):
    """Failures do not move the schedule."""


class Stretch(Struct, frozen=True, tag="stretch", tag_field="kind", forbid_unknown_fields=True):
    """The interval doubles with each failure in a row, up to 2^`doublings`; cron does not stretch."""

    doublings: Annotated[int, Meta(ge=1, le=20)] = 5

    def stretched(self, interval: timedelta, failures: int) -> timedelta:
        """The interval after that many failures in a row, and never more than a century."""
        times = 2 ** min(failures, self.doublings)
        return interval * times if interval <= LONGEST_DURATION / times else LONGEST_DURATION


Backoff = Exponential | Ladder | Constant
Cadence = Steady | Stretch | Ladder


def _with_jitter(wait: timedelta, jitter: float, *, seed: str, step: int) -> timedelta:
    extra = wait * (jitter * share("backoff", seed, str(step))) if jitter else ZERO
    return wait + extra
