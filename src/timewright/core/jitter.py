"""Spread without chance: a hash decides, so the same occurrence always moves by the same amount."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from timewright.core.moments import micros


def share(*parts: str) -> float:
    """A number in [0, 1) that depends on the parts and on nothing else."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=6).digest()
    # Six bytes fit a float exactly, so the share stays below one and the far end is never reached.
    return int.from_bytes(digest, "big") / 2**48


def jittered(
    planned_at: datetime,
    *,
    within: timedelta,
    both_sides: bool,
    seed: str,
    before: datetime | None = None,
) -> datetime:
    """When an occurrence may fire: late by a hashed amount, never as late as the next occurrence.

    With `both_sides` it may also be early by as much. `seed` is the schedule's id when the whole
    schedule moves together (`offset: stable`); otherwise it is the id and the planned instant.
    """
    if not within:
        return planned_at
    room = within if before is None else min(within, before - planned_at)
    amount = share(seed)
    if both_sides:
        amount = amount * 2 - 1
    return planned_at + timedelta(microseconds=int(room / timedelta(microseconds=1) * amount))


def occurrence_seed(schedule_id: str, planned_at: datetime) -> str:
    """What makes one occurrence's jitter its own."""
    return f"{schedule_id}:{micros(planned_at)}"
