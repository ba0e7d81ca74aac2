"""The embedded door: `Scheduler` in an application; `AsyncScheduler` stands beside it."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from msgspec.structs import replace

from timewright.assembly import (
    HOSTED,
    House,
    doorkeeper_for,
    is_inside_a_run,
    new_registry,
    open_store,
    path_of,
    surroundings_for,
)
from timewright.core.moments import as_duration, bounded
from timewright.core.target import Isolation
from timewright.doors.ending import Ending
from timewright.doors.nouns import Nouns
from timewright.doors.python_checks import (
    already_declared,
    check_options,
    name_for,
    no_such_name,
    not_kept_yet,
    read_settings,
    schedule_of,
    was_stopped,
)
from timewright.doors.python_events import Hearing, Listeners, is_telling
from timewright.doors.python_results import (
    PATIENCE,
    ended,
    is_over,
    read_patience,
    refuse_if_nobody_runs,
    rests,
)
from timewright.errors import NotAllowed, NotFound, StoreUnavailable, TimewrightError
from timewright.operations import operations
from timewright.operations.context import Context, together
from timewright.operations.declaring import When, declaration, spelled_trigger
from timewright.operations.in_order import upstream_first
from timewright.ports import Clock, Observer
from timewright.settings import Settings

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from timewright.doors.http.mounted import Mounted

F = TypeVar("F", bound=Callable[..., Any])


class Scheduler(Nouns, Hearing):
    """A scheduler inside this process; the same file, the same semantics, no server."""

    def __init__(
        self,
        store: str | os.PathLike[str] = "timewright.db",
        *,
        settings: Settings | None = None,
        namespace: str = "default",
        clock: Clock | None = None,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        check_options(store, clock=clock, observers=observers, namespace=namespace)
        self._settings = read_settings(settings)
        self.registry = new_registry(installed=self._settings.entry_points)
        self._host = os.environ.get(HOSTED, "")
        self._place = self._host or store
        self._namespace = namespace
        self._clock = clock
        self.listeners = Listeners(self._name_of)
        self._observers: tuple[Observer, ...] = (*observers, self.listeners)
        self._declared: dict[str, dict[str, Any]] = {}
        self._unkept: set[str] = set()
        self._goodbye = partial(_farewell, weakref.ref(self))
        self._lent: AbstractEventLoop | None = None
        self._inherited: list[House | None] = []
        self._at_end: list[Callable[[], object]] = []
        self._begin()
        if not self._host:
            self._open()
        super().__init__(self.call)

    def _begin(self) -> None:
        """Everything that belongs to one process: a fork has threads and connections of nobody."""
        self._process = os.getpid()
        self._ended = Ending()
        self._changing = threading.RLock()
        self._house: House | None = None
        self._started = False
        self._stopped = False

    @property
    def house(self) -> House:
        """What this scheduler is made of; where another process runs it, that one's store is opened late."""
        self._notice_fork()
        return self._house or self._open()

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process, and was not stopped."""
        return self._started and self._process == os.getpid()

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The schedules that this program declares, each as `schedule put` is asked for it.

        What another waits for comes before it.
        """
        return tuple(dict(request) for request in upstream_first(list(self._declared.values())))

    def call(self, operation: str, /, **request: Any) -> Any:
        """Perform any operation by its name: `app.call("schedule pause", schedule="refresh")`."""
        try:
            return operations[operation](self._context(), request)
        except NotFound as error:
            if error.field == "schedule" and error.value in self._unkept:
                raise not_kept_yet(str(error.value)) from None
            raise

    def schedule(
        self,
        trigger: When | None = None,
        *,
        name: str | None = None,
        isolation: Isolation = "inherit",
        **policies: Any,
    ) -> Callable[[F], F]:
        """Run the decorated function on this trigger; the schedule is kept when the scheduler starts.

        A length of time is an interval, an instant is once, and a list of triggers is one trigger. It may
        also be said by a word, as everywhere: `@app.schedule(cron="0 9 * * *", zone="Europe/Berlin")`.
        """
        when = spelled_trigger(trigger) if trigger is not None else None

        def keep(function: F) -> F:
            known = name_for(function, name)
            if known in self._unkept and not self.registry.is_again(known, function):
                raise already_declared(known)
            request = declaration(known, when, policies, settings=self._settings)
            given = None if "target" in policies else request["target"].get("args", {})
            self.registry.add(function, name=known, isolation=isolation, args=given)
            self._declare(known, request)
            return function

        return keep

    @overload
    def task(self, name: F) -> F: ...
    @overload
    def task(self, name: str | None = None, *, isolation: Isolation = "inherit") -> Callable[[F], F]: ...
    def task(self, name: Any = None, *, isolation: Isolation = "inherit") -> Any:
        """Let schedules call the decorated function by name; by itself it never runs."""
        return self.registry.register(name, isolation=isolation)

    def run_now(
        self,
        schedule: str | Callable[..., Any],
        *,
        payload: Any = None,
        force: bool = False,
        reason: str = "",
        timeout: timedelta | str = PATIENCE,
    ) -> Any:
        """Run a schedule now, wait until it has ended, and give back its result: `app.run_now("report")`.

        Its function may stand for its name. One that does not succeed is an error with the reason;
        `app.schedules.run` does not wait.
        """
        name = schedule_of(schedule, self.registry)
        if not self.is_running:
            refuse_if_nobody_runs(name, self.call("instance list"))
        asked = {"schedule": name, "payload": payload, "force": force, "reason": reason}
        read_patience(timeout)
        return self.result(self.call("schedule run", **asked)["run"]["id"], timeout=timeout)

    def result(self, run: str, *, timeout: timedelta | str = PATIENCE) -> Any:
        """Wait until a run has ended, and give back its result."""
        detail = self.call("run get", run=run)
        for rest in rests(read_patience(timeout)):
            if is_over(detail):
                break
            threading.Event().wait(rest)
            detail = self.call("run get", run=run)
        return ended(detail, timeout)

    def start(self) -> None:
        """Keep the declared schedules and begin to run what is due, on threads of our own."""
        self._notice_fork()
        with self._changing:
            if self._stopped:
                raise was_stopped()
            if self._host:
                raise NotAllowed(
                    "this scheduler is run by the process that reads it",
                    rule="timewright up --app runs what an app declares, on its own store",
                    fix='start it only under if __name__ == "__main__":',
                )
            if self._started:
                return
            self._keep_declared()
            if self._lent is not None:
                self.house.workshop.lend(self._lent)
            self._started = True
            self.house.start()
            atexit.register(self._goodbye)
            for name, why in self.registry.broken.items():
                log = logging.getLogger("timewright")
                log.warning("the function %r of an installed package cannot be used: %s", name, why)

    def stop(self, *, wait: timedelta | str | None = None) -> None:
        """Take no new work, wait for what is under way, give the rest back, and close the store.

        A function or a listener of ours may ask for it too: then it begins at once and ends after them.
        """
        patience = None if wait is None else bounded(as_duration(wait, field="wait"), field="wait")
        self._notice_fork()
        if is_inside_a_run() or is_telling() or threading.current_thread().name.startswith("timewright-"):
            threading.Thread(target=self.stop, kwargs={"wait": wait}, name="stopping-timewright").start()
            return
        with self._changing:
            atexit.unregister(self._goodbye)
            if self._started:
                undone = self.house.stop(wait=patience)
                if undone:
                    logging.getLogger("timewright").warning("stopped, but %s", undone)
            if not self._stopped and self._house is not None:
                self._house.close()
            self._started, self._stopped = False, True
        self._ended.say()
        for tell in self._at_end:
            tell()

    def run(self) -> None:
        """Start, and stay until interrupted, asked to end, or stopped; then stop gracefully.

        A second signal does not wait any longer.
        """
        mine = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if mine else ()
        before = {number: signal.signal(number, self._end) for number in numbers}
        try:
            self.start()
            while not self._ended.is_near():
                continue
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.stop()

    def asgi(self, **options: Any) -> Mounted:
        """The HTTP API as an ASGI application, to serve alone or to mount in a web application of yours."""
        from timewright.doors.http.mounted import Mounted

        return Mounted(self.house, self._context(), start=self.start, stop=self.stop, **options)

    def at_end(self, tell: Callable[[], object]) -> None:
        """Call this when the scheduler has stopped, on the thread that stopped it."""
        self._at_end.append(tell)

    def borrow(self, loop: AbstractEventLoop) -> None:
        """From its start on, await async functions and listeners on this loop instead of one of its own."""
        self._lent = self.listeners.loop = loop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped" if self._stopped else "not started"
        return (
            f"<Scheduler on {path_of(self._place) or 'PostgreSQL'}: {state}, {len(self._declared)} declared>"
        )

    if not TYPE_CHECKING:  # a checker knows what there is

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def _open(self) -> House:
        with self._changing:
            if self._house is None:
                self._house = House(
                    open_store(self._place, clock=self._clock),
                    settings=self._settings,
                    registry=self.registry,
                    clock=self._clock,
                    observers=self._observers,
                    doorkeeper=doorkeeper_for(self._place, self._settings),
                    surroundings=surroundings_for(self._place, self._settings),
                    namespace=self._namespace,
                )
                self._house.keep_policies()
            return self._house

    def _notice_fork(self) -> None:
        """In a forked process begin anew: what it inherited is its parent's, and is not even closed."""
        if self._process != os.getpid():
            self._inherited.append(self._house)
            self._begin()
            self._unkept = set(self._declared)

    def _context(self) -> Context:
        self._notice_fork()
        if self._stopped:
            raise was_stopped(StoreUnavailable, ", and its store is closed")
        return replace(self.house.context(), namespace=self._namespace)

    def _name_of(self, schedule_id: str) -> str:
        found = self.house.store.read(lambda tx: tx.get_schedules([schedule_id])).get(schedule_id)
        return found.schedule.name if found is not None else ""

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ended.say()

    def _keep_declared(self) -> None:
        """All of them or none: one that is refused leaves the store as it was."""

        def put(inside: Context) -> None:
            for declared in self.declared:
                if declared["name"] not in self._unkept:
                    continue
                try:
                    operations["schedule put"](inside, declared)
                except TimewrightError as error:
                    error.add_note(f"  in      the schedule {declared['name']!r}")
                    raise

        if self._unkept:
            together(self._context(), put)
        self._unkept.clear()

    def _declare(self, name: str, request: dict[str, Any]) -> None:
        self._declared[name] = request
        if self.is_running:
            self.call("schedule put", **request)
        else:
            self._unkept.add(name)


def _farewell(known: weakref.ref[Scheduler]) -> None:
    """A program that ends without a stop: what is under way is given back, and not left to its lease."""
    scheduler = known()
    if scheduler is None or not scheduler.is_running:
        return
    try:
        scheduler.stop(wait=timedelta(0))
    except Exception:
        logging.getLogger("timewright").exception("the program ended, and the scheduler could not be stopped")
