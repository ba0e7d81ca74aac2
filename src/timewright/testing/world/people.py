"""What people and agents do meanwhile: edit, pause, hint, cancel, run by hand, prune, delete, ask twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from timewright.core.moments import spell_instant
from timewright.core.run import RunState
from timewright.errors import OutcomeUnknown, StoreError, TimewrightError
from timewright.ports import Prune, RunFilter
from timewright.testing.world import fleet
from timewright.testing.world.clocks import HOUR
from timewright.testing.world.linked import PROVIDER, budget, follow_of, need_of
from timewright.testing.world.outsiders import Outsider
from timewright.testing.world.workload import (
    CHANGES,
    LIMITS,
    NAMESPACES,
    QUEUES,
    drawn,
    policies,
    queue_policy,
)

if TYPE_CHECKING:
    from timewright.testing.world.chance import Chance
    from timewright.testing.world.run import World

MOST_TRIES = 4


class Person(Outsider):
    """Someone with a keyboard; whoever does not hear an answer asks again."""

    is_person = True

    def __init__(self, world: World, name: str, chance: Chance, *, an_hour: float) -> None:
        super().__init__(world, name, chance)
        self._an_hour = an_hour
        self._made = 0
        self._keys: list[tuple[str, str, str]] = []
        self._runs: dict[str, str] = {}
        self.acts: tuple[tuple[float, Callable[[], None]], ...] = (
            (3, self.enqueue),
            (3, self.run_now),
            (1, self.ask_again),
            (2, self.pause),
            (3, self.resume),
            (2, self.edit),
            (1, self.edit_trigger),
            (3, self.hint),
            (1, self.clear_hints),
            (2, self.cancel),
            (2, self.reopen),
            (2, self.reset),
            (1, self.backfill),
            (1, self.skip),
            (1, self.move),
            (1, self.limit),
            (1, self.policy),
            (0.7, self.delete),
            (1, self.create),
            (0.3, self.prune),
            (0.5, self.preview),
            *(self._relations() if world.scenario.budgets else ()),
        )

    def boot(self) -> None:
        """Wait for the next idea."""
        self._next()

    def act(self) -> None:
        """One idea; a refusal is an answer like any other."""
        weights = [weight for weight, _ in self.acts]
        (chosen,) = self.chance.choices([do for _, do in self.acts], weights)
        try:
            chosen()
        except TimewrightError as error:
            self.world.trouble(self, error)
        self._next()

    def _next(self) -> None:
        if not self.world.is_quiet:
            wait = int(self.chance.expovariate(self._an_hour / HOUR)) if self._an_hour else HOUR * 24
            self.alarm("act", self.world.time.at + wait, self.act)

    def insist(self, operation: str, namespace: str, /, **payload: Any) -> dict[str, Any]:
        """Ask, and ask again when the answer was lost."""
        for _ in range(MOST_TRIES):
            try:
                return self.ask(operation, namespace, **payload)
            except (OutcomeUnknown, StoreError) as error:
                self.world.trouble(self, error)
                self.world.pass_time(self.chance.micros(0.5, 20), self, frozen=False)
        return self.ask(operation, namespace, **payload)

    def _any(self) -> tuple[str, str]:
        """A schedule, perhaps one that is gone."""
        known = self.world.schedules
        return self.chance.choice(known) if known else ("default", "none")

    def _soon(self, low: float, high: float) -> str:
        return spell_instant(self.world.now() + timedelta(seconds=self.chance.uniform(low, high)))

    def _run(self, *states: RunState) -> tuple[str, str] | None:
        """A run in one of these states."""
        which = RunFilter(state=self.chance.choice(states), limit=20)
        page = self.store.read(lambda tx: tx.find_runs(which))
        if not page.rows:
            return None
        run = self.chance.choice(page.rows)
        return run.namespace, run.id

    def enqueue(self) -> None:
        """Put entries into a queue."""
        payloads = list(range(self.chance.randint(1, 4)))
        namespace, queue = self.chance.choice(NAMESPACES), self.chance.choice(QUEUES)
        more = {"not_before": self._soon(0, 900)} if self.chance.maybe(0.3) else {}
        self.ask(
            "queue add",
            namespace,
            queue=queue,
            payloads=payloads,
            priority=self.chance.choice((0, 100)),
            **more,
        )

    def run_now(self) -> None:
        """Run a schedule by hand, with a key so that asking twice makes one run."""
        namespace, name = self._any()
        self._made += 1
        self._run_with(namespace, name, f"{self.name}-{self._made}", force=self.chance.maybe(0.2))

    def ask_again(self) -> None:
        """The same key again, much later."""
        if self._keys:
            namespace, name, key = self.chance.choice(self._keys)
            self._run_with(namespace, name, key, force=False)

    def _run_with(self, namespace: str, name: str, key: str, *, force: bool) -> None:
        # A key is known as long as the row of its run is kept; that may end while we ask again and again.
        known = self._runs.get(key)
        if known in self.world.pruned:
            return
        self._keys.append((namespace, name, key))
        found = self.insist("schedule run", namespace, schedule=name, client_key=key, force=force)["run"]
        if known in self.world.pruned:
            return
        if known == found["id"]:
            self.world.count("client key known already")
        self._runs[key] = found["id"]
        self.world.remember("asked", found["id"], about=found["schedule_id"], word=key)

    def pause(self) -> None:
        """Pause a schedule, for a while or until someone resumes it."""
        namespace, name = self._any()
        until = {"until": self._soon(60, 7200)} if self.chance.maybe(0.6) else {}
        self.ask("schedule pause", namespace, schedule=name, **until)

    def resume(self) -> None:
        """Resume whatever is paused or parked."""
        rows = self.ask("schedule list", "default", state=self.chance.choice(("paused", "parked")))[
            "schedules"
        ]
        if rows:
            self.ask("schedule resume", "default", schedule=self.chance.choice(rows)["name"])

    def edit(self) -> None:
        """Change a policy or two."""
        namespace, name = self._any()
        changes = policies(self.chance)
        some = self.chance.sample(sorted(changes), min(2, len(changes)))
        self.ask("schedule update", namespace, schedule=name, **{field: changes[field] for field in some})

    def edit_trigger(self) -> None:
        """Change when it runs."""
        namespace, name = self._any()
        change = {"every": self.chance.choice(("5m", "25m", "1h"))}
        if self.world.scenario.is_fleet:
            change = {"cron": fleet.when(self.chance, self.chance.randrange(fleet.SIZE))["cron"]}
        elif self.chance.maybe(0.4):
            change = {"cron": self.chance.choice(("*/10 * * * *", "7 * * * *", "30 2 * * *"))}
        self.ask("schedule update", namespace, schedule=name, **change)

    def hint(self) -> None:
        """Wish for another time."""
        namespace, name = self._any()
        kind = self.chance.choice(("interval", "once", "pause"))
        wish: dict[str, Any] = {
            "interval": self.chance.choice(("10s", "2m", "20m", "3h")),
            "ttl": self.chance.choice(("2m", "45m")),
        }
        if kind == "once":
            wish = {"at": self._soon(1, 1800)}
        elif kind == "pause":
            wish = {"until": self._soon(60, 3000)}
        self.ask(f"hint {kind}", namespace, schedule=name, reason="simulated", **wish)

    def clear_hints(self) -> None:
        """Forget the wishes."""
        namespace, name = self._any()
        self.ask("hint clear", namespace, schedule=name)

    def cancel(self) -> None:
        """Cancel something that waits or runs."""
        found = self._run(RunState.READY, RunState.LEASED, RunState.LEASED, RunState.HELD)
        if found:
            self.insist("run cancel", found[0], run=found[1])

    def reopen(self) -> None:
        """Try something again that failed."""
        found = self._run(RunState.FAILED, RunState.CANCELLED)
        if found:
            self.ask("run retry", found[0], run=found[1])

    def reset(self) -> None:
        """Give something that is parked its attempts back."""
        found = self._run(RunState.PARKED)
        if found:
            self.ask("run reset", found[0], run=found[1], reason="simulated")

    def backfill(self) -> None:
        """Run a part of the past again."""
        namespace, name = self._any()
        self.ask(
            "schedule backfill",
            namespace,
            schedule=name,
            since=self._soon(-3600, -1800),
            until=self._soon(-1700, 0),
        )

    def skip(self) -> None:
        """Leave the next time out."""
        namespace, name = self._any()
        self.ask("schedule skip", namespace, schedule=name, count=self.chance.choice((1, 1, 3)))

    def move(self) -> None:
        """Have the next one at another time."""
        namespace, name = self._any()
        self.ask("schedule move", namespace, schedule=name, to=self._soon(10, 3600))

    def limit(self) -> None:
        """Change a ceiling, up or down."""
        self.ask(
            "limit set",
            self.chance.choice(NAMESPACES),
            limit=self.chance.choice(LIMITS),
            most=self.chance.randint(1, 3),
        )

    def policy(self) -> None:
        """Change a queue's policy."""
        policy = queue_policy(self.chance)
        field = self.chance.choice(sorted(policy))
        self.ask(
            "queue policy set",
            self.chance.choice(NAMESPACES),
            queue=self.chance.choice(QUEUES),
            **{field: policy[field]},
        )

    def delete(self) -> None:
        """Archive a schedule, or delete it."""
        namespace, name = self._any()
        self.insist(self.chance.choice(("schedule archive", "schedule delete")), namespace, schedule=name)

    def create(self) -> None:
        """Make a new schedule, perhaps under a name that was there before."""
        number, is_fleet = self.chance.randrange(30), self.world.scenario.is_fleet
        change = self.chance.choice(CHANGES)
        namespace, draft = drawn(self.chance, number, change=change, is_fleet=is_fleet)
        draft["name"] = f"n{number:02d}"
        self.world.add_schedule(namespace, draft["name"])
        self.insist("schedule create", namespace, **draft)

    def _relations(self) -> tuple[tuple[float, Callable[[], None]], ...]:
        """What people do where schedules follow, need and spend."""
        return (
            (1, self.set_budget),
            (1, self.close_provider),
            (1, self.open_provider),
            (0.5, self.edit_follower),
            (0.5, self.edit_needs),
        )

    def set_budget(self) -> None:
        """Allow more or less; how it counts stays."""
        namespace, name, terms = self.chance.choice(self.world.scenario.budgets)
        _, drawn_anew = budget(self.chance, name)
        self.insist("budget set", namespace, budget=name, **{**terms, "limit": drawn_anew["limit"]})

    def close_provider(self) -> None:
        """Nothing of a provider starts for a while."""
        namespace, until = self.chance.choice(NAMESPACES), self._soon(60, 1800)
        self.ask("provider close", namespace, provider=PROVIDER, until=until)

    def open_provider(self) -> None:
        """And again."""
        self.ask("provider open", self.chance.choice(NAMESPACES), provider=PROVIDER)

    def edit_follower(self) -> None:
        """Follow another, or another end."""
        name = f"follower-{self.chance.randrange(2)}"
        self.ask("schedule update", "default", schedule=name, after=follow_of(self.chance))

    def edit_needs(self) -> None:
        """Need something else."""
        name = f"needy-{self.chance.randrange(2)}"
        self.ask("schedule update", "default", schedule=name, needs=[need_of(self.chance)])

    def prune(self) -> None:
        """Let old history go."""
        older = self.world.now() - timedelta(hours=self.chance.choice((1, 4)))
        self.store.write(lambda tx: tx.prune(Prune(older_than=older)))

    def preview(self) -> None:
        """Look ahead; what is shown is what will happen, unless something changes."""
        namespace, name = self._any()
        self.ask("schedule next", namespace, schedule=name, count=3)
