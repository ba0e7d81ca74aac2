"""Reads that are over at once, for whoever must not wait: what a store may offer, and need not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from timewright.ports.store import Transaction

T = TypeVar("T")


class NotAtOnce(Exception):
    """It would take a while: ask again from a thread that may wait."""


class Glimpses(Protocol):
    """A store's reads that wait for nobody and look at few rows."""

    def now(self) -> datetime:
        """The store's clock, as far as this process knows it."""
        ...

    def look(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent picture of the store, or raise `NotAtOnce`."""
        ...

    def stamp(self) -> int:
        """A number that is another one after every commit, whoever made it; or `NotAtOnce`."""
        ...
