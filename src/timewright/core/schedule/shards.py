"""Shards of schedules by a hash of their ids, written `2/4` for the second of four."""

from __future__ import annotations

import re
from collections.abc import Iterable

from timewright.errors import InvalidInput

Shard = tuple[int, int]

MAX_SHARDS = 1024
# Every schedule id hashes to one of these slots; a shard is a set of slots.
SHARD_SLOTS = 4096
FULL_SHARD: Shard = (1, 1)

_SHARD = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


def parse_shard(text: str) -> Shard:
    """Parse a shard; an empty text means all schedules."""
    if not text:
        return FULL_SHARD
    found = _SHARD.fullmatch(text)
    if found is None:
        raise _shard_error(text[:64])
    return check_shard((int(found[1]), int(found[2])))


def check_shard(shard: Shard) -> Shard:
    """Return the shard, or raise InvalidInput if its numbers are out of range."""
    index, count = shard
    if not 1 <= index <= count <= MAX_SHARDS:
        raise _shard_error(f"{index}/{count}")
    return shard


def uncovered_shards(shards: Iterable[Shard]) -> list[Shard]:
    """Return the shards that are not fully covered, in units of the finest given division."""
    covered = set(shards)
    finest = max((count for _, count in covered), default=1)
    uncovered = [n for n in range(SHARD_SLOTS) if not any(n % count == index - 1 for index, count in covered)]
    return [(index, finest) for index in sorted({n % finest + 1 for n in uncovered})]


def _shard_error(text: str) -> InvalidInput:
    return InvalidInput(
        f"shard {text} does not exist",
        field="shard",
        value=text,
        rule=f"k/n with k from 1 to n, and n at most {MAX_SHARDS}",
        fix="1/2 on one instance and 2/2 on another, or leave it out",
    )
