"""Tells the store now and then that this instance is there, and how full it is."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Sized
from contextlib import suppress
from importlib.metadata import version

from msgspec.structs import replace

from timewright.ledger.roster import Instance, tell_of
from timewright.ports import Clock, Store

TELL_EVERY = 15.0
MOST_FUNCTIONS = 500


class Presence:
    """What one instance says of itself, every quarter of a minute and with its last word."""

    def __init__(
        self,
        store: Store,
        instance_id: str,
        *,
        clock: Clock,
        capacity: int,
        work: Sized,
        admit: str = "any",
        shard: str = "",
        functions: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self._store = store
        self._id = instance_id
        self._clock = clock
        self._capacity = capacity
        self._work = work
        self._admit = admit
        self._shard = shard
        self._functions = functions
        self._instance: Instance | None = None
        self._told_at = 0.0

    def beat(self) -> None:
        """Tell, unless that was done just now."""
        moment = self._clock.monotonic()
        if self._instance is None or moment - self._told_at >= TELL_EVERY:
            self._told_at = moment
            self._tell(stopped=False)

    def leave(self) -> None:
        """Say that it is gone, so that nobody waits for it; one that never told says nothing."""
        # A last word that is not heard is no loss: whoever is silent for a while is taken for gone.
        with suppress(Exception):
            if self._instance is not None:
                self._tell(stopped=True)

    def _tell(self, *, stopped: bool) -> None:
        now = self._store.now()
        if self._instance is None:
            self._instance = Instance(
                id=self._id,
                host=platform.node(),
                version=version("timewright"),
                started_at=now,
                capacity=self._capacity,
                admit=self._admit,
                shard=self._shard,
            )
        said = replace(
            self._instance,
            under_way=len(self._work),
            clock_offset=now - self._clock.now(),
            stopped=stopped,
            functions=self._known(),
        )
        self._store.write(lambda tx: tell_of(tx, said, now=now))

    def _known(self) -> tuple[str, ...] | None:
        """The functions that can be called here, by name; of too many nothing is told."""
        names = self._functions() if self._functions is not None else None
        return tuple(sorted(names)) if names is not None and len(names) <= MOST_FUNCTIONS else None
