"""A whole house by hand: move the clock, tick, look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from timewright.core.decoding import names_of
from timewright.core.facts import Fact
from timewright.core.moments import ZERO, as_duration
from timewright.core.run import Run
from timewright.core.schedule import Schedule, Standing
from timewright.core.target import AnyTarget, Note
from timewright.core.triggers import AnyTrigger, Every, anchored
from timewright.core.vocabulary import decode, decode_schedule
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.rest import EventWaker
from timewright.engine.tick import Limits, Tick
from timewright.errors import NotFound
from timewright.ids import TimedIds
from timewright.ledger.replan import By, create
from timewright.operations import Context, operations
from timewright.ports import RunFilter, Store, Target
from timewright.stores.sqlite import SqliteStore
from timewright.targets.registry import Registry
from timewright.testing.clock import ManualClock
from timewright.testing.targets import CallingTarget, ScriptedTarget

KINDS = ("call", "http", "shell", "publish", "note", "workflow")
MOST_TICKS = 100_000
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
        start: datetime = START,
        store: Store | None = None,
        clock: ManualClock | None = None,
        capacity: int = 100,
        name: str = "bench",
    ) -> None:
        self.clock = clock or ManualClock(start)
        self.store: Store = store or SqliteStore(":memory:", clock=self.clock)
        self.ids = TimedIds(_counting())
        self.target = ScriptedTarget(self.clock)
        self.facts: list[Fact] = []
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

    def schedule(
        self,
        name: str,
        trigger: AnyTrigger | str | timedelta,
        *,
        target: AnyTarget | None = None,
        **policies: Any,
    ) -> Schedule:
        """Keep a schedule made now; a note is what it does unless a target is given.

        The trigger may be its text or a length of time, and policies the words for them.
        """
        schedule = Schedule(
            id=self.ids.new("schedule", now=self.now),
            name=name,
            created_at=self.now,
            trigger=anchored(_trigger(trigger), self.now),
            target=target or Note(text=name),
            **_policies(policies, now=self.now),
        )
        return create(self.store, [schedule], by=By(actor="bench"), now=self.now)[0].schedule

    def adopt(self, app: App) -> None:
        """Keep the schedules that a scheduler declares, and call its functions, here and in no time.

        A schedule with a script follows its script instead.
        """
        self._targets["call"] = CallingTarget(app.registry, scripted=self.target)
        context = Context(store=self.store, ids=self.ids, tell=self.loop.tell)
        for declared in app.declared:
            operations["schedule put"](context, declared)

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

    def advance(self, by: timedelta | str = ZERO, **parts: float) -> list[Fact]:
        """Let time pass, stopping wherever anything is due: `bench.advance(hours=3)`, or `"3h"`."""
        began, end = len(self.facts), self.now + as_duration(by, field="by") + timedelta(**parts)
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

    def standing(self, name: str) -> Standing:
        """Where a schedule stands."""
        schedule_id = self.find(name)
        return self.store.read(lambda tx: tx.get_schedules([schedule_id]))[schedule_id].standing

    def find(self, name: str) -> str:
        """The id of a schedule by its name."""
        found = self.store.read(lambda tx: tx.find_schedule("default", name))
        if found is None:
            raise NotFound(f"no schedule named {name!r} on this bench", field="name", value=name)
        return found

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


def _trigger(when: AnyTrigger | str | timedelta) -> AnyTrigger:
    if isinstance(when, timedelta):
        return Every(when)
    found: AnyTrigger = decode(when, AnyTrigger, field="trigger") if isinstance(when, str) else when
    return found


def _policies(given: dict[str, Any], *, now: datetime) -> dict[str, Any]:
    """The same with every word as the value it means, which a schedule does not ask about by itself."""
    said = {name: value for name, value in given.items() if isinstance(value, str | int | dict | list)}
    if not said:
        return given
    if isinstance(said.get("retry"), int):
        said["retry"] = {"max_attempts": said["retry"]}
    read = decode_schedule({"name": "bench", "manual": True, "note": "x", **said}, id="sch_bench", now=now)
    meant = {name: getattr(read, name) for name in names_of(said, Schedule)}
    return {name: value for name, value in given.items() if name not in said} | meant
