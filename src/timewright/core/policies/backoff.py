"""Delays after failures, and the deterministic jitter of occurrences.

`Exponential`, `Ladder` and `Constant` delay the retry of a failed run. `Steady`, `Stretch` and `Ladder` are
the cadence of a schedule: they delay its next occurrence after consecutive failures.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import MAX_DURATION, MINUTE, SECOND, ZERO, check_duration, to_micros
from timewright.errors import InvalidInput

Fraction = Annotated[float, Meta(ge=0, le=1)]

_MILLISECOND = timedelta(milliseconds=1)
_MAX_EXPONENT = 64


class Exponential(Struct, frozen=True, tag="exponential", tag_field="kind", forbid_unknown_fields=True):
    """base, base × factor, base × factor² … up to the cap; jitter only adds to the delay."""

    base: timedelta = SECOND
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    cap: timedelta = MINUTE
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        check_duration(self.base, field="base")
        check_duration(self.cap, field="cap")

    def delay(self, failures: int, *, seed: str = "") -> timedelta:
        """Return the delay after that many failed attempts, in whole milliseconds before jitter."""
        exponent = min(max(failures, 1) - 1, _MAX_EXPONENT)
        wait = min(self.base / _MILLISECOND * self.factor**exponent, self.cap / _MILLISECOND)
        return _with_jitter(timedelta(milliseconds=int(wait + 0.5)), self.jitter, seed=seed, step=failures)


class Ladder(Struct, frozen=True, tag="ladder", tag_field="kind", forbid_unknown_fields=True):
    """A list of delays; the last one repeats."""

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
            check_duration(step, field="steps")

    def delay(self, failures: int, *, seed: str = "") -> timedelta:
        """Return the delay after that many consecutive failures."""
        step = self.steps[min(max(failures, 1), len(self.steps)) - 1]
        return _with_jitter(step, self.jitter, seed=seed, step=failures)


class Constant(Struct, frozen=True, tag="constant", tag_field="kind", forbid_unknown_fields=True):
    """The same delay after every failure."""

    wait: timedelta = SECOND
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        check_duration(self.wait, field="wait")

    def delay(self, failures: int, *, seed: str = "") -> timedelta:
        """Return the delay, which does not depend on the number of failures."""
        return _with_jitter(self.wait, self.jitter, seed=seed, step=failures)


class Steady(Struct, frozen=True, tag="none", tag_field="kind", forbid_unknown_fields=True):
    """Failures do not change when the schedule runs."""


class Stretch(Struct, frozen=True, tag="stretch", tag_field="kind", forbid_unknown_fields=True):
    """The interval doubles with each consecutive failure, up to 2^`doublings`; cron is not affected."""

    doublings: Annotated[int, Meta(ge=1, le=20)] = 5

    def stretch(self, interval: timedelta, failures: int) -> timedelta:
        """Return the interval after that many consecutive failures, at most 100 years."""
        times = 2 ** min(failures, self.doublings)
        return interval * times if interval <= MAX_DURATION / times else MAX_DURATION


Backoff = Exponential | Ladder | Constant
Cadence = Steady | Stretch | Ladder


def _with_jitter(wait: timedelta, jitter: float, *, seed: str, step: int) -> timedelta:
    extra = wait * (jitter * hash_fraction("backoff", seed, str(step))) if jitter else ZERO
    return wait + extra


def hash_fraction(*parts: str) -> float:
    """Return a number in [0, 1) that depends only on the parts."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=6).digest()
    # Six bytes fit a float exactly, so the result is always below one.
    return int.from_bytes(digest, "big") / 2**48


def apply_jitter(
    planned_at: datetime,
    *,
    within: timedelta,
    both_sides: bool,
    seed: str,
    next_at: datetime | None = None,
) -> datetime:
    """Return when an occurrence may start: delayed by a hashed amount, but before the next occurrence.

    With `both_sides` it may also be early. `seed` is the schedule's id if all occurrences move by the same
    amount (`offset: stable`), else the id and the planned instant.
    """
    if not within:
        return planned_at
    width = within if next_at is None else min(within, next_at - planned_at)
    amount = hash_fraction(seed)
    if both_sides:
        amount = amount * 2 - 1
    return planned_at + timedelta(microseconds=int(width / timedelta(microseconds=1) * amount))


def occurrence_seed(schedule_id: str, planned_at: datetime) -> str:
    """Return the jitter seed of one occurrence."""
    return f"{schedule_id}:{to_micros(planned_at)}"
