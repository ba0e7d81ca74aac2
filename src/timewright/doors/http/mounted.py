"""A scheduler inside somebody's web application: its API as ASGI, its engine in step with the application."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from timewright.assembly import House
from timewright.doors.http.app import HttpDoor
from timewright.doors.http.callers import Callers, by_key_or_session
from timewright.doors.http.events import Hub
from timewright.doors.http.gate import LOOPBACK, Gate
from timewright.doors.http.visits import Receive, Scope, Send
from timewright.operations import Context


class Mounted:
    """An ASGI application; alone it starts and stops the engine by itself, mounted by `lifespan`."""

    def __init__(
        self,
        house: House,
        context: Context,
        *,
        start: Callable[[], None],
        stop: Callable[[], None],
        before: Callable[[], None] | None = None,
        hosts: Iterable[str] = (),
        callers: Callers = by_key_or_session,
    ) -> None:
        self._start, self._stop = start, stop
        self._before = before
        self._hub = Hub(secrets.token_hex(4))
        house.loop.observers.append(self._hub)
        self._hub.hear(house.ear)
        names = frozenset(name.lower().removesuffix(".") for name in (*LOOPBACK, *hosts))
        self._door = HttpDoor(
            context,
            gate=Gate(names=names),
            hub=self._hub,
            callers=callers,
            pulse=house.loop.pulse,
            metrics=house.metrics_text if house.settings.metrics else None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or go along when the application begins and ends."""
        if scope["type"] == "lifespan":
            await self._go_along(receive, send)
        else:
            await self._door(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _app: Any = None) -> AsyncIterator[None]:
        """For the application this is mounted in: `Starlette(lifespan=mounted.lifespan)`."""
        if self._before is not None:
            self._before()
        await asyncio.to_thread(self._start)
        try:
            yield
        finally:
            self._hub.close()
            await asyncio.to_thread(self._stop)

    async def _go_along(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})
