"""Builds one instance: store, targets, engine and telemetry."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING

from timewright.clocks import SystemClock
from timewright.core.facts import Fact
from timewright.core.run.run import Outcome
from timewright.core.schedule.shards import parse_shard
from timewright.core.target import Call
from timewright.engine.constants import CHECK_INTERVAL
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.maintenance import DeadHolderCheck, Heartbeat, Pruner
from timewright.engine.pending_work import AdmissionScope
from timewright.engine.tick import Tick, TickLimits
from timewright.engine.waiting import EventWaker
from timewright.errors import StoreError
from timewright.ids import TimedIds
from timewright.ledger.queues.policies import PolicyFileWatcher
from timewright.ledger.records.instances import FleetOffers
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.context import OnStart, OperationContext
from timewright.operations.text_safety import SecretRedactor
from timewright.ports import ChangeListener, Clock, Launch, Observer, Store, Target
from timewright.ports.host_info import HostInfo
from timewright.ports.store import SessionLocks
from timewright.settings import Settings
from timewright.telemetry.telemetry import Telemetry
from timewright.wiring.metrics_port import (
    check_metrics_host,
    check_remote_key,
    is_private,
    metrics_for,
    metrics_tls,
)
from timewright.wiring.offer import OfferSource
from timewright.wiring.outbox import Outbox
from timewright.wiring.process_identity import is_proven_dead, read_own_identity
from timewright.wiring.store_urls import (
    artifact_store_of,
    change_listener_of,
    notifier_of,
    with_notifications,
)
from timewright.wiring.target_factory import (
    LazyTargets,
    TargetFactory,
    check_payload,
    check_target,
    new_registry,
)

if TYPE_CHECKING:
    from timewright.targets.call.registry import FunctionRegistry

CLOSE_GRACE = timedelta(seconds=1)


class Instance:
    """The parts of one running scheduler, connected to each other."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        registry: FunctionRegistry,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
        isolated: bool = False,
        own_process: bool = False,
        is_embedded: bool = False,
        auth_cache: AuthCache | None = None,
        own_ports: Sequence[int] = (),
        own_addresses: Sequence[str] = (),
        inspect_host: Callable[[], HostInfo] | None = None,
        namespace: str = "default",
    ) -> None:
        guard = getattr(store, "clock_guard", None)
        if guard is not None:
            guard.max_step = settings.max_clock_step
        self.auth_cache = auth_cache
        self.inspect_host = inspect_host
        self.settings = settings
        self.isolated = isolated
        self.registry = registry
        self.clock = clock or SystemClock()
        self.ids = TimedIds()
        self.waker = EventWaker()
        self.instance_id = self.ids.new("instance", now=store.now())
        self.redaction = SecretRedactor()
        self.telemetry = Telemetry(
            settings, clock=self.clock, redact=self.redaction.redact_text, is_embedded=is_embedded
        )
        self.store = self.telemetry.attach(store)
        self.artifacts = artifact_store_of(store, settings)
        self.target_factory = TargetFactory(
            self.store,
            settings=settings,
            registry=registry,
            clock=self.clock,
            isolated=isolated,
            own_process=own_process,
            auth_cache=auth_cache,
            redaction=self.redaction,
            own=(own_ports, own_addresses),
            artifacts=self.artifacts,
        )
        self.targets = LazyTargets(
            self.target_factory.factories(others=self._find_target), wrap=self._wrap_target
        )
        offers = OfferSource(settings, registry, isolated=isolated)
        self._offer = offers.current
        self.fleet = FleetOffers(offers.current)
        self.launcher = Launcher(
            self.targets,
            monotonic=self.clock.monotonic,
            wake=self.waker.wake,
            offer=offers.current,
            slots=offers.slot_limits(),
            capacity=settings.capacity,
        )
        self.process = read_own_identity()
        self._sessions = store if isinstance(store, SessionLocks) else None
        self.heartbeat = Heartbeat(
            self.store,
            self.instance_id,
            clock=self.clock,
            capacity=settings.capacity,
            in_flight=self.launcher,
            admit=settings.admit,
            shard=settings.shard,
            offer=offers.current,
            fleet=self.fleet,
            free_mb=partial(_free_mb, getattr(store, "path", "")),
            process=self.process,
            sessions=self._sessions,
        )
        self.admission_scope = AdmissionScope(
            self.store, holder=self.instance_id, admit=settings.admit, shard=parse_shard(settings.shard)
        )
        self.policies = policy_file_watcher(settings, namespace=namespace, clock=self.clock)
        self.outbox = Outbox(
            self.context, store_path=getattr(store, "path", ""), monotonic=self.clock.monotonic
        )
        self._stopping = threading.Event()
        self._start_thread: threading.Thread | None = None
        self.loop = self._build_loop(observers)
        self.telemetry.register_live_metrics(self.store, health=self.loop.health)
        self.telemetry.report_outages(self.loop.health)

    def metrics_text(self) -> str:
        """The metrics of this instance in the Prometheus text format."""
        return self.telemetry.metrics_text()

    def _scrape(self, authorization: str) -> str:
        return metrics_for(self.context(), self.metrics_text(), authorization)

    def context(self) -> OperationContext:
        """The context for operations on this instance."""
        return OperationContext(
            store=with_notifications(self.store, wake=self.waker.wake),
            ids=self.ids,
            auth_cache=self.auth_cache,
            settings=self.settings,
            policy_file=self.policies.read if self.policies is not None else None,
            host_info=self.inspect_host,
            run_target_test=self.targets.launch_and_wait,
            check_target=partial(check_target, registry=self.registry),
            check_payload=partial(check_payload, registry=self.registry),
            known_functions=self._function_names,
            broken_functions=lambda: self.registry.broken_entry_points,
            notify=self.notify_observers,
            artifacts=self.artifacts,
        )

    def notify_observers(self, facts: Sequence[Fact]) -> None:
        """Notify observers and wake the engine, because an edit may have made something due earlier."""
        self.loop.notify_observers(facts)
        self.waker.wake()

    def apply_policy_file(self) -> str:
        """Apply the policy file if it has changed. Returns an error message, or "" if there is none."""
        if self.policies is None:
            return ""
        file = self.policies.apply(self.store)
        return file.error.message if file.error is not None else ""

    def start(self) -> None:
        """Start the engine, after applying the policy file."""
        self.target_factory.check()
        check_metrics_host(self.settings)
        if not is_private(self.settings):
            check_remote_key(self.context(), field="metrics_host")
        self.apply_policy_file()
        if self.registry.uses_entry_points:
            self.registry.load_entry_points()
        self.telemetry.start(self._scrape, tls=metrics_tls(self.settings))
        if self.isolated:
            self.launcher.build_targets([Call])
        self.loop.start()
        try:
            self._run_at_start()
        except StoreError:
            self._start_thread = threading.Thread(
                target=self._retry_at_start, name="timewright-start", daemon=True
            )
            self._start_thread.start()
        self.outbox.start()

    def _retry_at_start(self) -> None:
        """Run the schedules at the start as soon as the store can be reached again."""
        while not self._stopping.wait(CHECK_INTERVAL.total_seconds()):
            with suppress(StoreError):
                self._run_at_start()
                return

    def _run_at_start(self) -> None:
        """Run the schedules that run at the start of the first instance that can."""
        from timewright.operations.runs.at_start import StartedProcess, run_schedules_at_start

        own = StartedProcess(id=self.instance_id, host=platform.node(), pid=os.getpid())
        run_schedules_at_start(self.context(), own, self._offer(), is_gone=_has_ended)

    def stop(self, *, wait: timedelta | None = None) -> str:
        """Stop gracefully, then free all resources. Returns a description of unfinished work."""
        self._stopping.set()
        if self._start_thread is not None:
            self._start_thread.join()
        self.outbox.stop()
        report = self.loop.stop(wait=self.settings.stop_wait if wait is None else wait)
        if not report.store_error:
            self.admission_scope.release_leadership()
            self.heartbeat.send_stopped()
        self.free()
        return report.describe()

    def free(self) -> None:
        """Free all threads, processes and sockets. Running work has already been asked to stop."""
        self.targets.close(grace=CLOSE_GRACE)
        self.target_factory.close(grace=CLOSE_GRACE)
        self.telemetry.close()

    def change_listener(self) -> ChangeListener | None:
        """The listener for writes by other processes; None if the store has none."""
        return change_listener_of(self.store)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _build_loop(self, observers: Sequence[Observer]) -> Loop:
        store = self.store
        tick = Tick(
            store,
            self.launcher,
            ids=self.ids,
            holder=self.instance_id,
            limits=TickLimits(batch=self.settings.batch),
            scope=self.admission_scope,
            policies=self.policies,
            fleet=self.fleet,
        )
        return Loop(
            store,
            tick,
            self.launcher,
            clock=self.clock,
            waker=self.waker,
            observers=[*observers, *self.telemetry.observers],
            max_sleep=self.settings.max_sleep,
            pruner=Pruner(
                store,
                keep=self.settings.keep_history,
                keep_runs=self.settings.keep_runs,
                keep_bytes=self.settings.keep_bytes,
                sweep_files=self._sweeper(),
            ),
            change_listener=change_listener_of(store),
            notify_others=notifier_of(store),
            heartbeat=self.heartbeat,
            dead_holders=DeadHolderCheck(
                store,
                self.instance_id,
                clock=self.clock,
                is_proven_dead=partial(is_proven_dead, own=self.process),
                sessions=self._sessions,
            ),
            lead_time=getattr(store, "lead_time", None),
        )

    def _sweeper(self) -> Callable[[], int] | None:
        if self.artifacts is None:
            return None
        from timewright.targets.artifacts.store import ArtifactSweeper

        return ArtifactSweeper(self.artifacts, self.store, time=SystemClock().now).run

    def _function_names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.registry)

    def _find_target(self, kind: str) -> Target:
        return self.targets[kind]

    def _wrap_target(self, kind: str, target: Target) -> Target:
        """Wrap a target with secret redaction and tracing."""
        from timewright.targets.redacting import RedactingTarget

        return self.telemetry.wrap_target(kind, RedactingTarget(target, self.redaction))


def _has_ended(host: str, pid: int) -> bool:
    """Whether a process of this machine has ended; of another machine we cannot know."""
    if not pid or host != platform.node() or os.name != "posix":
        return False
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _free_mb(path: str) -> int | None:
    """Free space where a file store is, in MiB; None for a server and in memory."""
    try:
        return disk_usage(Path(path).parent).free // 1024**2 if path and path != ":memory:" else None
    except OSError:
        return None


def policy_file_watcher(settings: Settings, *, namespace: str, clock: Clock) -> PolicyFileWatcher | None:
    """The watcher of the policy file in the settings, for the queues of a namespace."""
    if not settings.policy_file:
        return None
    return PolicyFileWatcher(settings.policy_file, namespace=namespace, monotonic=clock.monotonic)


def target_tester(
    store: Store, settings: Settings, *, auth_cache: AuthCache | None = None
) -> Callable[[Launch, OnStart | None], Outcome]:
    """Return a function that tests a target without a running instance."""

    def run_test(launch: Launch, on_start: OnStart | None) -> Outcome:
        registry = new_registry(use_entry_points=settings.entry_points)
        instance = Instance(store, settings=settings, registry=registry, auth_cache=auth_cache)
        try:
            return instance.targets.launch_and_wait(launch, on_start)
        finally:
            instance.free()

    return run_test
