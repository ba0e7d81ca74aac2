"""Run a whole instance by hand in a test: advance the clock, tick, read the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Protocol, cast

from timewright.core.facts import Fact
from timewright.core.input.decode import decode_schedule
from timewright.core.input.encoding import encode
from timewright.core.input.input_errors import input_error
from timewright.core.moments import ZERO
from timewright.core.recurrence import Trigger
from timewright.core.recurrence.triggers import AnyTrigger, with_anchor, with_start
from timewright.core.run.run import Attempt, Run
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.core.target import AnyTarget, Call, Note
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.tick import Tick
from timewright.engine.waiting import EventWaker
from timewright.errors import NotFound
from timewright.ids import TimedIds
from timewright.ledger.replan import Actor, create
from timewright.operations import OperationContext, operations
from timewright.operations.definitions.programs import TriggerInput, encode_trigger, request_fields
from timewright.operations.lookup import not_found, schedule_names
from timewright.ports import Observer, RunFilter, Store, Target
from timewright.ports.schedules import SchedulesNamed
from timewright.stores.sqlite.store import SqliteStore
from timewright.targets.call.registry import FunctionRegistry
from timewright.testing.clock import ManualClock, parse_elapsed, to_instant
from timewright.testing.targets import InlineCallTarget, ScriptedTarget

TARGET_KINDS = ("call", "http", "shell", "publish", "note", "workflow", "deliver")
MAX_TICKS = 100_000
_SHORTHAND_TYPES = (str, int, dict, list)
DEFAULT_START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


class App(Protocol):
    """An object with registered functions that declares schedules for them, as a `Scheduler` does."""

    registry: FunctionRegistry

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The declared schedules, each as a request of `schedule put`."""
        ...


class Bench:
    """An engine, a store in memory, a clock that moves only when told, and targets that follow a script."""

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
        if clock is not None and start is not None and to_instant(start, field="start") != clock.now():
            fix = "omit start, or pass it to the clock: ManualClock(start)"
            raise input_error(
                "start", start, "conflicts with clock", rule="a clock has its own start", fix=fix
            )
        self.clock = clock or ManualClock(DEFAULT_START if start is None else start)
        self.store: Store = store or SqliteStore(":memory:", clock=self.clock)
        self.ids = ids or TimedIds(_counting_entropy())
        self.target = ScriptedTarget(self.clock)
        self.facts: list[Fact] = []
        self._capacity = capacity
        self._calling = InlineCallTarget(scripted=self.target)
        waker = EventWaker()
        self._targets: dict[str, Target] = dict.fromkeys(TARGET_KINDS, self.target)
        launcher = Launcher(self._targets, monotonic=self.clock.monotonic, wake=waker.wake, capacity=capacity)
        self._tick = Tick(self.store, launcher, ids=self.ids, holder=name)
        self.loop = Loop(self.store, self._tick, launcher, clock=self.clock, waker=waker, observers=[self])

    @property
    def now(self) -> datetime:
        """The current instant of the bench's clock."""
        return self.clock.now()

    def notify(self, fact: Fact) -> None:
        """Append the fact to `facts`."""
        self.facts.append(fact)

    def twin(self, name: str) -> Bench:
        """Return a second instance on the same store and clock, with its own scripts.

        It runs only when ticked.
        """
        return Bench(store=self.store, clock=self.clock, capacity=self._capacity, name=name, ids=self.ids)

    def schedule(
        self,
        name: str,
        trigger: TriggerInput | None = None,
        *,
        target: AnyTarget | Callable[..., Any] | None = None,
        **policies: Any,
    ) -> Schedule:
        """Create a schedule now. Its target is a note unless `target` is a target or a function.

        Trigger and policies take every form that `@app.schedule` takes.
        """
        schedule = self._build_schedule(name, trigger, self._resolve_target(name, target), policies)
        return create(self.store, [schedule], by=Actor(name="bench"), now=self.now)[0].schedule

    def adopt(self, app: App) -> None:
        """Create the schedules that a scheduler declares, and call its functions inside `tick`.

        A schedule with a script follows its script instead. Event listeners of the scheduler are called.
        """
        registry = getattr(app, "registry", None)
        if not isinstance(registry, FunctionRegistry):
            rule = "a Scheduler, an AsyncScheduler, or an object with `registry` and `declared`"
            raise input_error("app", app, "declares no schedules", rule=rule, fix="bench.adopt(app)")
        self._add_functions(registry)
        for declared in app.declared:
            self.call("schedule put", **declared)
        listeners = getattr(app, "listeners", None)
        if listeners is not None:
            observer: Observer = listeners.shared_with(self._name_of)
            self.loop.observers.append(observer)

    def call(self, operation: str, /, **request: Any) -> Any:
        """Run any operation by its name: `bench.call("schedule pause", schedule="report")`."""
        context = OperationContext(store=self.store, ids=self.ids, notify=self.loop.notify_observers)
        return operations[operation](context, request)

    def tick(self) -> list[Fact]:
        """Tick until nothing more is due at this instant; return the facts that happened."""
        began = len(self.facts)
        for _ in range(MAX_TICKS):
            self.target.finish_due()
            before = len(self.facts)
            seconds = self.loop.step()
            self.loop.renew_leases(now=self.now)
            self.loop.launcher.write_output(self.store, now=self.now)
            if seconds > 0 and len(self.facts) == before and not self.loop.launcher.results:
                return self.facts[began:]
        raise AssertionError(f"still busy after {MAX_TICKS} ticks at {self.now.isoformat()}")

    def advance(
        self, by: timedelta | str = ZERO, *, until: datetime | str | None = None, **parts: float
    ) -> list[Fact]:
        """Advance the clock by a duration, stopping wherever anything is due: `bench.advance(hours=3)`, or
        `"3h"`.

        With `until`, advance to an instant: `bench.advance(until="2026-03-29T00:30:00Z")`.
        """
        ahead = ZERO if until is None else to_instant(until, field="until") - self.now
        began, end = len(self.facts), self.now + parse_elapsed(by, parts) + parse_elapsed(ahead, {})
        self._refuse_misspelt_scripts()
        self.tick()
        for _ in range(MAX_TICKS):
            upcoming = self._next_instant()
            if upcoming is None or upcoming > end:
                break
            self.clock.advance(max(upcoming - self.now, timedelta(microseconds=1)))
            self.tick()
        self.clock.advance(max(end - self.now, ZERO))
        self.tick()
        return self.facts[began:]

    def runs(self, name: str, *, limit: int = 1000) -> list[Run]:
        """Return every run of a schedule, oldest first, skipped ones included."""
        schedule_id = self.find(name)
        page = self.store.read(lambda tx: tx.find(RunFilter(schedule_id=schedule_id, limit=limit)))
        return sorted(page.rows, key=lambda run: (run.planned_at, run.id))

    def attempts(self, name: str) -> list[Attempt]:
        """Return every finished attempt of a schedule, oldest first."""
        ids = [run.id for run in self.runs(name)]
        ended = self.store.read(lambda tx: tx.get_run_rows(Attempt, ids))
        return [attempt for run_id in ids for attempt in ended.get(run_id, ())]

    def result(self, name: str) -> Any:
        """Return the result of a schedule's last attempt."""
        attempts = self.attempts(name)
        return attempts[-1].result if attempts else None

    def progress(self, name: str) -> ScheduleProgress:
        """Return the progress of a schedule: its state, cursor and next instant."""
        schedule_id = self.find(name)
        return self.store.read(lambda tx: tx.get_schedules([schedule_id]))[schedule_id].progress

    def find(self, name: str) -> str:
        """Return the id of a schedule by its name."""
        found = self.store.read(lambda tx: tx.select(SchedulesNamed("default", [name])))
        if not found:
            raise self._unknown_schedule(name)
        return found[0].id

    def __repr__(self) -> str:
        names = self.store.read(lambda tx: schedule_names(tx, "default"))
        return f"<bench at {self.now.isoformat()}: {', '.join(names) or 'no schedules'}>"

    def _unknown_schedule(self, name: str, *, field: str = "name") -> NotFound:
        names = self.store.read(lambda tx: schedule_names(tx, "default"))
        return not_found("schedule", name, names, list_command="print(bench)", field=field)

    def _resolve_target(self, name: str, target: AnyTarget | Callable[..., Any] | None) -> AnyTarget:
        if target is None:
            return Note(text=name)
        if not callable(target):
            return target
        own = FunctionRegistry()
        own.add(target, name=name)
        self._add_functions(own)
        return Call(name=name)

    def _add_functions(self, registry: FunctionRegistry) -> None:
        self._targets["call"] = self._calling
        self._calling.registries.append(registry)

    def _build_schedule(
        self, name: str, trigger: Any, target: AnyTarget, policies: dict[str, Any]
    ) -> Schedule:
        made = self.ids.new("schedule", now=self.now)
        if isinstance(trigger, Trigger) and not any(
            isinstance(one, _SHORTHAND_TYPES) for one in policies.values()
        ):
            start, when = policies.get("start_at"), cast("AnyTrigger", trigger)
            when = with_anchor(when, self.now) if start is None else with_start(when, start)
            return Schedule(id=made, name=name, created_at=self.now, trigger=when, target=target, **policies)
        spec = None if trigger is None else encode_trigger(trigger)
        request = {"name": name, "target": encode(target), **request_fields(spec, policies)}
        return decode_schedule(request, id=made, now=self.now)

    def _name_of(self, schedule_id: str) -> str:
        found = self.store.read(lambda tx: tx.get_schedules([schedule_id])).get(schedule_id)
        return found.schedule.name if found is not None else ""

    def _refuse_misspelt_scripts(self) -> None:
        """Refuse a script whose name no schedule has but a similar one does: the test would check nothing."""
        new = self.target.pop_unused_scripts()
        known = set(self.store.read(lambda tx: schedule_names(tx, "default"))) if new else set()
        for name in sorted(new - known):
            if get_close_matches(name, known, n=1, cutoff=0.8):
                raise self._unknown_schedule(name, field="script")

    def _next_instant(self) -> datetime | None:
        due = [
            self.store.read(lambda tx: tx.read_pending_work().wake_at),
            self.store.read(lambda tx: tx.read_pending_work(with_lease_end=True).lease_expires_at),
            self.target.next_end(),
            self._next_deadline(),
        ]
        return min((instant for instant in due if instant is not None), default=None)

    def _next_deadline(self) -> datetime | None:
        """When the first lease under way has used a third of its length, or work that stops is given up."""
        moment = self.clock.monotonic()
        waits = [
            (
                flown.give_up_at
                if flown.stop_reason
                else flown.lease_ends_at - 2 * flown.lease.terms.lease.renew_every.total_seconds()
            )
            - moment
            for flown in self.loop.launcher.in_flight_runs()
            if not flown.stop_reason or flown.give_up_at < math.inf
        ]
        return self.now + timedelta(seconds=max(min(waits), 0.0)) if waits else None


def _counting_entropy() -> Any:
    """Return a counting source of id bytes, so that a bench always creates the same ids."""
    count = 0

    def entropy(size: int) -> bytes:
        nonlocal count
        count += 1
        return (count << 16).to_bytes(size, "big")

    return entropy
