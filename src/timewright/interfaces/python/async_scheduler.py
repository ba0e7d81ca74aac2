"""`AsyncScheduler`: the scheduler for async code."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, Unpack

from timewright.interfaces.python.checks import schedule_name, unknown_attribute
from timewright.interfaces.python.events import EventDecorators
from timewright.interfaces.python.inside import AsyncInsideTransaction
from timewright.interfaces.python.resources import AsyncResources
from timewright.interfaces.python.results import (
    DEFAULT_TIMEOUT,
    is_finished,
    poll_intervals,
    require_live_instance,
    result_of,
    timeout_seconds,
)
from timewright.interfaces.python.scheduler import Scheduler

if TYPE_CHECKING:
    from timewright.interfaces.http.mounted_app import MountedApp, MountOptions


class AsyncScheduler(AsyncResources, EventDecorators):
    """A `Scheduler` with awaitable methods. Async functions run on its event loop, the store in threads."""

    def __init__(self, store: str | os.PathLike[str] = "timewright.db", **options: Any) -> None:
        self.scheduler = Scheduler(store, **options)
        self.registry = self.scheduler.registry
        self.listeners = self.scheduler.listeners
        self.schedule = self.scheduler.schedule
        self.task = self.scheduler.task
        self.save_declarations = self.scheduler.save_declarations
        super().__init__(self.call)

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The declared schedules as requests of `schedule put`."""
        return self.scheduler.declared

    @property
    def is_running(self) -> bool:
        """Whether it is started in this process and not stopped."""
        return self.scheduler.is_running

    async def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation by its name; see `Scheduler.call`."""
        return await asyncio.to_thread(lambda: self.scheduler.call(operation, **request))

    async def run_now(
        self,
        schedule: str | Callable[..., Any],
        *,
        payload: Any = None,
        force: bool = False,
        reason: str = "",
        timeout: timedelta | str = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - the run continues after a timeout
    ) -> Any:
        """Run a schedule now, wait for the run to end and return its result; see `Scheduler.run_now`."""
        name = schedule_name(schedule, self.registry)
        if not self.is_running:
            require_live_instance(name, await self.call("instance list"))
        timeout_seconds(timeout)
        request = {"schedule": name, "payload": payload, "force": force, "reason": reason}
        started = await self.call("schedule run", **request)
        return await self.result(started.run.id, timeout=timeout)

    async def result(self, run: str, *, timeout: timedelta | str = DEFAULT_TIMEOUT) -> Any:  # noqa: ASYNC109 - as above
        """Wait for a run to end and return its result."""
        detail = await self.call("run get", run=run)
        for interval in poll_intervals(timeout_seconds(timeout)):
            if is_finished(detail):
                break
            await asyncio.sleep(interval)
            detail = await self.call("run get", run=run)
        return result_of(detail, timeout)

    async def start(self) -> None:
        """Save the declared schedules and start to run due schedules; async functions run on this loop."""
        self._use_running_loop()
        await asyncio.to_thread(self.scheduler.start)

    async def stop(self, *, wait: timedelta | str | None = None) -> None:
        """Take no new work, wait for runs in progress, release the rest, and close the store."""
        await asyncio.to_thread(lambda: self.scheduler.stop(wait=wait))

    async def run(self) -> None:
        """Start and wait until SIGINT, SIGTERM, `stop()` or cancellation, then stop gracefully."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        handled: list[signal.Signals] = []
        if threading.current_thread() is threading.main_thread():
            with suppress(NotImplementedError, RuntimeError):  # the loop does not support signal handlers
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.add_signal_handler(number, stopped.set)
                    handled.append(number)
        self.scheduler.on_stop(lambda: _set_event(loop, stopped))
        try:
            if not self.is_running:
                await self.start()
            await stopped.wait()
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
            await self.stop()

    @asynccontextmanager
    async def lifespan(self, _web: Any = None) -> AsyncIterator[None]:
        """Start and stop with a web application: `FastAPI(lifespan=app.lifespan)`."""
        self._use_running_loop()
        async with self.scheduler.lifespan():
            yield

    def asgi(self, **options: Unpack[MountOptions]) -> MountedApp:
        """Return the dashboard and the HTTP API as an ASGI application; see `Scheduler.asgi`."""
        return self.scheduler.mount(self.lifespan, options)

    @asynccontextmanager
    async def inside(self, connection: Any) -> AsyncIterator[AsyncInsideTransaction]:
        """Add work inside the open transaction of an async connection; see `Scheduler.inside`."""
        yield await self.scheduler.inside_async(connection)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return repr(self.scheduler).replace("<Scheduler", "<AsyncScheduler", 1)

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name)

    def _use_running_loop(self) -> None:
        self.scheduler.use_event_loop(asyncio.get_running_loop())


def _set_event(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(event.set)
