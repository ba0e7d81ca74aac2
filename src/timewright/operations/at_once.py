"""Operations for whoever must not wait: the same, over reads that are over at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from timewright.operations.context import Context
from timewright.ports import Transaction
from timewright.ports.glimpse import Glimpses, NotAtOnce

T = TypeVar("T")


class AtOnce:
    """A store that answers at once or raises `NotAtOnce`; it takes no writes."""

    def __init__(self, glimpses: Glimpses) -> None:
        self.now: Callable[[], datetime] = glimpses.now
        self._glimpses = glimpses

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent picture of the store."""
        return self._glimpses.look(work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Whoever writes waits for the disk."""
        raise NotAtOnce

    def close(self) -> None:
        """Nothing: the store belongs to whoever opened it."""


def glimpses_of(context: Context) -> Glimpses | None:
    """The reads of a store that are over at once, where it has them."""
    glimpses: Glimpses | None = getattr(context.store, "glimpses", None)
    return glimpses


def may_take_long(context: Context) -> None:
    """Said before what nobody can bound: whoever must not wait asks again where it may."""
    if isinstance(context.store, AtOnce):
        raise NotAtOnce
