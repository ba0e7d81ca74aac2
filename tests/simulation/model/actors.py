"""Simulated processes: production engines, each on its own host that can be suspended and can crash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.simulation.model.clocks import EARLY_WORK_US, SECOND, SkewedClock
from tests.simulation.model.faulty_store import FaultyStore
from tests.simulation.model.seeded_random import SeededRandom
from tests.simulation.model.work import SimulatedTarget
from timewright.core.facts import Fact
from timewright.core.run.needs import ANYTHING, Offer
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.maintenance import DeadHolderCheck, Heartbeat, Pruner
from timewright.engine.tick import Tick, TickLimits
from timewright.errors import StoreError
from timewright.ids import TimedIds
from timewright.ledger.records.instances import FleetOffers, InstanceRecord
from timewright.operations import OperationContext
from timewright.operations.runs.at_start import StartedProcess, run_schedules_at_start

if TYPE_CHECKING:
    from tests.simulation.model.simulation import Simulation
    from tests.simulation.model.wakeups import PendingSnapshot

TARGET_KINDS = ("call", "http", "shell", "publish", "note", "workflow")
MAX_POLL_S = 5.0
ROUNDING_US = 10
MIN_POLL_S = 0.03
# How often an instance looks although nothing seems due; in production the longest sleep.
LOOK_INTERVAL_US = 15 * SECOND


class SimulatedActor:
    """One process on one host: its generation, its alarms, and whether it can run now."""

    is_user = False

    def __init__(self, sim: Simulation, name: str, rng: SeededRandom) -> None:
        self.sim = sim
        self.name = name
        self.rng = rng
        self.generation = 0
        self.alive = False
        self.suspended = 0
        self.busy: set[str] = set()
        self.deferred: list[tuple[str, Callable[[], None]]] = []
        self.partitioned_until = 0
        self.alarms: dict[str, int] = {}
        drift = rng.uniform(-2e-5, 2e-5)
        self.clock = SkewedClock(sim.time, skew=rng.random_micros(-20, 20), drift=drift)

    def start(self) -> None:
        """Start a new generation without any state of the last one."""
        self.generation += 1
        self.alive = True
        self.suspended = 0
        self.busy = set()
        self.deferred = []
        self.alarms = {}
        self.ids = TimedIds(self.rng.fork(f"ids {self.generation}").random_bytes)
        self.store = FaultyStore(self, self.sim.backend.store_for(self))
        self.on_start()

    def on_start(self) -> None:
        """Build the parts of this process."""

    def on_exit(self) -> None:
        """End what ends together with the process."""

    def on_death(self) -> None:
        """Note that the process has ended without a word."""

    def crash(self) -> None:
        """Crash: everything under way in this process is lost. It restarts after a while."""
        self.on_exit()
        self.on_death()
        self.alive = False
        self.generation += 1
        self.deferred = []
        self.sim.backend.close_for(self)
        self.sim.schedule(self.sim.time.at + self.rng.random_micros(0.5, 90), self.start)

    def set_alarm(self, slot: str, at: int, action: Callable[[], None]) -> None:
        """Call `action` at an instant, unless the slot is given another alarm meanwhile."""
        alarms, sim = self.alarms, self.sim
        at = max(at, sim.time.at)
        alarms[slot] = at

        def fire() -> None:
            if alarms.get(slot) == at:
                del alarms[slot]
                action()

        sim.schedule(at, fire, actor=self, slot=slot)

    def on_commit(self, pending: PendingSnapshot) -> None:
        """React to a commit: perhaps there is work sooner."""


class SimulatedWaker:
    """The engine's waker: waiting lets simulated time pass, waking sets an alarm."""

    def __init__(self, engine: SimulatedInstance) -> None:
        self._engine = engine

    def wait(self, seconds: float) -> bool:
        """Let time pass while this slot waits."""
        self._engine.sim.pass_time(int(seconds * SECOND), self._engine, frozen=False)
        return False

    def wake(self) -> None:
        """Tick soon."""
        self._engine.request_tick()


class SimulatedInstance(SimulatedActor):
    """An instance: the production loop, driven by alarms instead of threads."""

    def __init__(
        self, sim: Simulation, name: str, rng: SeededRandom, *, admits: bool = True, capacity: int = 5
    ) -> None:
        super().__init__(sim, name, rng)
        self.limits = TickLimits(batch=50, admits_schedules=admits)
        self.capacity = capacity
        self.seen_version = -1
        self._tries = 0

    def on_start(self) -> None:
        """Build a fresh instance with a new id."""
        sim = self.sim
        holder = self.ids.new("instance", now=sim.now())
        sim.holders[holder] = (self, self.generation)
        waker = SimulatedWaker(self)
        self.target = target = SimulatedTarget(self, holder)
        self.offer = offer = self._draw_offer()
        self.launcher = Launcher(
            dict.fromkeys(TARGET_KINDS, target),
            monotonic=self.clock.monotonic,
            wake=self.request_settle,
            capacity=self.capacity,
            offer=lambda: offer,
        )
        fleet = FleetOffers(lambda: offer)
        self.heartbeat = Heartbeat(
            self.store,
            holder,
            clock=self.clock,
            capacity=self.capacity,
            in_flight=self.launcher,
            offer=lambda: offer,
            fleet=fleet,
        )
        self.tick = Tick(
            self.store, self.launcher, ids=self.ids, holder=holder, limits=self.limits, fleet=fleet
        )
        keep = sim.scenario.keep_history
        self.loop = Loop(
            self.store,
            self.tick,
            self.launcher,
            clock=self.clock,
            waker=waker,
            observers=[self],
            lead_time=self.store.lead_time,
            pruner=Pruner(self.store, keep=keep)
            if keep is not None and self.limits.admits_schedules
            else None,
            dead_holders=DeadHolderCheck(self.store, holder, clock=self.clock, is_proven_dead=self._has_ended)
            if sim.scenario.functions
            else None,
        )
        # Settling has its own alarm, as it has its own thread in production.
        self.loop.settles_inline = False
        self.seen_version = -1
        self._tries = 0
        self.set_alarm("step", sim.time.at + self.rng.random_micros(0, 1), self.run_tick)

    def _has_ended(self, other: InstanceRecord) -> bool:
        """Whether the process of an instance has ended, as its host would say."""
        actor, generation = self.sim.holders[other.id]
        return actor.generation != generation or not actor.alive

    def _draw_offer(self) -> Offer:
        """What this version of the program offers: the first engine has all functions, others some."""
        functions = self.sim.scenario.functions
        if not functions:
            return ANYTHING
        self.set_alarm("look", self.sim.time.at + LOOK_INTERVAL_US, self.look_again)
        self.set_alarm("start", self.sim.time.at + 1, self.run_at_start)
        if self.name == "engine-0":
            return ANYTHING
        return Offer(functions=tuple(name for name in functions if self.rng.happens(0.5)))

    def run_at_start(self) -> None:
        """Run the schedules that run at a start; try again if the store fails, as in production."""
        context = OperationContext(store=self.store, ids=self.ids, notify=self.loop.notify_observers)
        own = StartedProcess(id=self.tick.holder, host=self.name, pid=self.generation)
        try:
            if run_schedules_at_start(context, own, self.offer, is_gone=lambda host, pid: False):
                self.sim.count("run at a start")
        except StoreError:
            self.set_alarm("start", self.sim.time.at + SECOND, self.run_at_start)

    def look_again(self) -> None:
        """Tick although nothing seems due, as after the longest sleep, and write a heartbeat."""
        self.seen_version = -1
        self.request_tick()
        self.set_alarm("look", self.sim.time.at + LOOK_INTERVAL_US, self.look_again)

    def request_tick(self) -> None:
        """Tick soon."""
        self.set_alarm("step", self.sim.time.at + self.rng.randrange(2_000), self.run_tick)

    def request_settle(self) -> None:
        """Settle soon, because work has finished."""
        self.set_alarm("settle", self.sim.time.at + self.rng.randrange(2_000), self.settle)

    def on_exit(self) -> None:
        """End the work inside the process; remote work continues."""
        self.target.on_exit()

    def on_death(self) -> None:
        """Tell the checker, which allows others to take the leases of this holder from now on."""
        self.sim.record_event("died", self.tick.holder)

    def notify(self, fact: Fact) -> None:
        """Record a fact."""
        self.sim.record_fact(self, fact)

    def run_tick(self) -> None:
        """Tick once, unless there is nothing to do here."""
        sim = self.sim
        if not self._has_work():
            return
        self.seen_version = sim.version
        self.busy.add("step")
        try:
            seconds = self.loop.step()
            if sim.scenario.functions:
                self.heartbeat.send_if_due()
                self.loop.replace_dead_holders()
        except Exception as error:  # noqa: BLE001  supervised as in production
            sim.record_error(self, error)
            seconds = self.loop.record_error(error)
            self.seen_version = -1
        finally:
            self.busy.discard("step")
        sim.steps += 1
        self._set_beat_alarms()
        if seconds <= MAX_POLL_S:
            wait = self.clock.to_true_micros(seconds) if seconds < MIN_POLL_S else self._poll(seconds)
            self.set_alarm("step", self._retry_at(sim.time.at + wait), self.run_tick)
        else:
            sim.wakeups.schedule_wakeups()

    def _retry_at(self, at: int) -> int:
        """Skip retries while the store is down: retry once shortly after it is back."""
        away = max(self.sim.store_down_until, self.partitioned_until)
        return at if at >= away else away + self.rng.randrange(int(MAX_POLL_S * SECOND))

    def settle(self) -> None:
        """Settle finished work beside the tick; retry if the store fails."""
        self.busy.add("settle")
        try:
            self.loop.settle_thread.settle_results()
            self._tries = 0
        except Exception as error:  # noqa: BLE001  supervised as in production
            self.sim.record_error(self, error)
            self._tries += 1
            wait = self.clock.to_true_micros(self.loop.record_error(error, self._tries))
            self.set_alarm("settle", self._retry_at(self.sim.time.at + wait), self.settle)
        finally:
            self.busy.discard("settle")
        self._set_beat_alarms()

    def renew(self) -> None:
        """Renew leases and read cancellations; after an error, retry at the next beat."""
        self.busy.add("renew")
        try:
            self.loop._renew()
        except Exception as error:  # noqa: BLE001  supervised as in production
            self.sim.record_error(self, error)
            self.set_alarm("renew", self.sim.time.at + SECOND, self.renew)
            return
        finally:
            self.busy.discard("renew")
        self._set_beat_alarms()

    def watch(self) -> None:
        """Check time limits and lost leases, which needs no store."""
        self.launcher.stop_expired()
        self._set_beat_alarms()

    def stop(self) -> None:
        """Stop gracefully, as for a new release, and start again after a while."""
        sim = self.sim
        if self.busy:
            # Production waits for the tick under way.
            self.set_alarm("stop", sim.time.at + SECOND, self.stop)
            return
        holder, in_doubt = self.tick.holder, self.tick.may_have_unknown_leases
        self.busy |= {"step", "settle", "renew"}
        wait = timedelta(seconds=self.rng.choice((0, 2, 20)))
        report = self.loop.stop(wait=wait, grace=timedelta(seconds=2))
        # A grant whose answer was lost is unknown to every process; its lease expires, and so does the lease
        # of a function that has not returned.
        if not self.loop.health.last_error and not in_doubt and not report.running_functions:
            sim.record_event("stopped", holder)
        sim.count("stopped gracefully")
        self.on_exit()
        self.on_death()
        self.alive = False
        self.generation += 1
        sim.backend.close_for(self)
        sim.schedule(sim.time.at + self.rng.random_micros(1, 60), self.start)

    def renew_soon(self) -> None:
        """Renew soon: a run that may be here was cancelled."""
        if len(self.launcher):
            self.set_alarm("renew", self.sim.time.at + self.rng.random_micros(0, 1), self.renew)

    def _poll(self, seconds: float) -> int:
        """Lengthen short polls: with many instances they would be most of the simulated work."""
        return int(seconds * SECOND) + (self.rng.randrange(int(MAX_POLL_S * SECOND)))

    def _has_work(self) -> bool:
        sim = self.sim
        if self.seen_version == -1 or self.tick.may_have_unknown_leases:
            return True
        now = sim.now_micros()
        pending = sim.pending(now=now)
        if (
            pending.deferred_at <= now
            or pending.lease_ends_at <= now
            or (self.limits.admits_schedules and pending.due_at <= now + EARLY_WORK_US)
        ):
            return True
        if pending.version == self.seen_version:
            return False
        waits = pending.ready and self.launcher.free > 0 and sim.wakeups.has_startable_run()
        return waits or self.rng.happens(sim.redundant_tick_rate)

    def _set_beat_alarms(self) -> None:
        """Set the renew and watch alarms, only while work is under way."""
        launcher, clock = self.launcher, self.clock
        if not len(launcher):
            return
        moment = clock.monotonic()
        under_way = launcher.in_flight_runs()
        renewal = min(f.lease_ends_at - f.lease.terms.lease.length.total_seconds() * 2 / 3 for f in under_way)
        # After a failed renewal, retry at the next beat, as production does.
        wait = renewal - moment if renewal > moment else 1.0
        self._set_beat_alarm("renew", clock.to_true_micros(wait), self.renew)
        if launcher._next_check_at <= moment:
            # A renewed lease has a new deadline only after `watch` has read it.
            launcher.stop_expired()
        if launcher._next_check_at - moment < 1e9:
            wait = max(launcher._next_check_at - moment, 0.001)
            self._set_beat_alarm("watch", clock.to_true_micros(wait), self.watch)

    def _set_beat_alarm(self, slot: str, wait: int, action: Callable[[], None]) -> None:
        """Set an alarm, unless one is set for the same instant within the rounding error."""
        at = self.sim.time.at + wait
        if abs(self.alarms.get(slot, 0) - at) > ROUNDING_US:
            self.set_alarm(slot, at, action)
