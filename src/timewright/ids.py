"""Ids that sort by time: `run_` and 26 characters, the first ten of them the millisecond."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime

from timewright.core.moments import EPOCH, micros

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_PREFIXES = {
    "schedule": "sch",
    "run": "run",
    "lease": "lease",
    "instance": "ins",
    "analysis": "ana",
    "key": "key",
}


class TimedIds:
    """New ids from 80 random bits each; within one process they also rise inside a millisecond."""

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._last = (0, 0)
        self._head = (-1, "")
        self._at = (EPOCH, 0)

    def new(self, kind: str, *, now: datetime) -> str:
        """An id such as `run_01K8…`; `kind` is one of the nouns that have ids."""
        at, milliseconds = self._at
        if now is not at:
            milliseconds = micros(now) // 1000
            self._at = (now, milliseconds)
        last_at, last_tail = self._last
        # The same millisecond counts on from the last id, so a batch made together stays in order.
        tail = last_tail + 1 if milliseconds == last_at else int.from_bytes(self._entropy(10), "big") >> 1
        self._last = (milliseconds, tail)
        value = (milliseconds << 80) | (tail & (2**80 - 1))
        high, head = self._head
        if high != value >> 20:
            # All but the last four characters, which are the same for most of a batch.
            high, head = self._head = (value >> 20, _spell(value)[:22])
        return f"{_PREFIXES[kind]}_{head}{_PAIRS[(value >> 10) & 1023]}{_PAIRS[value & 1023]}"


def first_id(kind: str, *, at: datetime) -> str:
    """The smallest id that can be made at an instant: whatever is made later sorts behind it."""
    return f"{_PREFIXES[kind]}_{_spell(max(micros(at) // 1000, 0) << 80)}"


def _spell(value: int) -> str:
    """Crockford's base 32, two characters at a time, 26 in all."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])
