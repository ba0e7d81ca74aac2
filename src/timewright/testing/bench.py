"""A whole house by hand: move the clock, tick, look."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Protocol, cast

from timewright.core.encoding import encode
from timewright.core.facts import Fact
from timewright.core.moments import ZERO
from timewright.core.refusals import refused
from timewright.core.run import Attempt, Run
from timewright.core.schedule import Schedule, Standing
from timewright.core.target import AnyTarget, Call, Note
from timewright.core.trigger import Trigger
from timewright.core.triggers import AnyTrigger, anchored
from timewright.core.vocabulary import decode_schedule
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.rest import EventWaker
from timewright.engine.tick import Limits, Tick
from timewright.errors import NotFound
from timewright.ids import TimedIds
from timewright.ledger.replan import By, create
from timewright.operations import Context, operations
from timewright.operations.declaring import When, spelled_trigger, worded
from timewright.operations.find import no_such, schedule_names
from timewright.ports import Observer, RunFilter, Store, Target
from timewright.stores.sqlite import SqliteStore
from timewright.targets.registry import Registry
from timewright.testing.clock import ManualClock, instant_of, passing
from timewright.testing.targets import CallingTarget, ScriptedTarget

KINDS = ("call", "http", "shell", "publish", "note", "workflow")
MOST_TICKS = 100_000
_WORDS = (str, int, dict, list)
START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


class App(Protocol):
    """Something that has functions and declares schedules for them, as a `Scheduler` does."""

    registry: Registry

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """What it declares, each as `schedule put` is asked for it."""
        ...


class Bench:
    """An engine, a store in memory, a clock that moves when told and targets that follow a script."""

    def __init__(
        self,
        *,
        start: datetime | str | None = None,
        store: Store | None = None,
        clock: ManualClock | None = None,
        capacity: int = 100,
        name: str = "bench",
        ids: TimedIds | None = None,
    ) -> None:
        if clock is not None and start is not None and instant_of(start, field="start") != clock.now():
            fix = "leave start out, or give it to the clock: ManualClock(start)"
            raise refused("start", start, "stands beside a clock", rule="a clock has its own start", fix=fix)
        self.clock = clock or ManualClock(START if start is None else start)
        self.store: Store = store or SqliteStore(":memory:", clock=self.clock)
        self.ids = ids or TimedIds(_counting())
        self.target = ScriptedTarget(self.clock)
        self.facts: list[Fact] = []
        self._capacity = capacity
        self._calling = CallingTarget(scripted=self.target)
        waker = EventWaker()
        self._targets: dict[str, Target] = dict.fromkeys(KINDS, self.target)
        launcher = Launcher(self._targets, monotonic=self.clock.monotonic, wake=waker.wake)
        self._tick = Tick(self.store, launcher, ids=self.ids, holder=name, limits=Limits(capacity=capacity))
        self.loop = Loop(self.store, self._tick, launcher, clock=self.clock, waker=waker, observers=[self])

    @property
    def now(self) -> datetime:
        """The bench's instant."""
        return self.clock.now()

    def note(self, fact: Fact) -> None:
        """Keep every fact, in order."""
        self.facts.append(fact)

    def twin(self, name: str) -> Bench:
        """A second instance on the same store and clock, and scripts of its own; not moved, it is dead."""
        return Bench(store=self.store, clock=self.clock, capacity=self._capacity, name=name, ids=self.ids)

    def schedule(
        self,
        name: str,
        trigger: When | None = None,
        *,
        target: AnyTarget | Callable[..., Any] | None = None,
        **policies: Any,
    ) -> Schedule:
        """Keep a schedule made now; a note is what it does unless a target or a function is given.

        Trigger and policies may be said in all the words that `@app.schedule` takes.
        """
        schedule = self._made(name, trigger, self._done_by(name, target), policies)
        return create(self.store, [schedule], by=By(actor="bench"), now=self.now)[0].schedule

    def adopt(self, app: App) -> None:
        """Keep the schedules that a scheduler declares, and call its functions, here and in no time.

        A schedule with a script follows its script instead. Those who listen to the scheduler are told.
        """
        registry = getattr(app, "registry", None)
        if not isinstance(registry, Registry):
            rule = "a Scheduler, an AsyncScheduler, or what has its registry and declares"
            raise refused("app", app, "declares no schedules", rule=rule, fix="bench.adopt(app)")
        self._call_those_of(registry)
        for declared in app.declared:
            self.call("schedule put", **declared)
        listeners = getattr(app, "listeners", None)
        if listeners is not None:
            told: Observer = listeners.beside(self._name_of)
            self.loop.observers.append(told)

    def call(self, operation: str, /, **request: Any) -> Any:
        """Perform any operation here by its name: `bench.call("schedule pause", schedule="report")`."""
        context = Context(store=self.store, ids=self.ids, tell=self.loop.tell)
        return operations[operation](context, request)

    def tick(self) -> list[Fact]:
        """Passes through the rooms until nothing more is to do at this instant; gives back what happened."""
        began = len(self.facts)
        for _ in range(MOST_TICKS):
            self.target.finish_due()
            before = len(self.facts)
            seconds = self.loop.step()
            self.loop.renew_once(now=self.now)
            self.loop.launcher.keep_said(self.store, now=self.now)
            if seconds > 0 and len(self.facts) == before:
                return self.facts[began:]
        raise AssertionError(f"still busy after {MOST_TICKS} ticks at {self.now.isoformat()}")

    def advance(
        self, by: timedelta | str = ZERO, *, until: datetime | str | None = None, **parts: float
    ) -> list[Fact]:
        """Let time pass, stopping wherever anything is due: `bench.advance(hours=3)`, or `"3h"`.

        With `until` to an instant that is ahead: `bench.advance(until="2026-03-29T00:30:00Z")`.
        """
        ahead = ZERO if until is None else instant_of(until, field="until") - self.now
        began, end = len(self.facts), self.now + passing(by, parts) + passing(ahead, {})
        self._refuse_misspelt_scripts()
        self.tick()
        for _ in range(MOST_TICKS):
            upcoming = self._next_instant()
            if upcoming is None or upcoming > end:
                break
            self.clock.advance(max(upcoming - self.now, timedelta(microseconds=1)))
            self.tick()
        self.clock.advance(max(end - self.now, ZERO))
        self.tick()
        return self.facts[began:]

    def runs(self, name: str, *, limit: int = 1000) -> list[Run]:
        """Every row of a schedule, oldest first: those that ran and those that did not."""
        schedule_id = self.find(name)
        page = self.store.read(lambda tx: tx.find_runs(RunFilter(schedule_id=schedule_id, limit=limit)))
        return sorted(page.rows, key=lambda run: (run.planned_at, run.id))

    def attempts(self, name: str) -> list[Attempt]:
        """Every attempt of a schedule that ended, oldest first: when it began, how it ended, its result."""
        ids = [run.id for run in self.runs(name)]
        ended = self.store.read(lambda tx: tx.get_attempts(ids))
        return [attempt for run_id in ids for attempt in ended.get(run_id, ())]

    def result(self, name: str) -> Any:
        """What the last attempt of a schedule gave back."""
        attempts = self.attempts(name)
        return attempts[-1].result if attempts else None

    def standing(self, name: str) -> Standing:
        """Where a schedule stands."""
        schedule_id = self.find(name)
        return self.store.read(lambda tx: tx.get_schedules([schedule_id]))[schedule_id].standing

    def find(self, name: str) -> str:
        """The id of a schedule by its name."""
        found = self.store.read(lambda tx: tx.find_schedule("default", name))
        if found is None:
            raise self._unknown(name)
        return found

    def __repr__(self) -> str:
        names = self.store.read(lambda tx: schedule_names(tx, "default"))
        return f"<bench at {self.now.isoformat()}: {', '.join(names) or 'no schedules'}>"

    def _unknown(self, name: str, *, field: str = "name") -> NotFound:
        names = self.store.read(lambda tx: schedule_names(tx, "default"))
        return no_such("schedule", name, names, lister="print(bench)", field=field)

    def _done_by(self, name: str, target: AnyTarget | Callable[..., Any] | None) -> AnyTarget:
        if target is None:
            return Note(text=name)
        if not callable(target):
            return target
        own = Registry()
        own.add(target, name=name)
        self._call_those_of(own)
        return Call(name=name)

    def _call_those_of(self, registry: Registry) -> None:
        self._targets["call"] = self._calling
        self._calling.registries.append(registry)

    def _made(self, name: str, trigger: Any, target: AnyTarget, policies: dict[str, Any]) -> Schedule:
        made = self.ids.new("schedule", now=self.now)
        if isinstance(trigger, Trigger) and not any(isinstance(one, _WORDS) for one in policies.values()):
            when = anchored(cast("AnyTrigger", trigger), self.now)
            return Schedule(id=made, name=name, created_at=self.now, trigger=when, target=target, **policies)
        said = None if trigger is None else spelled_trigger(trigger)
        request = {"name": name, "target": encode(target), **worded(said, policies)}
        return decode_schedule(request, id=made, now=self.now)

    def _name_of(self, schedule_id: str) -> str:
        found = self.store.read(lambda tx: tx.get_schedules([schedule_id])).get(schedule_id)
        return found.schedule.name if found is not None else ""

    def _refuse_misspelt_scripts(self) -> None:
        """A script that nobody follows, while a schedule is called almost so, would be a test of nothing."""
        new = self.target.take_unplayed()
        known = set(self.store.read(lambda tx: schedule_names(tx, "default"))) if new else set()
        for name in sorted(new - known):
            if get_close_matches(name, known, n=1, cutoff=0.8):
                raise self._unknown(name, field="script")

    def _next_instant(self) -> datetime | None:
        due = [
            self.store.read(lambda tx: tx.next_wake()),
            self.store.read(lambda tx: tx.next_lease_end()),
            self.target.next_end(),
            self._next_renewal(),
        ]
        return min((instant for instant in due if instant is not None), default=None)

    def _next_renewal(self) -> datetime | None:
        """When the first lease under way has used up a third of its length."""
        moment = self.clock.monotonic()
        waits = [
            flown.lease_ends - moment - 2 * flown.lease.terms.lease.renew_every.total_seconds()
            for flown in self.loop.launcher.under_way()
            if not flown.stopping
        ]
        return self.now + timedelta(seconds=max(min(waits), 0.0)) if waits else None


def _counting() -> Any:
    """Ids that count instead of being random, so that a bench always gives the same ones."""
    count = 0

    def entropy(size: int) -> bytes:
        nonlocal count
        count += 1
        return (count << 16).to_bytes(size, "big")

    return entropy
