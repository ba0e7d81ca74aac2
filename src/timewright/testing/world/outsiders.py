"""Those outside: holders who lease from queues through the operations, and reapers who take leases back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from timewright.core.facts import Fact
from timewright.core.moments import micros
from timewright.errors import OutcomeUnknown, Stale, StoreError, TimewrightError
from timewright.ledger.replan import By
from timewright.operations import Context, operations
from timewright.testing.world.actors import Actor
from timewright.testing.world.clocks import MINUTE, NEVER, SECOND
from timewright.testing.world.effects import Execution
from timewright.testing.world.work import act_of

if TYPE_CHECKING:
    from timewright.testing.world.calling import Outlook
    from timewright.testing.world.chance import Chance
    from timewright.testing.world.run import World

MOST_TRIES = 5
MOST_HELD = 4
LONGEST_WORK = 5 * MINUTE
SLOWEST_REAPER = 2 * SECOND

_WAITING = """
SELECT namespace, queue, fire_at FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = 1
UNION ALL SELECT namespace, queue, fire_at FROM runs WHERE state = 'ready' AND asleep = 1 AND handoff = 1
"""


class Outsider(Actor):
    """Someone who asks through the operations and nothing else."""

    def ask(self, operation: str, namespace: str, /, **payload: Any) -> dict[str, Any]:
        """One operation, as any door would ask for it."""
        context = Context(
            store=self.store,
            ids=self.ids,
            by=By(actor=self.name),
            namespace=namespace,
            tell=self.tell,
        )
        return operations[operation](context, payload)

    def tell(self, facts: Sequence[Fact]) -> None:
        """Facts go to the world."""
        for fact in facts:
            self.world.hear(self, fact)


class Held(Struct, kw_only=True):
    """A lease in the hands of someone outside."""

    row: Mapping[str, Any]
    namespace: str
    ends_at: int
    length: int
    execution: Execution
    fails: bool
    tries: int = 0


class Holder(Outsider):
    """Leases from the queues it knows, works for a while, renews, and answers; it may ask twice."""

    def __init__(self, world: World, name: str, chance: Chance, queues: Sequence[tuple[str, str]]) -> None:
        super().__init__(world, name, chance)
        self.queues = list(queues)

    def boot(self) -> None:
        """Nothing is remembered from the life before."""
        self.held: dict[tuple[str, int], Held] = {}
        self._looked = -1
        self._found = True
        self.world.holders[self.name] = (self, self.life)
        self.alarm("look", self.world.time.at + self.chance.micros(1, 30), self.look)

    def vanish(self) -> None:
        """Its work dies with it."""
        for held in self.held.values():
            self.world.sinks.end(held.execution, at=self.world.time.at, did=False)

    def consider(self, outlook: Outlook) -> None:
        """Something may wait in a queue; whoever found nothing looks again after a while."""
        if "look" in self.alarms or outlook.version == self._looked:
            return
        if outlook.handoff:
            low, high = (0.1, 20) if self._found else (30, 150)
            self.alarm("look", self.world.time.at + self.chance.micros(low, high), self.look)
        elif outlook.asleep != NEVER:
            self.alarm("look", self.world.when(outlook.asleep) + self.chance.micros(0.1, 60), self.look)

    def look(self) -> None:
        """Take what there is, a little at a time."""
        self._looked = self.world.outlook().version
        self._found = False
        if len(self.held) >= MOST_HELD:
            return
        now = self.world.now_micros()
        waiting = {(row[0], row[1]) for row in self.world.base.ask(_WAITING) if row[2] <= now}
        for namespace, queue in self.queues:
            if (namespace, queue) in waiting:
                self._take(namespace, queue)

    def _take(self, namespace: str, queue: str) -> None:
        limit = self.chance.randint(1, 3)
        try:
            taken = self.ask("queue lease", namespace, queue=queue, limit=limit, holder=self.name)
        except TimewrightError as error:
            self.world.trouble(self, error)
            return
        for row in taken["leases"]:
            self._found = True
            self._begin(namespace, row)

    def _begin(self, namespace: str, row: Mapping[str, Any]) -> None:
        world = self.world
        act = act_of(world, row["key"], row["fence"])
        length = micros(datetime.fromisoformat(row["lease_until"])) - world.now_micros()
        execution = world.sinks.begin(
            Execution(
                run_id=row["run"], key=row["key"], fence=row["fence"], holder=self.name, began=world.time.at
            )
        )
        held = Held(
            row=row,
            namespace=namespace,
            ends_at=world.time.at + min(act.lasts, LONGEST_WORK),
            length=max(length, SECOND),
            execution=execution,
            fails=type(act.outcome).__name__ != "Succeeded",
        )
        key = (row["run"], row["fence"])
        self.held[key] = held
        self._go_on(key, held)

    def _go_on(self, key: tuple[str, int], held: Held) -> None:
        """Renew at half of the lease, or answer when the work is done."""
        at = min(held.ends_at, self.world.time.at + held.length // 2)
        do = self._answer if at >= held.ends_at else self._renew
        self.alarm(f"lease {key}", at, lambda: do(key, held))

    def _renew(self, key: tuple[str, int], held: Held) -> None:
        try:
            answer = self.ask("queue renew", held.namespace, run=key[0], fence=key[1])
        except Stale:
            self.world.count("stale heartbeat refused")
            if self.chance.maybe(0.5):
                # Some holders do not listen, and go on to the end.
                self.alarm(f"lease {key}", held.ends_at, lambda: self._answer(key, held))
                return
            self._drop(key, held, did=False)
            return
        except TimewrightError as error:
            self.world.trouble(self, error)
            answer = {"cancel_at": None}
        if answer["cancel_at"] is not None and self.chance.maybe(0.7):
            held.ends_at = self.world.time.at
        self._go_on(key, held)

    def _answer(self, key: tuple[str, int], held: Held) -> None:
        """Say how it went; an answer that may have been lost is given again."""
        held.tries += 1
        try:
            if held.fails:
                self.ask("queue release", held.namespace, run=key[0], fence=key[1], failed=True, error="no")
            elif self.chance.maybe(0.05):
                self.ask("queue release", held.namespace, run=key[0], fence=key[1])
            else:
                self.ask("queue complete", held.namespace, run=key[0], fence=key[1], result=1)
        except Stale:
            self.world.count("stale answer refused")
        except (OutcomeUnknown, StoreError) as error:
            self.world.trouble(self, error)
            if held.tries < MOST_TRIES:
                again = self.world.time.at + self.chance.micros(0.5, 30)
                self.alarm(f"lease {key}", again, lambda: self._answer(key, held))
                return
        except TimewrightError as error:
            self.world.trouble(self, error)
        self._drop(key, held, did=not held.fails)

    def _drop(self, key: tuple[str, int], held: Held, *, did: bool) -> None:
        self.world.sinks.end(held.execution, at=self.world.time.at, did=did)
        self.held.pop(key, None)
        self._looked, self._found = -1, True
        self.consider(self.world.outlook())


class Reaper(Outsider):
    """Takes back leases that are over, whoever else does the same."""

    def boot(self) -> None:
        """Look soon."""
        self.alarm("reap", self.world.time.at + self.chance.micros(1, 60), self.reap)

    def consider(self, outlook: Outlook) -> None:
        """A lease may end sooner than we look."""
        if outlook.ends != NEVER:
            at = self.world.when(outlook.ends)
            if at < self.alarms.get("reap", NEVER) - SLOWEST_REAPER:
                self.alarm("reap", at + self.chance.randrange(SLOWEST_REAPER), self.reap)

    def reap(self) -> None:
        """Through the operation, as anyone may."""
        now = self.world.now_micros()
        if self.world.outlook(now=now).ends <= now:
            try:
                self.ask("queue reclaim", "default")
            except TimewrightError as error:
                self.world.trouble(self, error)
                self.alarm("reap", self.world.time.at + SECOND, self.reap)
                return
        self.consider(self.world.outlook())
