"""The embedded door for async code: every method that waits is awaited."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from timewright.doors.nouns import AsyncNouns
from timewright.doors.python import Scheduler
from timewright.doors.python_checks import no_such_name, schedule_of
from timewright.doors.python_events import Hearing
from timewright.doors.python_results import (
    PATIENCE,
    ended,
    is_over,
    read_patience,
    refuse_if_nobody_runs,
    rests,
)

if TYPE_CHECKING:
    from timewright.doors.http.mounted import Mounted


class AsyncScheduler(AsyncNouns, Hearing):
    """The same for async code: its async functions run on the loop it is started on, the store never does."""

    def __init__(self, store: str | os.PathLike[str] = "timewright.db", **options: Any) -> None:
        self.scheduler = Scheduler(store, **options)
        self.registry = self.scheduler.registry
        self.listeners = self.scheduler.listeners
        self.schedule = self.scheduler.schedule
        self.task = self.scheduler.task
        super().__init__(self.call)

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """The schedules that this program declares, each as `schedule put` is asked for it."""
        return self.scheduler.declared

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process, and was not stopped."""
        return self.scheduler.is_running

    async def call(self, operation: str, /, **request: Any) -> Any:
        """Perform any operation by its name."""
        return await asyncio.to_thread(lambda: self.scheduler.call(operation, **request))

    async def run_now(
        self,
        schedule: str | Callable[..., Any],
        *,
        payload: Any = None,
        force: bool = False,
        reason: str = "",
        timeout: timedelta | str = PATIENCE,  # noqa: ASYNC109 - the run goes on, so nobody's task is cancelled
    ) -> Any:
        """Run a schedule now, wait until it has ended, and give back its result; see `Scheduler.run_now`."""
        name = schedule_of(schedule, self.registry)
        if not self.is_running:
            refuse_if_nobody_runs(name, await self.call("instance list"))
        read_patience(timeout)
        asked = {"schedule": name, "payload": payload, "force": force, "reason": reason}
        return await self.result((await self.call("schedule run", **asked))["run"]["id"], timeout=timeout)

    async def result(self, run: str, *, timeout: timedelta | str = PATIENCE) -> Any:  # noqa: ASYNC109 - as above
        """Wait until a run has ended, and give back its result."""
        detail = await self.call("run get", run=run)
        for rest in rests(read_patience(timeout)):
            if is_over(detail):
                break
            await asyncio.sleep(rest)
            detail = await self.call("run get", run=run)
        return ended(detail, timeout)

    async def start(self) -> None:
        """Keep the declared schedules and begin to run what is due; async functions run on this loop."""
        self._borrow()
        await asyncio.to_thread(self.scheduler.start)

    async def stop(self, *, wait: timedelta | str | None = None) -> None:
        """Take no new work, wait for what is under way, give the rest back, and close the store."""
        await asyncio.to_thread(lambda: self.scheduler.stop(wait=wait))

    async def run(self) -> None:
        """Start, and stay until interrupted, asked to end, or cancelled; then stop gracefully."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        heard: list[signal.Signals] = []
        if threading.current_thread() is threading.main_thread():
            with suppress(NotImplementedError, RuntimeError):  # a loop that hears no signals
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.add_signal_handler(number, over.set)
                    heard.append(number)
        self.scheduler.at_end(lambda: _tell(loop, over))
        try:
            if not self.is_running:
                await self.start()
            await over.wait()
        finally:
            for number in heard:
                loop.remove_signal_handler(number)
            await self.stop()

    def asgi(self, **options: Any) -> Mounted:
        """The HTTP API as an ASGI application, to serve alone or to mount in a web application of yours."""
        return self.scheduler.asgi(before=self._borrow, **options)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return repr(self.scheduler).replace("<Scheduler", "<AsyncScheduler", 1)

    if not TYPE_CHECKING:  # a checker knows what there is

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def _borrow(self) -> None:
        self.scheduler.borrow(asyncio.get_running_loop())


def _tell(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    with suppress(RuntimeError):  # a loop that was closed before
        loop.call_soon_threadsafe(over.set)
