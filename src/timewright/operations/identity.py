"""What is made of a value, made once for as long as it is the same one: values here never change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

MOST = 4_096


def once_for_each(make: Callable[[A], B], *, most: int = MOST) -> Callable[[A], B]:
    """The same function, which remembers what it made of the values it was given lately."""
    kept: dict[int, tuple[A, B]] = {}

    @wraps(make)
    def made(value: A) -> B:
        known = kept.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        if len(kept) >= most:
            kept.clear()
        # The value is kept as well, so that its place in memory stays its own.
        kept[id(value)] = known = (value, make(value))
        return known[1]

    return made
