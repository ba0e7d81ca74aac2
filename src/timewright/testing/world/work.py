"""What runs do: succeed, fail, hang, go on when they should stop, here or on another machine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.ports import Launch
from timewright.ports.said import Spoken
from timewright.testing.world.clocks import SECOND
from timewright.testing.world.effects import Execution
from timewright.testing.world.linked import cost_of

if TYPE_CHECKING:
    from timewright.testing.world.actors import Engine
    from timewright.testing.world.chance import Chance
    from timewright.testing.world.run import World

CRASHER = "poison"
LINE_EVERY = 5 * SECOND


class Act(Struct, frozen=True, kw_only=True):
    """What one piece of work does: how it ends, after how long, where it runs, whether it listens."""

    outcome: Outcome
    lasts: int
    remote: bool = False
    heeds_stop: bool = True
    kills: bool = False
    says: bool = False


def act_of(world: World, key: str, fence: int, *, name: str = "") -> Act:
    """Drawn from the run and its fence alone, so that nobody else's draws change it."""
    chance = world.chance.fork(f"work {key} {fence}")
    act = _drawn(world, chance, name=name)
    if not world.scenario.budgets:
        return act
    return replace(act, outcome=replace(act.outcome, cost=cost_of(chance)), says=chance.maybe(0.3))


def _drawn(world: World, chance: Chance, *, name: str) -> Act:
    if world.is_quiet:
        return Act(outcome=Succeeded(), lasts=chance.micros(0.1, 2))
    lasts = chance.micros(0.05, 1) if chance.maybe(0.5) else int(chance.expovariate(1 / 40) * SECOND)
    if name.startswith(CRASHER):
        return Act(outcome=Succeeded(), lasts=lasts, kills=chance.maybe(0.7))
    remote, heeds = chance.maybe(0.4), chance.maybe(0.9)
    draw = chance.random()
    outcome: Outcome = Succeeded(word="useful")
    if draw < 0.12:
        outcome = Failed(error="it failed")
    elif draw < 0.14:
        later = world.now() + timedelta(seconds=chance.uniform(-60, 600))
        outcome = Failed(error="come back later", not_before=later)
    elif draw < 0.15:
        outcome = Failed(error="never", final=True)
    elif draw < 0.19:
        lasts = 3600 * SECOND
    return Act(outcome=outcome, lasts=lasts, remote=remote, heeds_stop=heeds)


class WorldWork:
    """One launch under way."""

    def __init__(
        self, target: WorldTarget, launch: Launch, act: Act, done: Callable[[Outcome], None]
    ) -> None:
        self._target = target
        self._world = target.engine.world
        self._done = done
        self._grace = int(launch.grace.total_seconds() * SECOND)
        self.act = act
        self.over = False
        limit = int(launch.time_limit.total_seconds() * SECOND)
        self._in_time = act.lasts <= limit
        self.execution = self._world.sinks.begin(
            Execution(
                run_id=launch.run_id,
                key=launch.key,
                fence=launch.fence,
                holder=target.holder,
                began=self._world.time.at,
            )
        )
        self._end_in(min(act.lasts, limit), act.outcome if self._in_time else TimedOut(), did=self._in_time)

    def said(self) -> Spoken | None:
        """A line for every few seconds of work, as far as it came."""
        if not self.act.says:
            return None
        execution, now = self.execution, self._world.time.at
        text = "a line\n" * (1 + ((execution.ended or now) - execution.began) // LINE_EVERY)
        return Spoken(text=text, size=len(text))

    def stop(self, reason: str) -> None:
        """End within the grace; what does not listen is ended by force when that is over."""
        chance = self._world.chance.fork(f"stop {self.execution.key} {self.execution.fence}")
        wait = chance.randrange(self._grace + 1) if self.act.heeds_stop else self._grace
        self._end_in(wait, Cancelled(reason=reason), did=False)

    def _end_in(self, wait: int, outcome: Outcome, *, did: bool) -> None:
        world, engine = self._world, self._target.engine
        if self.act.remote:
            # What runs on another machine has its effect whatever becomes of us.
            world.at(world.time.at + wait, lambda: self._physically_over(did=did))
        world.at(world.time.at + wait, lambda: self._answer(outcome, did=did), actor=engine, lane="work")

    def _physically_over(self, *, did: bool) -> None:
        self._world.sinks.end(self.execution, at=self._world.time.at, did=did)

    def _answer(self, outcome: Outcome, *, did: bool) -> None:
        if self.over:
            return
        if self.act.kills:
            self._world.count("killed by its own work")
            self._target.engine.crash()
            return
        self.over = True
        self._physically_over(did=did and not isinstance(outcome, TimedOut))
        self._target.under_way.discard(self)
        spoken = self.said()
        if spoken is not None:
            self._world.words[self.execution.run_id, self.execution.fence] = spoken.size
        self._done(outcome)


class WorldTarget:
    """Every kind of target at once."""

    def __init__(self, engine: Engine, holder: str) -> None:
        self.engine = engine
        self.holder = holder
        self.under_way: set[WorldWork] = set()

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> WorldWork:
        """Begin; between here and the answer lies most of what can go wrong."""
        world = self.engine.world
        world.faults.point(self.engine, "launch before")
        work = WorldWork(
            self, launch, act_of(world, launch.key, launch.fence, name=launch.schedule_name), done
        )
        self.under_way.add(work)
        world.faults.point(self.engine, "launch after")
        return work

    def vanish(self) -> None:
        """The process is gone, and the work inside it."""
        for work in self.under_way:
            if not work.act.remote:
                self.engine.world.sinks.end(work.execution, at=self.engine.world.time.at, did=False)
        self.under_way = set()

    def close(self, *, grace: timedelta) -> None:
        """Nothing to free."""
