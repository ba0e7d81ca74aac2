"""Who is called when something may be due: one event stands for all who rest, so idle hours cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from timewright.core.moments import micros
from timewright.testing.world.clocks import MINUTE, NEVER, SECOND

if TYPE_CHECKING:
    from timewright.testing.world.actors import Engine
    from timewright.testing.world.run import World

_OUTLOOK = """
SELECT (SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL),
    (SELECT min(fire_at) FROM runs WHERE state = 'ready' AND asleep = 1),
    (SELECT min(lease_until) FROM runs WHERE state = 'leased'),
    EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = 0),
    EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = 1)
"""
_LINES = "SELECT DISTINCT line FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = 0 ORDER BY line"


class Outlook(Struct, frozen=True):
    """What may be due when, by the store's clock, as of a version of the store."""

    version: int
    due: int
    asleep: int
    ends: int
    ready: bool
    handoff: bool
    next: int
    """The first instant at which an engine may have something to do."""


class Caller:
    """Looks ahead for every engine at once, and calls one or two of them when there is something to do.

    Whoever is called may be dead, frozen or too slow: then others are called until it is done.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance.fork("calls")
        self._outlook: Outlook | None = None
        self._rings_at = NEVER
        self._offers_at = NEVER
        self._rests: tuple[int, int] = (-1, 0)

    def outlook(self) -> Outlook:
        """What may be due when; asked once for each version of the store."""
        world = self._world
        if self._outlook is None or self._outlook.version != world.version:
            ((due, asleep, ends, ready, handoff),) = world.base.ask(_OUTLOOK)
            due, asleep, ends = (NEVER if at is None else at for at in (due, asleep, ends))
            could_start = bool(ready) and self._has_room()
            self._outlook = Outlook(
                world.version, due, asleep, ends, could_start, bool(handoff), min(due, asleep, ends)
            )
        return self._outlook

    def arm(self) -> None:
        """Something was committed: call someone when the next thing is due, and soon if a run may start."""
        world, outlook = self._world, self.outlook()
        if outlook.next != NEVER:
            called_for, until = self._rests
            at = max(world.when(outlook.next), until if called_for == outlook.next else 0)
            if at < self._rings_at:
                self._rings_at = at
                world.at(at, partial(self._ring, at))
        if outlook.ready and self._offers_at == NEVER:
            self._offer_in(10 * SECOND)

    def _ring(self, at: int) -> None:
        if self._rings_at != at:
            return
        self._rings_at = NEVER
        world, outlook = self._world, self.outlook()
        now = micros(world.now())
        if outlook.next <= now:
            only_admitters = min(outlook.asleep, outlook.ends) > now
            self._call([e for e in self._reached() if e.limits.admits or not only_admitters])
            rest = world.time.at + self._chance.micros(0.5, 2)
            # Whoever was called writes, and may have no room: what is due then stays due, and is no news.
            self._rests = (outlook.next, max(rest, world.away_until))
        self.arm()

    def _call(self, engines: Sequence[Engine]) -> None:
        # In calm weather whoever is called comes, and has finished before another could meet it.
        many = 1 + (self._world.faults.is_on and self._chance.maybe(0.5))
        for engine in self._chance.sample(engines, min(many, len(engines))):
            at = self._world.time.at + self._chance.randrange(20_000)
            if at < engine.alarms.get("step", NEVER):
                engine.alarm("step", at, engine.step)

    def _reached(self) -> list[Engine]:
        """Whoever lives and reaches the store, also those who stand still."""
        now = self._world.time.at
        return [e for e in self._world.engines if e.alive and e.cut_off_until <= now]

    def _offer_in(self, wait: int) -> None:
        self._offers_at = self._world.time.at + self._chance.randrange(wait)
        self._world.at(self._offers_at, self._offer)

    def _offer(self) -> None:
        """A run is ready: one after the other, everyone who has room and has not looked yet is called."""
        self._offers_at = NEVER
        outlook = self.outlook()
        if not outlook.ready:
            return
        able = [e for e in self._reached() if e.seen != outlook.version and e.tick.room]
        if able:
            self._call(able)
            self._offer_in(MINUTE)

    def _has_room(self) -> bool:
        """Whether a run that is ready could start: behind a full ceiling it waits until that is not full."""
        world = self._world
        lines = [line for (line,) in world.base.ask(_LINES)]
        if not all(lines):
            return True
        live, most = world.live_leases(), world.ceilings()
        return any(all(live[gate] < most.get(gate, 1) for gate in line.split("\n")) for line in lines)
