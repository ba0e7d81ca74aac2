"""Simulated users and agents: they edit, pause, hint, cancel, run, prune, delete, and repeat requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.simulation.model.clocks import HOUR, MINUTE
from tests.simulation.model.external_holders import ExternalClient
from tests.simulation.workload import fleet
from tests.simulation.workload.dependencies import PROVIDER, draw_budget, draw_follow, draw_need
from tests.simulation.workload.scenarios import (
    CLOCK_CHANGES,
    GROUPS,
    LIMITS,
    NAMESPACES,
    PROVIDERS,
    QUEUES,
    draw_policies,
    draw_queue_policy,
    draw_schedule,
)
from timewright.core.moments import format_instant
from timewright.core.run.run import RunState
from timewright.errors import NotFound, OutcomeUnknown, StoreError, TimewrightError
from timewright.ledger.alerts.incidents import check_incidents
from timewright.ports import PruneRequest, RunFilter

if TYPE_CHECKING:
    from tests.simulation.model.seeded_random import SeededRandom
    from tests.simulation.model.simulation import Simulation

MAX_TRIES = 4


class SimulatedUser(ExternalClient):
    """A user; repeats a request whose answer was lost."""

    is_user = True

    def __init__(self, sim: Simulation, name: str, rng: SeededRandom, *, actions_per_hour: float) -> None:
        super().__init__(sim, name, rng)
        self._an_hour = actions_per_hour
        self._made = 0
        self._keys: list[tuple[str, str, str]] = []
        self._runs: dict[str, str] = {}
        self.actions: tuple[tuple[float, Callable[[], None]], ...] = (
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
            *(self._dependency_actions() if sim.scenario.budgets else ()),
        )

    def on_start(self) -> None:
        """Schedule the next action."""
        self._next()

    def act(self) -> None:
        """Perform one random action; a refusal is a valid answer."""
        weights = [weight for weight, _ in self.actions]
        (chosen,) = self.rng.choices([action for _, action in self.actions], weights)
        try:
            chosen()
        except TimewrightError as error:
            self.sim.record_error(self, error)
        self._next()

    def _next(self) -> None:
        if not self.sim.faults_are_over:
            wait = int(self.rng.expovariate(self._an_hour / HOUR)) if self._an_hour else HOUR * 24
            self.set_alarm("act", self.sim.time.at + wait, self.act)

    def call_with_retries(self, operation: str, namespace: str, /, **payload: Any) -> dict[str, Any]:
        """Call an operation, and call it again when the answer was lost."""
        for _ in range(MAX_TRIES):
            try:
                return self.call(operation, namespace, **payload)
            except (OutcomeUnknown, StoreError) as error:
                self.sim.record_error(self, error)
                self.sim.pass_time(self.rng.random_micros(0.5, 20), self, frozen=False)
        return self.call(operation, namespace, **payload)

    def _random_schedule(self) -> tuple[str, str]:
        """A random schedule, perhaps deleted."""
        known = self.sim.schedules
        return self.rng.choice(known) if known else ("default", "none")

    def _instant_in(self, low: float, high: float) -> str:
        return format_instant(self.sim.now() + timedelta(seconds=self.rng.uniform(low, high)))

    def _random_run(self, *states: RunState) -> tuple[str, str] | None:
        """A random run in one of these states."""
        which = RunFilter(state=self.rng.choice(states), limit=20)
        page = self.store.read(lambda tx: tx.find(which))
        if not page.rows:
            return None
        run = self.rng.choice(page.rows)
        return run.namespace, run.id

    def enqueue(self) -> None:
        """Add entries to a queue."""
        payloads = list(range(self.rng.randint(1, 4)))
        namespace, queue = self.rng.choice(NAMESPACES), self.rng.choice(QUEUES)
        more = {"not_before": self._instant_in(0, 900)} if self.rng.happens(0.3) else {}
        self.call(
            "queue add",
            namespace,
            queue=queue,
            payloads=payloads,
            priority=self.rng.choice((0, 100)),
            **more,
        )

    def run_now(self) -> None:
        """Run a schedule by hand, with a client key so that a repeated request makes one run."""
        namespace, name = self._random_schedule()
        self._made += 1
        self._run_with(namespace, name, f"{self.name}-{self._made}", force=self.rng.happens(0.2))

    def ask_again(self) -> None:
        """Repeat an old client key."""
        if self._keys:
            namespace, name, key = self.rng.choice(self._keys)
            self._run_with(namespace, name, key, force=False)

    def _run_with(self, namespace: str, name: str, key: str, *, force: bool) -> None:
        # A client key is known while its run's row exists; the row may be pruned between two requests.
        known = self._runs.get(key)
        if known in self.sim.pruned:
            return
        self._keys.append((namespace, name, key))
        found = self.call_with_retries("schedule run", namespace, schedule=name, client_key=key, force=force)[
            "run"
        ]
        if known in self.sim.pruned:
            return
        if known == found["id"]:
            self.sim.count("client key known already")
        self._runs[key] = found["id"]
        self.sim.record_event("manual", found["id"], schedule_id=found["schedule_id"], detail=key)

    def pause(self) -> None:
        """Pause a schedule, for a while or until resumed."""
        namespace, name = self._random_schedule()
        until = {"until": self._instant_in(60, 7200)} if self.rng.happens(0.6) else {}
        self.call("schedule pause", namespace, schedule=name, **until)

    def resume(self) -> None:
        """Resume a paused or parked schedule."""
        rows = self.call("schedule list", "default", state=self.rng.choice(("paused", "parked")))["schedules"]
        if rows:
            self.call("schedule resume", "default", schedule=self.rng.choice(rows)["name"])

    def edit(self) -> None:
        """Change a policy or two."""
        namespace, name = self._random_schedule()
        changes = draw_policies(self.rng)
        some = self.rng.sample(sorted(changes), min(2, len(changes)))
        self.call("schedule update", namespace, schedule=name, **{field: changes[field] for field in some})

    def edit_trigger(self) -> None:
        """Change the trigger."""
        namespace, name = self._random_schedule()
        change = {"every": self.rng.choice(("5m", "25m", "1h"))}
        if self.sim.scenario.is_fleet:
            change = {"cron": fleet.draw_cron(self.rng, self.rng.randrange(fleet.FLEET_SIZE))["cron"]}
        elif self.rng.happens(0.4):
            change = {"cron": self.rng.choice(("*/10 * * * *", "7 * * * *", "30 2 * * *"))}
        self.call("schedule update", namespace, schedule=name, **change)

    def hint(self) -> None:
        """Give a hint."""
        namespace, name = self._random_schedule()
        kind = self.rng.choice(("interval", "once", "pause"))
        fields: dict[str, Any] = {
            "interval": self.rng.choice(("10s", "2m", "20m", "3h")),
            "ttl": self.rng.choice(("2m", "45m")),
        }
        if kind == "once":
            fields = {"at": self._instant_in(1, 1800)}
        elif kind == "pause":
            fields = {"until": self._instant_in(60, 3000)}
        self.call(f"hint {kind}", namespace, schedule=name, reason="simulated", **fields)

    def clear_hints(self) -> None:
        """Clear the hints."""
        namespace, name = self._random_schedule()
        self.call("hint clear", namespace, schedule=name)

    def cancel(self) -> None:
        """Cancel an unfinished run."""
        found = self._random_run(RunState.READY, RunState.LEASED, RunState.LEASED, RunState.HELD)
        if found:
            self.call_with_retries("run cancel", found[0], run=found[1])

    def reopen(self) -> None:
        """Retry a failed or cancelled run."""
        found = self._random_run(RunState.FAILED, RunState.CANCELLED)
        if found:
            self.call("run retry", found[0], run=found[1])

    def reset(self) -> None:
        """Reset a parked run."""
        found = self._random_run(RunState.PARKED)
        if found:
            self.call("run reset", found[0], run=found[1], reason="simulated")

    def backfill(self) -> None:
        """Backfill a part of the past."""
        namespace, name = self._random_schedule()
        self.call(
            "schedule backfill",
            namespace,
            schedule=name,
            since=self._instant_in(-3600, -1800),
            until=self._instant_in(-1700, 0),
        )

    def skip(self) -> None:
        """Skip the next occurrences."""
        namespace, name = self._random_schedule()
        self.call("schedule skip", namespace, schedule=name, count=self.rng.choice((1, 1, 3)))

    def move(self) -> None:
        """Move the next occurrence."""
        namespace, name = self._random_schedule()
        self.call("schedule move", namespace, schedule=name, to=self._instant_in(10, 3600))

    def limit(self) -> None:
        """Change a limit."""
        self.call(
            "limit set",
            self.rng.choice(NAMESPACES),
            limit=self.rng.choice(LIMITS),
            max_running=self.rng.randint(1, 3),
        )

    def policy(self) -> None:
        """Change a queue's policy."""
        policy = draw_queue_policy(self.rng)
        field = self.rng.choice(sorted(policy))
        self.call(
            "queue policy set",
            self.rng.choice(NAMESPACES),
            queue=self.rng.choice(QUEUES),
            **{field: policy[field]},
        )

    def delete(self) -> None:
        """Archive or delete a schedule."""
        namespace, name = self._random_schedule()
        self.call_with_retries(
            self.rng.choice(("schedule archive", "schedule delete")), namespace, schedule=name
        )

    def create(self) -> None:
        """Create a schedule, perhaps under an old name."""
        number, is_fleet = self.rng.randrange(30), self.sim.scenario.is_fleet
        change = self.rng.choice(CLOCK_CHANGES)
        namespace, draft = draw_schedule(self.rng, number, change=change, is_fleet=is_fleet)
        draft["name"] = f"n{number:02d}"
        self.sim.add_schedule(namespace, draft["name"])
        self.call_with_retries("schedule create", namespace, **draft)

    def _dependency_actions(self) -> tuple[tuple[float, Callable[[], None]], ...]:
        """Actions on follow-ups, needs and budgets."""
        return (
            (1, self.set_budget),
            (1, self.close_provider),
            (1, self.open_provider),
            (0.5, self.edit_follower),
            (0.5, self.edit_needs),
        )

    def set_budget(self) -> None:
        """Change a budget's limit."""
        namespace, name, terms = self.rng.choice(self.sim.scenario.budgets)
        _, drawn = draw_budget(self.rng, name)
        self.call_with_retries("budget set", namespace, budget=name, **{**terms, "limit": drawn["limit"]})

    def close_provider(self) -> None:
        """Close a provider for a while."""
        namespace, until = self.rng.choice(NAMESPACES), self._instant_in(60, 1800)
        self.call("provider close", namespace, provider=PROVIDER, until=until)

    def open_provider(self) -> None:
        """Open a provider."""
        self.call("provider open", self.rng.choice(NAMESPACES), provider=PROVIDER)

    def edit_follower(self) -> None:
        """Change the upstream of a follower."""
        name = f"follower-{self.rng.randrange(2)}"
        self.call("schedule update", "default", schedule=name, after=draw_follow(self.rng))

    def edit_needs(self) -> None:
        """Change the needs of a schedule."""
        name = f"needy-{self.rng.randrange(2)}"
        self.call("schedule update", "default", schedule=name, needs=[draw_need(self.rng)])

    def prune(self) -> None:
        """Prune old history."""
        older = self.sim.now() - timedelta(hours=self.rng.choice((1, 4)))
        self.store.write(lambda tx: tx.prune(PruneRequest(older_than=older)))

    def preview(self) -> None:
        """Preview the next instants."""
        namespace, name = self._random_schedule()
        self.call("schedule next", namespace, schedule=name, count=3)


class PausingUser(SimulatedUser):
    """A user who only pauses and resumes scopes; when the faults are over, everything is resumed."""

    def __init__(self, sim: Simulation, name: str, rng: SeededRandom, *, actions_per_hour: float) -> None:
        super().__init__(sim, name, rng, actions_per_hour=actions_per_hour)
        self.actions = ((3, self.pause_scope), (4, self.resume_scope))
        self._paused: list[tuple[str, dict[str, Any]]] = []
        self._ever: list[tuple[str, dict[str, Any]]] = []

    def pause_scope(self) -> None:
        """Pause one scope, often with an end; sometimes stop what runs."""
        namespace = self.rng.choice(NAMESPACES)
        subject: dict[str, Any] = self.rng.choice(
            (
                {"scope": "installation"},
                {"scope": "namespace"},
                {"scope": "group", "name": self.rng.choice(GROUPS)},
                {"scope": "queue", "name": self.rng.choice(QUEUES)},
                {"scope": "provider", "name": self.rng.choice(PROVIDERS)},
            )
        )
        until = {"until": self._instant_in(30, 1200)} if self.rng.happens(0.7) else {}
        due = self.rng.choice(("skip", "wait"))
        stops = self.rng.happens(0.2)
        self._paused.append((namespace, subject))
        self._ever.append((namespace, subject))
        self.call_with_retries("pause", namespace, **subject, due=due, cancel_running=stops, **until)
        self.sim.count(f"paused {subject['scope']}")

    def resume_scope(self) -> None:
        """Resume the scope that was paused first."""
        if self._paused:
            namespace, subject = self._paused.pop(0)
            self.call_with_retries("resume", namespace, **subject)

    def act(self) -> None:
        """Perform one action; when the faults are over, resume everything that was ever paused."""
        if not self.sim.faults_are_over:
            super().act()
            return
        while self._ever:
            namespace, subject = self._ever[-1]
            try:
                self.call("resume", namespace, **subject)
            except NotFound:
                self.sim.count("nothing to resume")
            except TimewrightError as error:
                self.sim.record_error(self, error)
                break
            self._ever.pop()
        self._next()

    def _next(self) -> None:
        if self.sim.faults_are_over and not self._ever:
            return
        wait = int(self.rng.expovariate(self._an_hour / HOUR))
        self.set_alarm("act", self.sim.time.at + min(wait, 5 * MINUTE), self.act)


class IncidentWatcher(ExternalClient):
    """Looks for incidents once a minute, as every instance does."""

    def on_start(self) -> None:
        """Look after a while."""
        self.set_alarm("look", self.sim.time.at + self.rng.random_micros(1, 60), self.look)

    def look(self) -> None:
        """Look for incidents; another watcher may have done so just before."""
        try:
            self.publish(check_incidents(self.store, ids=self.ids, now=self.store.now()))
        except TimewrightError as error:
            self.sim.record_error(self, error)
        self.set_alarm("look", self.sim.time.at + MINUTE, self.look)


class Answerer(ExternalClient):
    """A person who answers what waits: sometimes twice, sometimes late, sometimes with an event."""

    is_user = True

    def on_start(self) -> None:
        """Look at the questions from time to time."""
        self.set_alarm("answer", self.sim.time.at + self.rng.random_micros(5, 120), self.answer)

    def answer(self) -> None:
        """Answer a random question, and again if the reply was lost or for no reason."""
        try:
            asked = self.call("approval list", "default")["answers"]
            if asked and self.rng.happens(0.1):
                for run in self.call("workflow signal", "default", event="go", data={})["runs"]:
                    self.sim.record_event("answered", run["id"])
            elif asked:
                self._answer_often(self.rng.choice(asked)["run"])
        except TimewrightError as error:
            self.sim.record_error(self, error)
        if not self.sim.faults_are_over:
            self.on_start()

    def _answer_often(self, run: str) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            try:
                self.call("run answer", "default", run=run, answer={"go": True})
            except TimewrightError as error:
                self.sim.record_error(self, error)
            else:
                self.sim.record_event("answered", run)
                self.sim.count("question answered")
