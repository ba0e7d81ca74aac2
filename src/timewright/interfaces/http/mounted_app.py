"""The HTTP API as an ASGI application that can be mounted; its lifespan starts and stops the engine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from timewright.interfaces.http.app import HttpApp
from timewright.interfaces.http.endpoints.events import EventHub
from timewright.interfaces.http.requests.authentication import Authenticator, authenticate_by_key_or_session
from timewright.interfaces.http.requests.host_origin import LOOPBACK, HostOriginCheck
from timewright.interfaces.http.requests.http_request import Receive, Scope, Send
from timewright.operations import OperationContext
from timewright.wiring import Instance


class MountedApp:
    """An ASGI application that starts and stops the engine; if mounted, pass `lifespan` to the parent."""

    def __init__(
        self,
        instance: Instance,
        context: OperationContext,
        *,
        start: Callable[[], None],
        stop: Callable[[], None],
        before_start: Callable[[], None] | None = None,
        hosts: Iterable[str] = (),
        authenticate: Authenticator = authenticate_by_key_or_session,
    ) -> None:
        self._start, self._stop = start, stop
        self._before_start = before_start
        self._hub = EventHub(secrets.token_hex(4))
        instance.loop.observers.append(self._hub)
        self._hub.watch_store(instance.store, instance.change_listener)
        names = frozenset(name.lower().removesuffix(".") for name in (*LOOPBACK, *hosts))
        self._app = HttpApp(
            context,
            host_check=HostOriginCheck(allowed_hosts=names),
            hub=self._hub,
            authenticate=authenticate,
            engine_health=instance.loop.health,
            metrics=instance.metrics_text if instance.settings.metrics else None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _app: Any = None) -> AsyncIterator[None]:
        """The lifespan for the parent application: `Starlette(lifespan=mounted.lifespan)`."""
        if self._before_start is not None:
            self._before_start()
        await asyncio.to_thread(self._start)
        try:
            yield
        finally:
            self._hub.close()
            await asyncio.to_thread(self._stop)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})
