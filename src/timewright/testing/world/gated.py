"""A store as one actor sees it: every call passes the faults, and every commit is seen by the world."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from timewright.errors import StoreUnavailable
from timewright.testing.world.watching import WatchedTransaction

if TYPE_CHECKING:
    from timewright.testing.world.actors import Actor

T = TypeVar("T")


class GatedStore:
    """One call at a time: whoever moves is alone until the call has ended or the world lets others on."""

    def __init__(self, actor: Actor, store: Any) -> None:
        self.inner = store
        self._actor = actor
        self._world = actor.world

    def now(self) -> datetime:
        """The store's clock."""
        return self._world.read_clock(self._actor, self.inner)

    def write(self, work: Callable[[Any], T]) -> T:
        """One transaction, watched; it may fail before, after, or not at all."""
        world, actor, name = self._world, self._actor, name_of(work)
        self._reach()
        if world.faults.is_on:
            world.faults.before(actor, name)
        seen: WatchedTransaction | None = None

        def attended(tx: Any) -> T:
            nonlocal seen
            seen = world.watch(actor, name, tx)
            before = seen.changes()
            answer = work(seen)
            seen.changed = seen.changes() != before
            return answer

        answer: T = self.inner.write(attended)
        if seen is not None:
            world.committed(seen)
        if world.faults.is_on:
            world.faults.after(actor, name)
        return answer

    def read(self, work: Callable[[Any], T]) -> T:
        """One picture of the store."""
        self._reach()
        if self._world.faults.is_on:
            self._world.faults.before(self._actor, name_of(work))
        answer: T = self.inner.read(work)
        return answer

    def close(self) -> None:
        """The world closes the store when it ends."""

    def _reach(self) -> None:
        world = self._world
        if world.time.at < world.away_until or world.time.at < self._actor.cut_off_until:
            world.count("store away")
            raise StoreUnavailable("the store is away")


def name_of(work: Callable[[Any], Any]) -> str:
    """Which transaction it is: the function that asks for it."""
    return work.__qualname__.partition(".<locals>")[0]
