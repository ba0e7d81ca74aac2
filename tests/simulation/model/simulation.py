"""The simulation: one event heap, one true time, and all actors."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.simulation.coverage import RELEVANT_FACTS, clock_change_events, events_of_fact
from tests.simulation.faults.injector import CrashPoint, FaultInjector, ProcessCrashed
from tests.simulation.model.actors import SimulatedActor, SimulatedInstance
from tests.simulation.model.backends import StoreBackend
from tests.simulation.model.clocks import MINUTE, SECOND, SkewedClock, TrueTime
from tests.simulation.model.effects import Sinks
from tests.simulation.model.recording_transaction import RecordedEvent, RecordingTransaction
from tests.simulation.model.seeded_random import SeededRandom
from tests.simulation.model.wakeups import PendingSnapshot, WakeupScheduler
from tests.simulation.workload.scenarios import Scenario
from timewright.core.facts import Fact, RunAdmitted, RunSkipped
from timewright.core.moments import format_instant, from_micros, to_micros
from timewright.errors import TimewrightError
from timewright.stores.rows import split_bucket
from timewright.verification.checker import Violation
from timewright.verification.rows import SimulationEvent

MAX_NESTED_WAITS = 3
MAX_EVENTS_PER_SECOND = 5_000

_LIVE = (
    "SELECT ready_bucket, count(*) FROM runs WHERE state = 'leased' AND ready_bucket <> ''"
    " GROUP BY ready_bucket ORDER BY ready_bucket"
)
_LIMITS = "SELECT limit_key, capacity FROM limits ORDER BY limit_key"


# Recorded events that go to the checker as they are.
RECORDED_KINDS = frozenset({"leased", "renewed", "settled", "reclaimed", "refused", "cursor", "pruned"})

# Instant, sequence number, action, actor (None for the simulation itself), generation and slot.
ScheduledEvent = tuple[int, int, Callable[[], None], SimulatedActor | None, int, str]


class SimulationStalledError(AssertionError):
    """Many events happened without time passing, so the simulation would never end."""


class Simulation:
    """A fleet, its store and its faults, from one seed."""

    def __init__(
        self,
        scenario: Scenario,
        backend: StoreBackend,
        *,
        crash_point: CrashPoint | None = None,
        record_points: bool = False,
        wrap_transaction: Callable[[SimulatedActor, str, Any], RecordingTransaction] | None = None,
    ) -> None:
        self.scenario = scenario
        self.rng = SeededRandom(scenario.seed, "world")
        self.time = TrueTime(scenario.start)
        self.clock = SkewedClock(self.time)
        self.backend = backend
        self.backend.open(self.clock)
        self.faults = FaultInjector(
            self.rng.fork("faults"), crash_point=crash_point, record_points=record_points
        )
        self.sinks = Sinks()
        self.counts: Counter[str] = Counter()
        self.events: list[SimulationEvent] = []
        self._withdrawn_renewals: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.trace: list[tuple[int, str, Fact]] = []
        self.errors: Counter[str] = Counter()
        self.holders: dict[str, tuple[SimulatedActor, int]] = {}
        self.schedules: list[tuple[str, str]] = []
        self.pruned: set[str] = set()
        self.output_sizes: dict[tuple[str, int], int] = {}
        self.may_be_early: set[str] = set()
        self.violations: list[Violation] = []
        self.clock_steps: list[tuple[int, int]] = []
        self.long_waits: list[tuple[int, int]] = []
        self.zones: dict[str, ZoneInfo] = {}
        self.version = 0
        self.transactions = 0
        self.steps = 0
        self.store_down_until = 0
        self.max_wait = 0
        self.faults_are_over = False
        self.wakeups = WakeupScheduler(self)
        self._wrap_transaction = wrap_transaction
        self._heap: list[ScheduledEvent] = []
        self._seq = 0
        self._cancelled_holders: set[str] = set()
        self._depth = 0
        self._second = 0
        self._events_this_second = 0
        self._levels: dict[str, tuple[int, int]] = {}
        self._capacities: dict[str, int] | None = None
        self._read_at = self._read_under = 0
        self._store_micros = 0
        self.actors: list[SimulatedActor] = []
        self.engines: list[SimulatedInstance] = []
        self.other_actors: list[SimulatedActor] = []

    def add_actor(self, actor: SimulatedActor) -> None:
        """Add an actor."""
        self.actors.append(actor)
        if isinstance(actor, SimulatedInstance):
            self.engines.append(actor)
        else:
            self.other_actors.append(actor)

    # Time and events.

    def schedule(
        self, at: int, action: Callable[[], None], *, actor: SimulatedActor | None = None, slot: str = ""
    ) -> None:
        """Run an action at an instant."""
        self._seq += 1
        generation = 0 if actor is None else actor.generation
        heapq.heappush(self._heap, (at, self._seq, action, actor, generation, slot))

    def run_until(self, until: int) -> None:
        """Run every event due by then."""
        heap, time = self._heap, self.time
        while heap and heap[0][0] <= until:
            at, _, action, actor, generation, slot = heapq.heappop(heap)
            time.at = max(time.at, at)
            self._count_event()
            if actor is None:
                action()
            elif actor.generation == generation and actor.alive:
                self._perform(action, actor, generation, slot)
        time.at = max(time.at, until)

    def _count_event(self) -> None:
        """Fail if many events happen without time passing, because the simulation would never end."""
        second = self.time.at // SECOND
        if second != self._second:
            self._second, self._events_this_second = second, 0
        self._events_this_second += 1
        if self._events_this_second > MAX_EVENTS_PER_SECOND:
            raise SimulationStalledError(f"no time passes at {format_instant(from_micros(self.time.at))}")

    def pass_time(self, length: int, actor: SimulatedActor, *, frozen: bool) -> None:
        """Let other actors run while this one waits in the middle of something."""
        if self._depth >= MAX_NESTED_WAITS:
            # Too many nested waits: only advance the time, so the others run late.
            self.time.at += length
            return
        generation, began = actor.generation, self.time.at
        self._depth += 1
        actor.suspended += frozen
        try:
            self.run_until(began + length)
        finally:
            self._depth -= 1
        self._record_wait(self.time.at - began, meant=length)
        if actor.generation != generation:
            raise ProcessCrashed
        actor.suspended -= frozen
        self.run_deferred(actor)

    def _record_wait(self, waited: int, *, meant: int) -> None:
        """Record how long an actor waited, and whether another's suspension prolonged the wait."""
        self.max_wait = max(self.max_wait, waited)
        if waited - meant > MINUTE:
            now = self.now_micros()
            self.long_waits.append((now - waited, now))

    def _perform(self, action: Callable[[], None], actor: SimulatedActor, generation: int, slot: str) -> None:
        if actor.suspended or slot in actor.busy:
            actor.deferred.append((slot, action))
            return
        before = self.version
        try:
            action()
        except ProcessCrashed:
            if actor.generation == generation:
                actor.crash()
        if actor.deferred:
            self.run_deferred(actor)
        if self.version != before:
            self.notify_actors()

    def run_deferred(self, actor: SimulatedActor) -> None:
        """Run what was deferred while an actor was suspended or busy."""
        if actor.deferred and not actor.suspended:
            waiting, actor.deferred = actor.deferred, []
            for slot, action in waiting:
                self.schedule(self.time.at, action, actor=actor, slot=slot)

    def notify_actors(self) -> None:
        """Tell every actor about a commit."""
        pending = self.pending()
        self.wakeups.schedule_wakeups()
        for actor in self.other_actors:
            if actor.alive:
                actor.on_commit(pending)
        if self._cancelled_holders:
            asked, self._cancelled_holders = self._cancelled_holders, set()
            for engine in self.engines:
                if engine.alive and engine.tick.holder in asked:
                    engine.renew_soon()

    # The store and its clock.

    def now(self) -> datetime:
        """The store's clock."""
        return self.backend.now()

    def now_micros(self) -> int:
        """The store's clock in microseconds; cached, because many read it at the same instant."""
        at, skew = self.time.at, self.clock.skew
        if at != self._read_at or skew != self._read_under:
            # A store clock that equalled the host's, and was not stepped since, still equals it.
            was_free = self.backend.follows_host_clock and self._store_micros == self._read_at + skew
            is_free = was_free and skew == self._read_under
            self._store_micros = at + skew if is_free else to_micros(self.backend.now())
            self._read_at, self._read_under = at, skew
        return self._store_micros

    def true_time_of(self, instant: int) -> int:
        """The true instant at which the store's clock will show this one."""
        now = self.time.at
        if self.backend.shared_store().clock_doubt is not None:
            # A reading in doubt is not used: the store's clock goes on as it was.
            return max(now, now + instant - self.now_micros())
        return max(now, instant - self.clock.skew)

    def record_transaction(self, actor: SimulatedActor, name: str, tx: Any) -> RecordingTransaction:
        """Wrap a transaction to record its events."""
        now, early = self.now_micros(), self.may_be_early
        has_dependencies = bool(self.scenario.budgets)
        transaction = RecordingTransaction(
            tx, name=name, now=now, may_be_early=early, has_dependencies=has_dependencies
        )
        return (
            self._wrap_transaction(actor, name, transaction)
            if self._wrap_transaction is not None
            else transaction
        )

    def on_commit(self, transaction: RecordingTransaction) -> None:
        """Apply the recorded events of a committed transaction."""
        self.transactions += 1
        if not transaction.changed:
            return
        if transaction.only_renews:
            self.wakeups.leases_extended()
        else:
            self.version += 1
        at = self.now_micros()
        for event in transaction.events:
            kind, subject, fence, value, schedule_id, detail = event
            if kind not in RECORDED_KINDS:
                self._handle_event(event, at=at)
                continue
            if kind == "pruned":
                self.pruned.add(subject)
            self.events.append(
                SimulationEvent(
                    kind=kind,
                    at=at,
                    subject=subject,
                    fence=fence,
                    value=value,
                    schedule_id=schedule_id,
                    detail=detail,
                )
            )
        if transaction.counters:
            self.counts.update(transaction.counters)
        if transaction.touches_limits:
            self._capacities = None if transaction.sets_limits else self._capacities
            self._record_levels(at)

    def _handle_event(self, event: RecordedEvent, *, at: int) -> None:
        """Handle events that are not for the checker: cancellations, settlements and violations."""
        kind, subject, fence, value, schedule_id, detail = event
        if kind == "cancel requested":
            self._withdrawn_renewals.setdefault((subject, fence), []).append((len(self.events), value))
            self._cancelled_holders.add(detail)
        elif kind == "settled by its holder":
            if (subject, fence) in self.output_sizes:
                self._record_output(subject, fence, at=at)
        elif value and value <= at:
            # It was written before its instant and committed at it.
            self.counts["committed at its instant"] += 1
        else:
            rows = ({"id": subject, "fence": fence, "schedule_id": schedule_id},)
            self.violations.append(Violation(invariant=kind, message=f"run {subject} {detail}", rows=rows))

    def _record_output(self, run_id: str, fence: int, *, at: int) -> None:
        """Record how much of an attempt's output is stored when its result is."""
        found = self.backend.query(
            f"SELECT size FROM attempt_output WHERE run_id = '{run_id}' AND fence = {fence}"
        )
        size, capacity = (found[0][0] if found else 0), self.output_sizes.pop((run_id, fence))
        self.events.append(
            SimulationEvent(kind="output", at=at, subject=run_id, fence=fence, value=size, limit=capacity)
        )

    def effective_events(self) -> tuple[SimulationEvent, ...]:
        """The recorded events without withdrawn renewals.

        A cancelled run keeps its lease only for the grace, whatever its last renewal was.
        """
        return tuple(
            note
            for place, note in enumerate(self.events)
            if note.kind != "renewed"
            or not any(
                place < before and note.value > until
                for before, until in self._withdrawn_renewals.get((note.subject, note.fence), ())
            )
        )

    def _record_levels(self, at: int) -> None:
        """Record the live leases of every limit after a commit."""
        live, before = self.live_leases(), self._levels
        if not live.keys() <= before.keys():
            # A limit that was never set is created when it is first used.
            self._capacities = None
        self._levels = {
            key: (live.get(key, 0), capacity) for key, capacity in self.limit_capacities().items()
        }
        if self._levels == before:
            return
        for key, (held, capacity) in sorted(
            one for one in self._levels.items() if one[1] != before.get(one[0])
        ):
            # After a limit was lowered, more leases than its capacity are no violation while their number
            # does not rise.
            lowered = "lowered" if held <= before.get(key, (0, 0))[0] else ""
            event = SimulationEvent(
                kind="held", at=at, subject=key, value=held, limit=capacity, detail=lowered
            )
            self.events.append(event)

    @property
    def redundant_tick_rate(self) -> float:
        """How likely an instance ticks although there is nothing to do."""
        return self.faults.rates.redundant_tick

    def pending(self, *, now: int = 0) -> PendingSnapshot:
        """When something may be due; with `now`, expired leases are read again."""
        return self.wakeups.pending(now=now)

    def live_leases(self) -> dict[str, int]:
        """The live leases of every limit, counted from the runs, not from the limit holds."""
        live: dict[str, int] = {}
        for bucket, count in self.backend.query(_LIVE):
            for key in split_bucket(bucket)[1]:
                live[key] = live.get(key, 0) + count
        return live

    def limit_capacities(self) -> dict[str, int]:
        """The capacity of every limit; read again after one was set."""
        if self._capacities is None:
            self._capacities = dict(self.backend.query(_LIMITS))
        return self._capacities

    # Records.

    def count(self, what: str) -> None:
        """Count an event that a simulation should cover."""
        self.counts[what] += 1

    def record_event(self, kind: str, subject: str, **fields: Any) -> None:
        """Record an event for the checker that leaves no row."""
        self.events.append(SimulationEvent(kind=kind, at=self.now_micros(), subject=subject, **fields))

    def record_error(self, actor: SimulatedActor, error: Exception) -> None:
        """Record an error that an actor survived; an error that is not a TimewrightError is a violation."""
        text = f"{type(error).__name__}: {str(error)[:80]}"
        self.errors[text] += 1
        if not isinstance(error, TimewrightError) and self.errors[text] == 1:
            self.violations.append(Violation(invariant="error", message=f"{actor.name} raised {text}"))

    def add_schedule(self, namespace: str, name: str) -> None:
        """Remember a schedule's name for the simulated users."""
        if (namespace, name) not in self.schedules:
            self.schedules.append((namespace, name))

    def record_fact(self, actor: SimulatedActor, fact: Fact) -> None:
        """Keep a fact for the trace, and count the events that it shows."""
        kind = type(fact).__name__
        if kind == "TickFinished":
            return
        self.trace.append((self.time.at, actor.name, fact))
        self.counts[kind] += 1
        if type(fact) in RELEVANT_FACTS:
            for event in events_of_fact(fact, is_alive=self._is_alive):
                self.counts[event] += 1
            if isinstance(fact, RunSkipped | RunAdmitted) and fact.schedule_id in self.zones:
                self.counts.update(clock_change_events(fact.planned_at, self.zones[fact.schedule_id]))

    def _is_alive(self, holder: str) -> bool:
        actor, generation = self.holders.get(holder, (None, 0))
        return actor is not None and actor.alive and actor.generation == generation
