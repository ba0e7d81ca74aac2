"""Ids that sort by time: `run_` and 26 characters, the first ten of them the millisecond."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from typing import NamedTuple

from timewright.core.moments import EPOCH, micros

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
# What the last four characters count.
_PLACE_BITS = 20
_LAST_PLACE = 2**_PLACE_BITS - 1
_PREFIXES = {
    "schedule": "sch",
    "run": "run",
    "lease": "lease",
    "instance": "ins",
    "analysis": "ana",
    "key": "key",
}


class _Turn(NamedTuple):
    """The ids of one millisecond: what they begin with, and the places that come behind it, one by one."""

    at: datetime
    milliseconds: int
    high: int
    head: str
    places: Iterator[int]


class TimedIds:
    """New ids from 80 random bits each; within one process they also rise inside a millisecond."""

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._turn = _Turn(EPOCH, -1, 0, "", iter(()))

    def new(self, kind: str, *, now: datetime) -> str:
        """An id such as `run_01K8…`; `kind` is one of the nouns that have ids."""
        turn = self._turn
        if now is not turn.at:
            turn = self._turned(now)
        # The same millisecond counts on from the last id, so a batch made together stays in order.
        place, head = next(turn.places), turn.head
        if place > _LAST_PLACE:
            head, place = _head(turn.high + (place >> _PLACE_BITS)), place & _LAST_PLACE
        return f"{_PREFIXES[kind]}_{head}{_PAIRS[place >> 10]}{_PAIRS[place & 1023]}"

    def _turned(self, now: datetime) -> _Turn:
        milliseconds = micros(now) // 1000
        turn = self._turn
        if milliseconds == turn.milliseconds:
            turn = turn._replace(at=now)
        else:
            value = (milliseconds << 80) | (int.from_bytes(self._entropy(10), "big") >> 1)
            high = value >> _PLACE_BITS
            turn = _Turn(now, milliseconds, high, _head(high), count(value & _LAST_PLACE))
        self._turn = turn
        return turn


def first_id(kind: str, *, at: datetime) -> str:
    """The smallest id that can be made at an instant: whatever is made later sorts behind it."""
    return f"{_PREFIXES[kind]}_{_spell(max(micros(at) // 1000, 0) << 80)}"


def _head(high: int) -> str:
    """All but the last four characters, which are the same for most of a batch."""
    return _spell(high << _PLACE_BITS)[:22]


def _spell(value: int) -> str:
    """Crockford's base 32, two characters at a time, 26 in all."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])
