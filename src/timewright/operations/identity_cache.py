"""Cache results by the identity of an immutable argument, which is cheaper than hashing it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

MAX_ENTRIES = 4_096


def cache_by_identity(compute: Callable[[A], B], *, max_entries: int = MAX_ENTRIES) -> Callable[[A], B]:
    """Return the function with a cache of its recent results, keyed by the identity of the argument."""
    entries: dict[int, tuple[A, B]] = {}

    @wraps(compute)
    def cached(value: A) -> B:
        known = entries.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        if len(entries) >= max_entries:
            entries.clear()
        # Keep the value too, so that its id cannot be reused by another object.
        entries[id(value)] = known = (value, compute(value))
        return known[1]

    return cached
