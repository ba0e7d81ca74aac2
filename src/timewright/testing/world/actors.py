"""Who moves: engines that tick as in production, each on a host of its own that can freeze and die."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from timewright.core.facts import Fact
from timewright.engine.eve import Eve
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.prune import Pruner
from timewright.engine.tick import Limits, Tick
from timewright.ids import TimedIds
from timewright.testing.world.chance import Chance
from timewright.testing.world.clocks import EVE, SECOND, SkewedClock
from timewright.testing.world.gated import GatedStore
from timewright.testing.world.work import WorldTarget

if TYPE_CHECKING:
    from timewright.testing.world.calling import Outlook
    from timewright.testing.world.run import World

KINDS = ("call", "http", "shell", "publish", "note", "workflow")
SLOWEST_POLL = 5.0
ROUNDED = 10
SHORTEST_POLL = 0.03


class Actor:
    """One process on one host: its life, its alarms, and whether it can move just now."""

    is_person = False

    def __init__(self, world: World, name: str, chance: Chance) -> None:
        self.world = world
        self.name = name
        self.chance = chance
        self.life = 0
        self.alive = False
        self.frozen = 0
        self.busy: set[str] = set()
        self.deferred: list[tuple[str, Callable[[], None]]] = []
        self.cut_off_until = 0
        self.alarms: dict[str, int] = {}
        drift = chance.uniform(-2e-5, 2e-5)
        self.clock = SkewedClock(world.time, skew=chance.micros(-20, 20), drift=drift)

    def start(self) -> None:
        """Begin a new life, with nothing of the last."""
        self.life += 1
        self.alive = True
        self.frozen = 0
        self.busy = set()
        self.deferred = []
        self.alarms = {}
        self.ids = TimedIds(self.chance.fork(f"ids {self.life}").entropy)
        self.store = GatedStore(self, self.world.open_store(self))
        self.boot()

    def boot(self) -> None:
        """Make what this actor is made of."""

    def vanish(self) -> None:
        """What physically ends when the process does."""

    def crash(self) -> None:
        """End without a word; whatever was under way in this process is gone with it."""
        self.vanish()
        self.alive = False
        self.life += 1
        self.deferred = []
        self.world.close_store(self)
        self.world.at(self.world.time.at + self.chance.micros(0.5, 90), self.start)

    def alarm(self, lane: str, at: int, do: Callable[[], None]) -> None:
        """Do this at an instant unless the lane was given another one meanwhile."""
        alarms, world = self.alarms, self.world
        at = max(at, world.time.at)
        alarms[lane] = at

        def ring() -> None:
            if alarms.get(lane) == at:
                del alarms[lane]
                do()

        world.at(at, ring, actor=self, lane=lane)

    def consider(self, outlook: Outlook) -> None:
        """Something was committed: perhaps there is something to do sooner."""


class WorldWaker:
    """To rest is to let the world move; to be woken is an alarm."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def rest(self, seconds: float) -> bool:
        """Let time pass while this lane stands still."""
        self._engine.world.pass_time(int(seconds * SECOND), self._engine, frozen=False)
        return False

    def stand_still(self, seconds: float) -> None:
        """Let time pass in the middle of a transaction, where nobody else can move."""
        self._engine.world.time.at += self._engine.clock.true(seconds)

    def wake(self) -> None:
        """Tick soon."""
        self._engine.call()


class Engine(Actor):
    """An instance: the production loop, ticked by alarms instead of threads."""

    def __init__(
        self, world: World, name: str, chance: Chance, *, admits: bool = True, capacity: int = 5
    ) -> None:
        super().__init__(world, name, chance)
        self.limits = Limits(capacity=capacity, batch=50, admits=admits)
        self.seen = -1
        self._tries = 0

    def boot(self) -> None:
        """A fresh instance with an id of its own."""
        world = self.world
        holder = self.ids.new("instance", now=world.now())
        world.holders[holder] = (self, self.life)
        waker = WorldWaker(self)
        self.target = target = WorldTarget(self, holder)
        self.launcher = Launcher(
            dict.fromkeys(KINDS, target), monotonic=self.clock.monotonic, wake=self.answered
        )
        self.tick = Tick(self.store, self.launcher, ids=self.ids, holder=holder, limits=self.limits)
        # As in production, where the settling has a thread of its own.
        self.tick.settles = False
        keep = world.scenario.keep_history
        self.loop = Loop(
            self.store,
            self.tick,
            self.launcher,
            clock=self.clock,
            waker=waker,
            observers=[self],
            eve=Eve(stand_still=waker.stand_still, monotonic=self.clock.monotonic),
            pruner=Pruner(self.store, keep=keep) if keep is not None and self.limits.admits else None,
        )
        self.seen = -1
        self._tries = 0
        self.alarm("step", world.time.at + self.chance.micros(0, 1), self.step)

    def call(self) -> None:
        """Somebody wants a tick here; one that would find nothing is left out."""
        self.alarm("step", self.world.time.at + self.chance.randrange(2_000), self.step)

    def answered(self) -> None:
        """Work has come back: it is written soon."""
        self.alarm("settle", self.world.time.at + self.chance.randrange(2_000), self.settle)

    def vanish(self) -> None:
        """Work inside the process dies with it; what runs elsewhere goes on."""
        self.target.vanish()

    def note(self, fact: Fact) -> None:
        """Facts go to the world."""
        self.world.hear(self, fact)

    def step(self) -> None:
        """One pass through the rooms, unless there is nothing to do here."""
        world = self.world
        if not self._is_wanted():
            return
        self.seen = world.version
        self.busy.add("step")
        try:
            seconds = self.loop.step()
        except Exception as error:  # noqa: BLE001  supervised as in production
            world.trouble(self, error)
            seconds = self.loop._troubled(error)
            self.seen = -1
        finally:
            self.busy.discard("step")
        world.steps += 1
        self._arm_beats()
        if seconds <= SLOWEST_POLL:
            wait = self.clock.true(seconds) if seconds < SHORTEST_POLL else self._poll(seconds)
            self.alarm("step", self._knock(world.time.at + wait), self.step)
        else:
            world.caller.arm()

    def _knock(self, at: int) -> int:
        """Who finds the store away knocks every few seconds; only the knock that finds it back is lived."""
        away = max(self.world.away_until, self.cut_off_until)
        return at if at >= away else away + self.chance.randrange(int(SLOWEST_POLL * SECOND))

    def settle(self) -> None:
        """Write what has come back, beside the tick; what the store does not take is tried again."""
        self.busy.add("settle")
        try:
            self.loop.settler.settle()
            self._tries = 0
        except Exception as error:  # noqa: BLE001  supervised as in production
            self.world.trouble(self, error)
            self._tries += 1
            wait = self.clock.true(self.loop.troubled(error, tries=self._tries))
            self.alarm("settle", self._knock(self.world.time.at + wait), self.settle)
        finally:
            self.busy.discard("settle")
        self._arm_beats()

    def renew(self) -> None:
        """The beat that prolongs leases and hears of cancels; an error waits for the next beat."""
        self.busy.add("renew")
        try:
            self.loop._renew()
        except Exception as error:  # noqa: BLE001  supervised as in production
            self.world.trouble(self, error)
            self.alarm("renew", self.world.time.at + SECOND, self.renew)
            return
        finally:
            self.busy.discard("renew")
        self._arm_beats()

    def watch(self) -> None:
        """The beat that needs no store."""
        self.launcher.watch()
        self._arm_beats()

    def stop(self) -> None:
        """Stop gracefully, as for a new release, and come back after a while."""
        world = self.world
        if self.busy:
            # Production waits for the tick that is under way.
            self.alarm("stop", world.time.at + SECOND, self.stop)
            return
        holder, in_doubt = self.tick.holder, self.tick.in_doubt
        self.busy |= {"step", "settle", "renew"}
        wait = timedelta(seconds=self.chance.choice((0, 2, 20)))
        self.loop.stop(wait=wait, grace=timedelta(seconds=2))
        # A grant whose answer was lost is in nobody's hands, and is left to its lease.
        if not self.loop.pulse.last_error and not in_doubt:
            world.remember("stopped", holder)
        world.count("stopped gracefully")
        self.vanish()
        self.alive = False
        self.life += 1
        world.close_store(self)
        world.at(world.time.at + self.chance.micros(1, 60), self.start)

    def hear_of_stops(self) -> None:
        """Someone was asked to stop; perhaps it runs here."""
        if len(self.launcher):
            self.alarm("renew", self.world.time.at + self.chance.micros(0, 1), self.renew)

    def _poll(self, seconds: float) -> int:
        """In a crowd the short polls of production would be all we simulate."""
        return int(seconds * SECOND) + (self.chance.randrange(int(SLOWEST_POLL * SECOND)))

    def _is_wanted(self) -> bool:
        world = self.world
        if self.seen == -1 or self.tick.in_doubt:
            return True
        now = world.now_micros()
        outlook = world.outlook(now=now)
        if outlook.asleep <= now or outlook.ends <= now or (self.limits.admits and outlook.due <= now + EVE):
            return True
        if outlook.version == self.seen:
            return False
        waits = outlook.ready and self.tick.room > 0 and world.caller.could_start()
        return waits or self.chance.maybe(world.redundant)

    def _arm_beats(self) -> None:
        """Beats only while something is under way, and only when they have something to do."""
        launcher, clock = self.launcher, self.clock
        if not len(launcher):
            return
        moment = clock.monotonic()
        under_way = launcher.under_way()
        renewal = min(f.lease_ends - f.lease.terms.lease.length.total_seconds() * 2 / 3 for f in under_way)
        # What could not be prolonged is tried again at the next beat, as in production.
        wait = renewal - moment if renewal > moment else 1.0
        self._beat("renew", clock.true(wait), self.renew)
        if launcher._look_at <= moment:
            # Someone was told that a lease is longer: only when that is looked at is it known until when.
            launcher.watch()
        if launcher._look_at - moment < 1e9:
            wait = max(launcher._look_at - moment, 0.001)
            self._beat("watch", clock.true(wait), self.watch)

    def _beat(self, lane: str, wait: int, do: Callable[[], None]) -> None:
        """A beat; one that is to come at this moment already, but for how its wait was rounded, is enough."""
        at = self.world.time.at + wait
        if abs(self.alarms.get(lane, 0) - at) > ROUNDED:
            self.alarm(lane, at, do)
