"""Deterministic jitter: the delay is a hash, so the same occurrence always moves by the same amount."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from timewright.core.moments import to_micros


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
