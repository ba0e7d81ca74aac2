"""The house: store, targets, engine and what observes them, joined to one instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from timewright.assembly.functions import check_target, new_registry
from timewright.assembly.places import announced, call_of, ear_of
from timewright.assembly.workshop import Workshop
from timewright.clocks import SystemClock
from timewright.core.facts import Fact
from timewright.core.run import Outcome
from timewright.core.shards import read_shard
from timewright.engine.duty import Duty
from timewright.engine.eve import Eve
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.presence import Presence
from timewright.engine.prune import Pruner
from timewright.engine.rest import EventWaker, stand_still
from timewright.engine.targets import Targets
from timewright.engine.tick import Limits, Tick
from timewright.engine.tidy import tidy
from timewright.ids import TimedIds
from timewright.ledger.policy_watch import PolicyWatch
from timewright.observe.watch import Watch
from timewright.operations.context import Context
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.redaction import Redaction
from timewright.ports import Clock, Ear, Launch, Observer, Store, Target
from timewright.ports.surroundings import Surroundings
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.targets.registry import Registry

LAST_WORD = timedelta(seconds=1)
# So many schedules are decided in the moments before an instant: a server takes about twice as long for each.
EVE_ON_FILE, EVE_ON_SERVER = 1000, 500


class House:
    """Everything one instance is made of."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        registry: Registry,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
        isolated: bool = False,
        own_process: bool = False,
        doorkeeper: Doorkeeper | None = None,
        own_ports: Sequence[int] = (),
        own_addresses: Sequence[str] = (),
        surroundings: Callable[[], Surroundings] | None = None,
        namespace: str = "default",
    ) -> None:
        self.doorkeeper = doorkeeper
        self.surroundings = surroundings
        self.settings = settings
        self.registry = registry
        self.clock = clock or SystemClock()
        self.ids = TimedIds()
        self.waker = EventWaker()
        self.instance = self.ids.new("instance", now=store.now())
        self.redaction = Redaction()
        self.watch = Watch(settings, clock=self.clock, redact=self.redaction.text)
        self.store = self.watch.timed(store)
        self.workshop = Workshop(
            self.store,
            settings=settings,
            registry=registry,
            clock=self.clock,
            isolated=isolated,
            own_process=own_process,
            doorkeeper=doorkeeper,
            redaction=self.redaction,
            own=(own_ports, own_addresses),
        )
        self.targets = Targets(self.workshop.makers(others=self._target), around=self._around)
        self.launcher = Launcher(self.targets, monotonic=self.clock.monotonic, wake=self.waker.wake)
        self.presence = Presence(
            self.store,
            self.instance,
            clock=self.clock,
            capacity=settings.capacity,
            work=self.launcher,
            admit=settings.admit,
            shard=settings.shard,
            functions=self._functions,
        )
        self.duty = Duty(
            self.store, holder=self.instance, admit=settings.admit, shard=read_shard(settings.shard)
        )
        self.policies = policies_of(settings, namespace=namespace, clock=self.clock)
        self.loop = self._engine(observers)
        self.watch.look_at(self.store, pulse=self.loop.pulse)

    def metrics_text(self) -> str:
        """Every number of this instance, as Prometheus reads it."""
        return self.watch.metrics_text()

    def context(self) -> Context:
        """What an operation needs to work on this house."""
        return Context(
            store=announced(self.store, also=self.waker.wake),
            ids=self.ids,
            doorkeeper=self.doorkeeper,
            settings=self.settings,
            policy_file=self.policies.look if self.policies is not None else None,
            surroundings=self.surroundings,
            trial=self.targets.try_once,
            check=partial(check_target, registry=self.registry),
            functions=self._functions,
            broken=lambda: self.registry.broken,
            tell=self.tell,
        )

    def tell(self, facts: Sequence[Fact]) -> None:
        """Tell the observers, and let the engine look: an edit may have moved something nearer."""
        self.loop.tell(facts)
        self.waker.wake()

    def keep_policies(self) -> str:
        """Put in force what the policy file says, if it has changed; gives back why it cannot be used."""
        if self.policies is None:
            return ""
        file = self.policies.keep(self.store)
        return file.refusal.message if file.refusal is not None else ""

    def start(self) -> None:
        """Begin to run what is due; what the policy file says is in force before anything is leased."""
        self.workshop.check()
        self.keep_policies()
        if self.registry.installed:
            self.registry.load_entry_points()
        self.watch.start()
        self.loop.start()

    def stop(self, *, wait: timedelta | None = None) -> str:
        """Stop gracefully, then free every thread, process and socket; says what was left undone."""
        ending = self.loop.stop(wait=self.settings.stop_wait if wait is None else wait)
        if not ending.trouble:
            self.duty.leave()
            self.presence.leave()
        self.free()
        return ending.in_words()

    def free(self) -> None:
        """Free every thread, process and socket; what is left was asked to stop and had its grace."""
        self.targets.close(grace=LAST_WORD)
        self.workshop.close(grace=LAST_WORD)
        self.watch.close()

    def ear(self) -> Ear | None:
        """What hears when another process writes into this store."""
        return ear_of(self.store)

    def close(self) -> None:
        """Give the store back."""
        self.store.close()

    def _engine(self, observers: Sequence[Observer]) -> Loop:
        store = self.store
        tick = Tick(
            store,
            self.launcher,
            ids=self.ids,
            holder=self.instance,
            limits=Limits(
                capacity=self.settings.capacity,
                batch=self.settings.batch,
                eve=EVE_ON_SERVER if call_of(store) is not None else EVE_ON_FILE,
            ),
            duty=self.duty,
            policies=self.policies,
        )
        return Loop(
            store,
            tick,
            self.launcher,
            clock=self.clock,
            waker=self.waker,
            observers=[*observers, *self.watch.observers],
            longest_rest=self.settings.longest_rest,
            pruner=Pruner(
                store,
                keep=self.settings.keep_history,
                keep_runs=self.settings.keep_runs,
                keep_bytes=self.settings.keep_bytes,
            ),
            ear=ear_of(store),
            call_others=call_of(store),
            presence=self.presence,
            eve=Eve(stand_still=stand_still, monotonic=self.clock.monotonic),
            tidy=tidy,
        )

    def _functions(self) -> frozenset[str]:
        return frozenset(one.name for one in self.registry)

    def _target(self, kind: str) -> Target:
        return self.targets[kind]

    def _around(self, kind: str, target: Target) -> Target:
        """The target, discreet about secrets, and traced if anyone traces."""
        from timewright.targets.discreet import Discreet

        return self.watch.around(kind, Discreet(target, self.redaction))


def policies_of(settings: Settings, *, namespace: str, clock: Clock) -> PolicyWatch | None:
    """The policy file that the settings name, for the queues of a namespace."""
    if not settings.policy_file:
        return None
    return PolicyWatch(settings.policy_file, namespace=namespace, monotonic=clock.monotonic)


def trial_on(
    store: Store, settings: Settings, *, doorkeeper: Doorkeeper | None = None
) -> Callable[[Launch], Outcome]:
    """How a target is tried where no instance runs: everything it needs is made for it, and freed."""

    def try_once(launch: Launch) -> Outcome:
        registry = new_registry(installed=settings.entry_points)
        house = House(store, settings=settings, registry=registry, doorkeeper=doorkeeper)
        try:
            return house.targets.try_once(launch)
        finally:
            house.free()

    return try_once
