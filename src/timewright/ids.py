"""Ids that sort by time: a prefix, then 26 base-32 characters, the first ten of them the millisecond."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from typing import NamedTuple

from timewright.core.moments import EPOCH, to_micros

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
# The last four characters are a counter of 20 bits.
_COUNTER_BITS = 20
_MAX_COUNTER = 2**_COUNTER_BITS - 1
_PREFIXES = {
    "schedule": "sch",
    "run": "run",
    "lease": "lease",
    "instance": "ins",
    "analysis": "ana",
    "key": "key",
    "pause": "pause",
    "incident": "inc",
    "backfill": "bf",
    "outbox": "out",
}


class _Batch(NamedTuple):
    """The ids of one millisecond: the shared first characters, and the counter behind them."""

    at: datetime
    milliseconds: int
    high: int
    head: str
    numbers: Iterator[int]


class TimedIds:
    """Makes ids with 80 random bits each; within one process they also increase inside a millisecond."""

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._batch = _Batch(EPOCH, -1, 0, "", iter(()))

    def new(self, kind: str, *, now: datetime) -> str:
        """Return an id such as `run_01K8…`; `kind` is a key of `_PREFIXES`."""
        batch = self._batch
        if now is not batch.at:
            batch = self._batch_at(now)
        # Within one millisecond the counter continues from the last id, so a batch stays in order.
        number, head = next(batch.numbers), batch.head
        if number > _MAX_COUNTER:
            head, number = _head(batch.high + (number >> _COUNTER_BITS)), number & _MAX_COUNTER
        return f"{_PREFIXES[kind]}_{head}{_PAIRS[number >> 10]}{_PAIRS[number & 1023]}"

    def _batch_at(self, now: datetime) -> _Batch:
        milliseconds = to_micros(now) // 1000
        batch = self._batch
        if milliseconds == batch.milliseconds:
            batch = batch._replace(at=now)
        else:
            value = (milliseconds << 80) | (int.from_bytes(self._entropy(10), "big") >> 1)
            high = value >> _COUNTER_BITS
            batch = _Batch(now, milliseconds, high, _head(high), count(value & _MAX_COUNTER))
        self._batch = batch
        return batch


def first_id(kind: str, *, at: datetime) -> str:
    """Return the smallest id of an instant: every id made later sorts after it."""
    return f"{_PREFIXES[kind]}_{_encode(max(to_micros(at) // 1000, 0) << 80)}"


def _head(high: int) -> str:
    """Return the first 22 characters, which are the same for most of a batch."""
    return _encode(high << _COUNTER_BITS)[:22]


def _encode(value: int) -> str:
    """Encode as 26 characters of Crockford's base 32, two at a time."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])
