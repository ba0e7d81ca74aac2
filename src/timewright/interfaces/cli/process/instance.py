"""The process behind `up`, `serve` and `worker`: startup, signals and shutdown."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock, system_zone
from timewright.core.moments import format_duration
from timewright.core.sensitive_keys import redact_store_url
from timewright.errors import TimewrightError, UnsafeStore
from timewright.interfaces.cli.output.table import current_screen, escape_control
from timewright.interfaces.cli.output.times import local_zone, zone_name
from timewright.interfaces.cli.session import Session, inspect_store, store_path
from timewright.interfaces.cli.settings import SERVER_DEFAULTS
from timewright.interfaces.python.stop_signal import StopSignal, stop_on_signals
from timewright.operations import OperationContext, operations
from timewright.operations.health.pauses import open_pauses, resume_words
from timewright.ports import Store
from timewright.ports.host_info import package_version
from timewright.settings import Settings, is_loopback
from timewright.wiring import (
    HOSTED_STORE_VARIABLE,
    Instance,
    Watch,
    build_auth_cache,
    check_metrics_host,
    host_inspector,
    load_registry,
    new_registry,
    open_store,
)

if TYPE_CHECKING:
    from timewright.interfaces.cli.process.http_server import HttpServer
    from timewright.planner.planner_loop import Planner

Role = Literal["up", "serve", "worker"]

MIN_CLOCK = datetime(2024, 1, 1, tzinfo=UTC)
FORCED_STOP_S = 1.5
# A stop that takes this much longer than `stop_wait` is blocked, for example by output that is not read.
BLOCKED_STOP_S = 5.0
MAX_IMPORT_S = 10.0


class InstanceProcess:
    """One instance with its HTTP server and planner, from start to shutdown."""

    def __init__(
        self, session: Session, instance: Instance, *, server: HttpServer | None = None, runs: bool = True
    ) -> None:
        self._session = session
        self._instance = instance
        self._server = server
        self._runs = runs
        self._signals = 0
        self._stop_signal = StopSignal()
        self._problem = ""
        self._is_output_blocked = False
        self._planner: Planner | None = None

    @property
    def context(self) -> OperationContext:
        """The operation context of this instance."""
        return replace(self._instance.context(), namespace=self._session.namespace)

    def start(self) -> None:
        """Install the signal handlers and start the server, the engine and the planner."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._on_signal)
        if self._server is not None:
            self._session.print_note(*self._server.open(self._instance, engine=self._runs))
        if self._runs:
            self._instance.start()
        if self._planner is not None:
            self._planner.start()

    def enable_planner(self, settings: Settings) -> None:
        """Create the planner of the settings; `start` starts it."""
        from timewright.planner.planner_loop import build_planner

        self._planner = build_planner(
            self._instance.context(), settings, clock=SystemClock(), on_error=self._session.print_note
        )

    def run_until_stopped(self) -> int:
        """Wait for a signal, then stop gracefully; a second signal stops immediately."""
        while not self._stop_signal.wait():
            self._print_problem()
        left = len(self._instance.launcher)
        if left:
            wait = format_duration(self._instance.settings.stop_wait)
            self._print(
                f"stopping: {_plural(left, 'run')} in progress, waiting up to {wait}; Ctrl-C again stops now"
            )
        if self._instance.loop.health.errors_in_a_row:
            self._print("stopping: the store does not respond, so leases cannot be released")
        if self._server is not None:
            self._server.close()
        if self._planner is not None:
            self._planner.stop(wait=timedelta(seconds=FORCED_STOP_S))
        unfinished = self._instance.stop()
        if self._signals > 1:
            # The forced stop ends the process; let it print its message.
            threading.Event().wait(2 * FORCED_STOP_S)
        self._print(f"stopped — {unfinished or self._store_summary()}")
        self._instance.close()
        if self._is_output_blocked:
            # The interpreter would wait for its output streams.
            os._exit(0)
        return 0

    def _print(self, text: str) -> None:
        """Print without waiting for a reader: a full pipe must not keep the process from stopping."""
        printing = threading.Thread(target=self._session.print_note, args=(text,), daemon=True)
        printing.start()
        printing.join(FORCED_STOP_S)
        self._is_output_blocked = printing.is_alive()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._stop_signal.set()
        if self._signals <= 2:
            stop = self._end_blocked_stop if self._signals == 1 else self._force_stop
            threading.Thread(target=stop, daemon=True).start()
        if self._signals > 2:
            os._exit(130)

    def _end_blocked_stop(self) -> None:
        """End the process if it has not stopped long after `stop_wait`."""
        threading.Event().wait(self._instance.settings.stop_wait.total_seconds() + BLOCKED_STOP_S)
        release = threading.Thread(target=self._release_runs, daemon=True)
        release.start()
        release.join(FORCED_STOP_S)
        os._exit(1)

    def _force_stop(self) -> None:
        """Release the leases and end child processes within 1.5 s, then exit; other leases expire."""
        release = threading.Thread(target=self._release_runs, daemon=True)
        release.start()
        release.join(FORCED_STOP_S)
        left = "runs in progress are retried when their leases expire"
        self._print(f"stopped immediately — {left if release.is_alive() else self._store_summary()}")
        os._exit(130)

    def _release_runs(self) -> None:
        self._instance.loop.stop(wait=timedelta(0))
        self._instance.targets.close(grace=timedelta(0))

    def _print_problem(self) -> None:
        health = self._instance.loop.health
        problem = health.last_error if health.errors_in_a_row else self._policy_problem()
        if problem != self._problem:
            # Printed also with --quiet; a closed terminal must not stop the process.
            with suppress(OSError):
                click.echo(
                    f"error: {escape_control(problem)}; retrying" if problem else "recovered",
                    err=True,
                )
        self._problem = problem

    def _policy_problem(self) -> str:
        """Apply a changed policy file; returns why it is refused, or an empty string."""
        try:
            refusal = self._instance.apply_policy_file()
        except TimewrightError as error:
            return error.message
        return f"{refusal}; no queue entries are leased" if refusal else ""

    def _store_summary(self) -> str:
        try:
            return self._counts()
        except TimewrightError as error:
            return f"{_display_store(self._session.store_url)} does not respond: {error.message}"

    def _counts(self) -> str:
        counts = operations["health"](self.context, {})
        waiting = counts["ready_runs"] + counts["held_runs"]
        parts = [_plural(_count_schedules(self.context), "schedule")]
        parts += [f"{_plural(waiting, 'run')} waiting"] if waiting else []
        held = counts["leased_runs"]
        parts += [f"{_plural(held, 'run')} leased by others"] if held else []
        return f"{', '.join(parts)} and the history are kept in {_display_store(self._session.store_url)}"


def run_instance(session: Session, *, role: Role, app: str | None, given: Mapping[str, Any]) -> int:
    """Open the store, start the process of a role, and run until stopped."""
    began = SystemClock().monotonic()
    settings = settings_for(session, given)
    check_metrics_host(settings)
    info = inspect_store(session.store_url)
    registry = _functions(session, settings, app) if role != "serve" else new_registry()
    server = _http_server(session, settings) if role != "worker" else None
    store = open_store(session.store_url)
    _check_clock(store.now())
    # Without app functions, only our own commands start processes.
    isolated, own_process = len(registry) > 0, app is None and not len(registry)
    instance = _new_instance(
        session, settings, store, registry, server, isolated=isolated, own_process=own_process
    )
    process = InstanceProcess(session, instance, server=server, runs=role != "serve")
    _save_declared(process.context, app, instance_id=instance.instance_id)
    if role == "up" and settings.planner != "off":
        process.enable_planner(settings)
    about = f"{_display_store(session.store_url)} ({'existing' if info.exists else 'new'}, durable)"
    zone = settings.zone or zone_name(local_zone(store.now()))
    session.print_note(f"timewright {package_version()} · {info.engine} · {about} · zone {zone}")
    process.start()
    seconds = _startup_seconds(SystemClock().monotonic(), began)
    ready, *suggestions = _ready_message(session, process.context, hints=role == "up")
    session.print_note(
        f"ready in {seconds:.1f} s — {ready}", *suggestions, *_pause_notes(session, process.context)
    )
    return process.run_until_stopped()


def run_watch(session: Session, *, given: Mapping[str, Any], once: bool) -> int:
    """Open the store, look for incidents and send messages until stopped, or once."""
    settings = settings_for(session, given)
    store = open_store(session.store_url)
    _check_clock(store.now())
    instance = _new_instance(session, settings, store, new_registry(), None, isolated=False, own_process=True)
    watch = Watch(instance)
    try:
        if once:
            while watch.step():
                continue
            return 0
        stop_signal = stop_on_signals()
        session.print_note(f"watching {_display_store(session.store_url)}; Ctrl-C stops it")
        watch.run(lambda seconds: stop_signal.wait(timeout_s=seconds), on_error=session.print_note)
    finally:
        instance.free()
        instance.close()
    return 0


def settings_for(session: Session, given: Mapping[str, Any]) -> Settings:
    """Return the settings; if other machines can connect, HTTP targets may not call this one by default."""
    settings = session.settings(given, strict=True, base=SERVER_DEFAULTS)
    if is_loopback(settings.bind):
        return settings
    return session.settings(given, strict=True, base=replace(SERVER_DEFAULTS, local=False))


def _http_server(session: Session, settings: Settings) -> HttpServer:
    from timewright.interfaces.cli.process.http_server import HttpServer
    from timewright.interfaces.http.events import EventHub

    return HttpServer(session, settings, hub=EventHub())


def _new_instance(
    session: Session,
    settings: Settings,
    store: Store,
    registry: Any,
    server: HttpServer | None,
    *,
    isolated: bool,
    own_process: bool,
) -> Instance:
    return Instance(
        store,
        settings=settings,
        registry=registry,
        isolated=isolated,
        own_process=own_process,
        auth_cache=build_auth_cache(session.store_url, settings),
        inspect_host=host_inspector(session.store_url, settings, config=session.config),
        observers=[server.hub] if server is not None else [],
        own_ports=[server.server.port] if server is not None else [],
        own_addresses=server.addresses if server is not None else [],
        namespace=session.namespace,
    )


def _ready_message(session: Session, context: OperationContext, *, hints: bool) -> list[str]:
    """Return how many schedules there are, and a command to try next."""
    count = _count_schedules(context)
    if not count:
        text = "nothing scheduled yet"
        command = session.command("schedule create hello --every 5s --note 'hello'")
        return [f"{text}. Try, in another terminal:", f"  {command}"] if hints else [text]
    text = _plural(count, "schedule")
    request = {"state": "active", "order": "next", "limit": 1}
    for row in operations["schedule list"](context, request)["schedules"]:
        if row["next_at"]:
            screen = current_screen(context.now())
            at = f"{screen.short_time(row['next_at'])} ({screen.distance(row['next_at'])})"
            text = f"{text}, next {row['name']} {at}"
    command = session.command("run list --follow")
    return [f"{text}. Follow the runs in another terminal:", f"  {command}"] if hints else [text]


def _pause_notes(session: Session, context: OperationContext) -> list[str]:
    found = context.store.read(lambda tx: open_pauses(tx, context.namespace, now=context.now()))
    return [f"note: {one.describe()} is paused: {session.command(resume_words(one))}" for one in found]


def _functions(session: Session, settings: Settings, app: str | None) -> Any:
    """Return the registry with the functions of the app and of installed packages."""
    installed = settings.entry_points
    registry = _load_app(app, store_url=session.store_url) if app is not None else new_registry()
    registry.uses_entry_points = installed
    for name, why in (registry.load_entry_points() if installed else {}).items():
        session.print_note(f"note: function {name} of an installed package cannot be loaded: {why}")
    return registry


def _load_app(app: str, *, store_url: str) -> Any:
    """Load the registry of an app; its module is searched in the current directory too."""
    path = store_path(store_url)
    os.environ[HOSTED_STORE_VARIABLE] = store_url if path is None else str(path.absolute())
    current = str(Path.cwd())
    if current not in sys.path:
        sys.path.insert(0, current)
    return load_registry(app)


def _save_declared(context: OperationContext, app: str | None, *, instance_id: str) -> None:
    """Save the schedules that the app declares."""
    if app is None:
        return
    from timewright.interfaces.python.async_scheduler import AsyncScheduler
    from timewright.interfaces.python.scheduler import Scheduler

    module, _, path = app.partition(":")
    names = vars(sys.modules[module])
    found = [names[path]] if path in names else list(names.values())
    kinds = (Scheduler, AsyncScheduler)
    for scheduler in {id(one): one for one in found if isinstance(one, kinds)}.values():
        local = replace(context, system_zone=system_zone())
        scheduler.save_declarations(local, instance=instance_id)


def _check_clock(now: datetime) -> None:
    if now < MIN_CLOCK:
        raise UnsafeStore(
            f"the clock is wrong: {now:%Y-%m-%d}",
            field="clock",
            value=now.isoformat(),
            rule="the date must be after 2024-01-01",
            fix="set the clock of this machine and start again",
        )


def _count_schedules(context: OperationContext) -> int:
    return int(operations["schedule list"](context, {"limit": 1, "count": True})["total"])


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _display_store(url: str) -> str:
    path = store_path(url)
    if path is None:
        return redact_store_url(url)
    return str(path) if path.is_absolute() else f"./{path}"


def _startup_seconds(now: float, began: float) -> float:
    """Return the age of the process from /proc, else the time since `began`."""
    try:
        started = int(Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19])
        age = now - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now - began
    # In a container /proc may count from another start; ignore an implausible age.
    return age if now - began <= age <= now - began + MAX_IMPORT_S else now - began
