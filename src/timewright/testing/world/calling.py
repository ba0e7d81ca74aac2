"""Who is called when something may be due: one event stands for all who rest, so idle hours cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from timewright.testing.world.clocks import EVE, MINUTE, NEVER, SECOND

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
        self._are_longer = False
        self._room: tuple[int, bool] = (-1, False)

    def outlook(self, *, now: int = 0) -> Outlook:
        """What may be due when; asked once for each version of the store, and where leases seem over."""
        seen, version = self._outlook, self._world.version
        if seen is None or seen.version != version or (self._are_longer and seen.ends <= now):
            ((due, asleep, ends, ready, handoff),) = self._world.base.ask(_OUTLOOK)
            due = NEVER if due is None else due
            asleep = NEVER if asleep is None else asleep
            ends = NEVER if ends is None else ends
            first = min(due if due == NEVER else due - EVE, asleep, ends)
            seen = self._outlook = Outlook(version, due, asleep, ends, bool(ready), bool(handoff), first)
            self._are_longer = False
        return seen

    def prolonged(self) -> None:
        """Leases end later than was seen: nothing has come nearer, so nobody looks before they seem over."""
        self._are_longer = True

    def could_start(self) -> bool:
        """Whether a run is ready and could start; asked once for each version of the store."""
        outlook = self.outlook()
        if outlook.version != self._room[0]:
            self._room = (outlook.version, outlook.ready and self._has_room())
        return self._room[1]

    def arm(self) -> None:
        """Something was committed: call someone when the next thing is due, and soon if a run may start."""
        world, outlook = self._world, self.outlook()
        if outlook.next != NEVER:
            called_for, until = self._rests
            at = max(world.when(outlook.next), until if called_for == outlook.next else 0)
            if at < self._rings_at:
                self._rings_at = at
                world.at(at, partial(self._ring, at))
        if outlook.ready and self._offers_at == NEVER and self.could_start():
            self._offer_in(10 * SECOND)

    def _ring(self, at: int) -> None:
        if self._rings_at != at:
            return
        self._rings_at = NEVER
        world, now = self._world, self._world.now_micros()
        outlook = self.outlook(now=now)
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
        if not self.could_start():
            return
        version = self._world.version
        able = [e for e in self._reached() if e.seen != version and e.tick.room]
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
        return any(all(live.get(gate, 0) < most.get(gate, 1) for gate in line.split("\n")) for line in lines)
