"""`Scheduler`: a scheduler inside an application."""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import signal
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from msgspec.structs import replace

from timewright.clocks import system_zone
from timewright.core.moments import as_duration, check_duration
from timewright.core.sensitive_keys import redact_store_url
from timewright.core.target import Isolation
from timewright.errors import NotFound, StoreUnavailable, TimewrightError
from timewright.interfaces.program import program_beside_python
from timewright.interfaces.python.agent_tools import AgentMethods
from timewright.interfaces.python.checks import (
    already_declared,
    check_may_start,
    check_options,
    checked_program,
    checked_settings,
    name_for,
    not_saved_yet,
    schedule_name,
    stopped_error,
    unknown_attribute,
)
from timewright.interfaces.python.events import EventDecorators, Listeners, is_inside_listener
from timewright.interfaces.python.inside import TransactionMethods
from timewright.interfaces.python.resources import Resources, own_copy
from timewright.interfaces.python.results import (
    DEFAULT_TIMEOUT,
    is_finished,
    poll_intervals,
    require_live_instance,
    result_of,
    timeout_seconds,
)
from timewright.interfaces.python.spelling import spell_as_keywords
from timewright.interfaces.python.stop_signal import StopSignal, stop_after_run, stop_at_exit, stop_previous
from timewright.interfaces.python.web import WebMethods
from timewright.interfaces.python.workflow_builder import DefinitionDecorators
from timewright.operations import operations
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.definitions.programs import (
    EditRule,
    TriggerInput,
    build_declaration,
    encode_trigger,
    save_declarations,
    sort_by_dependency,
)
from timewright.ports import Clock, Observer
from timewright.settings import Settings
from timewright.wiring import (
    HOSTED_STORE_VARIABLE,
    Instance,
    build_auth_cache,
    host_inspector,
    is_inside_run,
    new_registry,
    open_store,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from timewright.interfaces.python.resource_methods import ScheduleFields

_LOGGER = logging.getLogger("timewright")
F = TypeVar("F", bound=Callable[..., Any])


class Scheduler(
    Resources, EventDecorators, DefinitionDecorators, WebMethods, TransactionMethods, AgentMethods
):
    """A scheduler that runs inside this process, without a server.

    Declared schedules belong to the program `name`. With `declares_all`, what no live instance of the program
    declares any more is archived at the start. `edits="refuse"` refuses edits of them by hand.
    """

    opens_at_once = True
    """Whether a store that cannot be opened is refused when the object is made, or on first use."""

    def __init__(
        self,
        store: str | os.PathLike[str] = "timewright.db",
        *,
        settings: Settings | None = None,
        namespace: str = "default",
        name: str = "",
        declares_all: bool = False,
        edits: EditRule = "warn",
        clock: Clock | None = None,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        check_options(store, clock=clock, observers=observers, namespace=namespace)
        stop_previous(self, f"{os.fspath(store)}\n{namespace}\n{name}")
        self.program = checked_program(name, declares_all=declares_all, edits=edits)
        self._settings = checked_settings(settings)
        self.registry = new_registry(use_entry_points=self._settings.entry_points)
        self._host = os.environ.get(HOSTED_STORE_VARIABLE, "")
        self._store_url = self._host or store
        self._store_name = redact_store_url(os.fspath(self._store_url))
        self._namespace = namespace
        self._system_zone = system_zone()
        self._clock = clock
        self.listeners = Listeners(self._name_of)
        self._observers: tuple[Observer, ...] = (*observers, self.listeners)
        self._declared: dict[str, dict[str, Any]] = {}
        self._definitions: dict[tuple[str, str], dict[str, Any]] = {}
        self._unsaved: set[str] = set()
        self._valid_shapes: set[str] = set()
        self._stop_at_exit = partial(stop_at_exit, weakref.ref(self))
        self._event_loop: AbstractEventLoop | None = None
        self._inherited: list[Instance | None] = []
        self._stop_callbacks: list[Callable[[], object]] = []
        self._reset_process_state()
        if not self._host and self.opens_at_once:
            self._open()
        super().__init__(self.call)

    def _reset_process_state(self) -> None:
        """Create the state that belongs to one process; threads and connections do not survive a fork."""
        self._process = os.getpid()
        self._stop_signal = StopSignal()
        self._lock = threading.RLock()
        self._instance: Instance | None = None
        self._started = self._stopped = False

    @property
    def instance(self) -> Instance:
        """The instance behind this scheduler; opened on first use if another process hosts it."""
        self._detect_fork()
        return self._instance or self._open()

    @property
    def store_url(self) -> str:
        """The store as it was given, a path or a URL."""
        return os.fspath(self._store_url)

    @property
    def is_running(self) -> bool:
        """Whether it is started in this process and not stopped."""
        return self._started and self._process == os.getpid()

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The declared schedules as requests of `schedule put`, upstream schedules first."""
        return tuple(dict(request) for request in sort_by_dependency(list(self._declared.values())))

    def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation by its name: `app.call("doctor")`. The answer is a typed value."""
        try:
            return own_copy(operations[operation].perform_payload(self._context(), request))
        except TimewrightError as error:
            if isinstance(error, NotFound) and error.field == "schedule" and error.value in self._unsaved:
                raise not_saved_yet(str(error.value)) from None
            spell_as_keywords(error, operation)
            raise

    def schedule(
        self,
        trigger: TriggerInput | None = None,
        *,
        name: str | None = None,
        isolation: Isolation = "inherit",
        **fields: Unpack[ScheduleFields],
    ) -> Callable[[F], F]:
        """Run the decorated function on this trigger; the schedule is saved when the scheduler starts.

        A timedelta is an interval, a datetime is a one-time trigger, and a list combines triggers. Keywords
        work too: `@app.schedule(cron="0 9 * * *", zone="Europe/Berlin")`. `help(app.schedules.put)` lists all
        fields; `args` are the arguments of the function.
        """
        policies: dict[str, Any] = {**fields}
        if callable(policies.get("after")):
            policies["after"] = schedule_name(policies["after"], self.registry)
        when = encode_trigger(trigger) if trigger is not None else None

        def declare(function: F) -> F:
            schedule = name_for(function, name)
            if schedule in self._unsaved and not self.registry.is_redefinition(schedule, function):
                raise already_declared(schedule)
            request = build_declaration(
                schedule, when, policies, settings=self._settings, valid_shapes=self._valid_shapes
            )
            args = None if "target" in policies else request["target"].get("args", {})
            by_hand = when in ("manual", {"kind": "manual"}) or "manual" in policies
            self.registry.add(function, name=schedule, isolation=isolation, args=args, args_later=by_hand)
            self._declare(schedule, request)
            return function

        return declare

    @overload
    def task(self, name: F) -> F: ...
    @overload
    def task(self, name: str | None = None, *, isolation: Isolation = "inherit") -> Callable[[F], F]: ...
    def task(self, name: Any = None, *, isolation: Isolation = "inherit") -> Any:
        """Register the decorated function so that schedules can call it by name."""
        return self.registry.register(name, isolation=isolation)

    def run_now(
        self,
        schedule: str | Callable[..., Any],
        *,
        payload: Any = None,
        force: bool = False,
        reason: str = "",
        timeout: timedelta | str = DEFAULT_TIMEOUT,
    ) -> Any:
        """Run a schedule, by name or function, now; wait for the run to end and return its result.

        Raises if the run does not succeed. `app.schedules.run` does not wait.
        """
        name = schedule_name(schedule, self.registry)
        if not self.is_running:
            require_live_instance(name, self.call("instance list"))
        request = {"schedule": name, "payload": payload, "force": force, "reason": reason}
        timeout_seconds(timeout)
        return self.result(self.call("schedule run", **request).run.id, timeout=timeout)

    def result(self, run: str, *, timeout: timedelta | str = DEFAULT_TIMEOUT) -> Any:
        """Wait for a run to end and return its result."""
        detail = self.call("run get", run=run)
        for interval in poll_intervals(timeout_seconds(timeout)):
            if is_finished(detail):
                break
            threading.Event().wait(interval)
            detail = self.call("run get", run=run)
        return result_of(detail, timeout)

    def start(self) -> None:
        """Save the declared schedules and start to run due schedules in background threads."""
        # Not possible any more while the program ends, when the first run may start.
        import concurrent.futures.thread  # noqa: F401

        self._detect_fork()
        with self._lock:
            if self._stopped:
                raise stopped_error()
            check_may_start(hosted=bool(self._host))
            if self._started:
                return
            self._save_declared()
            if self._event_loop is not None:
                self.instance.target_factory.use_loop(self._event_loop)
            self._started = True
            self.instance.start()
            atexit.register(self._stop_at_exit)
            self._log_start()

    def stop(self, *, wait: timedelta | str | None = None) -> None:
        """Take no new work, wait for runs in progress, release the rest, and close the store.

        Called from a scheduled function or a listener, it returns immediately and stops in a background
        thread.
        """
        timeout = None if wait is None else check_duration(as_duration(wait, field="wait"), field="wait")
        self._detect_fork()
        if (
            is_inside_run()
            or is_inside_listener()
            or threading.current_thread().name.startswith("timewright-")
        ):
            threading.Thread(target=self.stop, kwargs={"wait": wait}, name="stopping-timewright").start()
            return
        with self._lock:
            atexit.unregister(self._stop_at_exit)
            if self._started:
                unfinished = self.instance.stop(wait=timeout)
                if unfinished:
                    _LOGGER.warning("stopped on %s, but %s", self._store_name, unfinished)
                else:
                    _LOGGER.info("stopped on %s", self._store_name)
            if not self._stopped and self._instance is not None:
                self._instance.close()
            self._started, self._stopped = False, True
        self._stop_signal.set()
        for callback in self._stop_callbacks:
            callback()

    def run(self) -> None:
        """Start and block until a signal or `stop()`, then stop gracefully; a second Ctrl-C hurries it."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
        previous = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            self.start()
            while not self._stop_signal.wait():
                continue
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            stop_after_run(self)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call `callback` after the scheduler has stopped, in the thread that stopped it."""
        self._stop_callbacks.append(callback)

    def use_event_loop(self, loop: AbstractEventLoop) -> None:
        """Run async functions and listeners on this event loop instead of an own one."""
        self._event_loop = self.listeners.loop = loop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped" if self._stopped else "not started"
        return f"<Scheduler on {self._store_name}: {state}, {len(self._declared)} declared>"

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name)

    def _open(self) -> Instance:
        with self._lock:
            if self._instance is None:
                self._instance = Instance(
                    open_store(self._store_url, clock=self._clock),
                    settings=self._settings,
                    registry=self.registry,
                    clock=self._clock,
                    observers=self._observers,
                    is_embedded=True,
                    auth_cache=build_auth_cache(self._store_url, self._settings),
                    inspect_host=host_inspector(self._store_url, self._settings),
                    namespace=self._namespace,
                )
                self._instance.apply_policy_file()
            return self._instance

    def _detect_fork(self) -> None:
        """In a forked process create new state; the inherited instance belongs to the parent."""
        if self._process != os.getpid():
            self._inherited.append(self._instance)
            self._reset_process_state()
            self._unsaved = set(self._declared)

    def _context(self) -> OperationContext:
        self._detect_fork()
        if self._stopped:
            raise stopped_error(StoreUnavailable, "; its store is closed")
        return replace(self.instance.context(), namespace=self._namespace, system_zone=self._system_zone)

    def _name_of(self, schedule_id: str) -> str:
        found = self.instance.store.read(lambda tx: tx.get_schedules([schedule_id])).get(schedule_id)
        return found.schedule.name if found is not None else ""

    def _log_start(self) -> None:
        schedules = f"{len(self._declared)} declared schedule{'' if len(self._declared) == 1 else 's'}"
        look = f"{program_beside_python()} now --store {shlex.quote(self._store_name)}"
        _LOGGER.info("started on %s with %s; to look at it: %s", self._store_name, schedules, look)
        for name, why in self.registry.broken_entry_points.items():
            _LOGGER.warning("function %r of an installed package cannot be loaded: %s", name, why)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_signal.set()

    def save_declarations(self, context: OperationContext, *, instance: str) -> None:
        """Save all that is declared in one transaction; an invalid part leaves the store unchanged."""

        def save(nested: OperationContext) -> None:
            for (operation, _), request in sorted(self._definitions.items()):
                operations[operation].perform_payload(nested, request)
            save_declarations(nested, self.program, self._declared, instance=instance)

        in_transaction(context, save)

    def _save_declared(self) -> None:
        if self._unsaved or self._definitions or self.program.declares_all:
            self.save_declarations(self._context(), instance=self.instance.instance_id)
        self._unsaved.clear()

    def _declare(self, name: str, request: dict[str, Any]) -> None:
        self._declared[name] = request
        if not self.is_running:
            self._unsaved.add(name)
            return
        own = self.instance.instance_id
        save_declarations(self._context(), self.program, self._declared, instance=own, only=name)
