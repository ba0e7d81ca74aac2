"""Shards: parts of all schedules by a hash of their ids, written `2/4` for the second of four."""

from __future__ import annotations

import re
from collections.abc import Iterable

from timewright.errors import InvalidInput

Shard = tuple[int, int]

MOST_SHARDS = 1024
# Every schedule falls into one of these; each shard is made of some of them.
SMALLEST_PARTS = 4096
WHOLE: Shard = (1, 1)

_SPELLED = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


def read_shard(text: str) -> Shard:
    """The shard that a text names; an empty one names the whole."""
    if not text:
        return WHOLE
    found = _SPELLED.fullmatch(text)
    if found is None:
        raise _no_such(text[:64])
    return check_shard((int(found[1]), int(found[2])))


def check_shard(shard: Shard) -> Shard:
    """Refuse a shard that does not exist."""
    which, of = shard
    if not 1 <= which <= of <= MOST_SHARDS:
        raise _no_such(f"{which}/{of}")
    return shard


def unserved(shards: Iterable[Shard]) -> list[Shard]:
    """The parts, of as many as the finest of these shards makes, that are not covered by them whole."""
    served = set(shards)
    finest = max((of for _, of in served), default=1)
    left = [n for n in range(SMALLEST_PARTS) if not any(n % of == which - 1 for which, of in served)]
    return [(which, finest) for which in sorted({n % finest + 1 for n in left})]


def _no_such(text: str) -> InvalidInput:
    return InvalidInput(
        f"shard {text} does not exist",
        field="shard",
        value=text,
        rule=f"k/n with k from 1 to n, and n at most {MOST_SHARDS}",
        fix="1/2 on one instance and 2/2 on another; or leave it out",
    )
