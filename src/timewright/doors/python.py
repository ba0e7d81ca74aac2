"""The embedded door: `Scheduler` in an application, `AsyncScheduler` in async code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from msgspec.structs import replace

from timewright.assembly import HOSTED, House, doorkeeper_for, new_registry, open_store, surroundings_for
from timewright.core import facts as told
from timewright.core.facts import Fact
from timewright.core.names import check_name
from timewright.core.target import Isolation
from timewright.doors.declaring import When, declaration, spelled_trigger
from timewright.doors.ending import Ending
from timewright.doors.nouns import AsyncNouns, Nouns
from timewright.errors import Conflict, NotAllowed, NotFound, TimewrightError
from timewright.operations import operations
from timewright.operations.context import Context, together
from timewright.operations.in_order import upstream_first
from timewright.ports import Clock, Observer
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.doors.http.mounted import Mounted

F = TypeVar("F", bound=Callable[..., Any])
Listener = Callable[[Fact], object]

EVENTS: dict[str, tuple[type[Fact], ...]] = {
    "started": (told.AttemptStarted,),
    "completed": (told.RunSucceeded,),
    "failed": (told.RunWillRetry, told.RunFailed, told.RunParked),
    "exhausted": (told.RunFailed, told.RunParked),
    "skipped": (told.RunSkipped, told.OccurrencesDropped),
    "cancelled": (told.RunCancelled,),
    "parked": (told.RunParked, told.ScheduleParked),
    "lost": (told.FactsLost,),
}


class Listeners:
    """Hands each fact to those who listen for its kind, in order; one that raises spoils nobody else's."""

    name = "a listener"

    def __init__(self) -> None:
        self._listening: list[tuple[tuple[type[Fact], ...], Listener]] = []
        self.kinds: tuple[type[Fact], ...] = (told.FactsLost,)

    def add(self, kinds: tuple[type[Fact], ...], listener: Listener) -> None:
        """Let one more listen."""
        self._listening.append((kinds, listener))
        self.kinds += kinds

    def note(self, fact: Fact) -> None:
        """Call everyone who wants to hear of it; the first error is raised when all were called."""
        errors: list[BaseException] = []
        for kinds, listener in self._listening:
            if isinstance(fact, kinds):
                try:
                    listener(fact)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - a listener is somebody else's code
                    errors.append(error)
        if errors:
            raise errors[0]


class Scheduler(Nouns):
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
        self._settings = settings or Settings()
        self.registry = new_registry(installed=self._settings.entry_points)
        self._host = os.environ.get(HOSTED, "")
        self._place = self._host or store
        self._namespace = namespace
        self._clock = clock
        self._listeners = Listeners()
        self._observers: tuple[Observer, ...] = (*observers, self._listeners)
        self._declared: dict[str, dict[str, Any]] = {}
        self._ended = Ending()
        self._changing = threading.RLock()
        self._house: House | None = None
        self._started = False
        self._stopped = False
        if not self._host:
            self._open()
        super().__init__(self.call)

    @property
    def house(self) -> House:
        """What this scheduler is made of; where another process runs it, that one's store is opened late."""
        return self._house or self._open()

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The schedules that were declared and are not kept yet, each as `schedule put` is asked for it.

        What another waits for comes before it.
        """
        return tuple(dict(request) for request in upstream_first(list(self._declared.values())))

    def call(self, operation: str, /, **request: Any) -> Any:
        """Perform any operation by its name: `app.call("schedule pause", schedule="refresh")`."""
        return operations[operation](self._context(), request)

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
            known = check_name(name if name is not None else getattr(function, "__name__", ""))
            self._refuse_twice(known)
            request = declaration(known, when, policies, settings=self._settings)
            self.registry.add(function, name=known, isolation=isolation)
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

    def on(self, event: str) -> Callable[[Listener], Listener]:
        """Call the decorated function with every fact of one kind, after it is true: `@app.on("failed")`."""
        if event not in EVENTS:
            known = ", ".join(EVENTS)
            raise NotFound(f"no event {event!r}", field="event", value=event, rule=known, fix="one of these")

        def keep(listener: Listener) -> Listener:
            self._listeners.add(EVENTS[event], listener)
            return listener

        return keep

    def on_completed(self, listener: Listener) -> Listener:
        """Call this after every run that succeeded."""
        return self.on("completed")(listener)

    def on_failed(self, listener: Listener) -> Listener:
        """Call this after every attempt that failed."""
        return self.on("failed")(listener)

    def on_exhausted(self, listener: Listener) -> Listener:
        """Call this when a run has used its attempts up."""
        return self.on("exhausted")(listener)

    def start(self) -> None:
        """Keep the declared schedules and begin to run what is due, on threads of our own."""
        with self._changing:
            if self._stopped:
                raise NotAllowed(
                    "this scheduler was stopped",
                    rule="stop closes the store, and is the end",
                    fix="make a new Scheduler",
                )
            if self._host:
                raise NotAllowed(
                    "this scheduler is run by the process that reads it",
                    rule="timewright up --app runs what an app declares, on its own store",
                    fix='start it only under if __name__ == "__main__":',
                )
            if self._started:
                return
            self._keep_declared()
            self._started = True
            self.house.start()
            for name, why in self.registry.broken.items():
                log = logging.getLogger("timewright")
                log.warning("the function %r of an installed package cannot be used: %s", name, why)

    def stop(self, *, wait: timedelta | None = None) -> None:
        """Take no new work, wait for what is under way, give the rest back, and close the store.

        A function or a listener of ours may ask for it too: then it begins at once and ends after them.
        """
        if threading.current_thread().name.startswith("timewright-"):
            threading.Thread(target=self.stop, kwargs={"wait": wait}, name="stopping-timewright").start()
            return
        with self._changing:
            if self._started:
                undone = self.house.stop(wait=wait)
                if undone:
                    logging.getLogger("timewright").warning("stopped, but %s", undone)
            if not self._stopped and self._house is not None:
                self._house.close()
            self._started, self._stopped = False, True
        self._ended.say()

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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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

    def _context(self) -> Context:
        return replace(self.house.context(), namespace=self._namespace)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ended.say()

    def _keep_declared(self) -> None:
        """All of them or none: one that is refused leaves the store as it was."""

        def put(inside: Context) -> None:
            for declared in self.declared:
                try:
                    operations["schedule put"](inside, declared)
                except TimewrightError as error:
                    error.add_note(f"  in      the schedule {declared['name']!r}")
                    raise

        if self._declared:
            together(self._context(), put)
        self._declared.clear()

    def _refuse_twice(self, name: str) -> None:
        if name in self._declared:
            raise Conflict(
                f"a schedule is already declared as {name!r}",
                field="name",
                value=name,
                rule="a name means one schedule, and what was declared first would be lost",
                fix="give one of them another name=, or one schedule a list of triggers",
            )

    def _declare(self, name: str, request: dict[str, Any]) -> None:
        self._declared[name] = request
        if self._started:
            self.call("schedule put", **self._declared.pop(name))


class AsyncScheduler(AsyncNouns):
    """The same for async code: every method that waits is awaited, on a thread that is not the loop's."""

    def __init__(self, store: str | os.PathLike[str] = "timewright.db", **options: Any) -> None:
        super().__init__(self.call)
        self.scheduler = Scheduler(store, **options)
        self.registry = self.scheduler.registry
        self.schedule = self.scheduler.schedule
        self.task = self.scheduler.task
        self.on = self.scheduler.on
        self.on_completed = self.scheduler.on_completed
        self.on_failed = self.scheduler.on_failed
        self.on_exhausted = self.scheduler.on_exhausted

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The schedules that were declared and are not kept yet, each as `schedule put` is asked for it."""
        return self.scheduler.declared

    async def call(self, operation: str, /, **request: Any) -> Any:
        """Perform any operation by its name."""
        return await asyncio.to_thread(lambda: self.scheduler.call(operation, **request))

    def asgi(self, **options: Any) -> Mounted:
        """The HTTP API as an ASGI application, to serve alone or to mount in a web application of yours."""
        return self.scheduler.asgi(**options)

    async def start(self) -> None:
        """Keep the declared schedules and begin to run what is due, on threads of our own."""
        await asyncio.to_thread(self.scheduler.start)

    async def stop(self, *, wait: timedelta | None = None) -> None:
        """Take no new work, wait for what is under way, give the rest back, and close the store."""
        await asyncio.to_thread(lambda: self.scheduler.stop(wait=wait))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
