"""The dashboard and the HTTP API as an ASGI application that can be mounted in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Any, TypedDict, cast

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from timewright.core.input.input_errors import input_error
from timewright.interfaces.http.app import DASHBOARD_FOLDER, HttpApp
from timewright.interfaces.http.authentication import (
    CSRF_HEADER,
    SAFE_METHODS,
    HostOriginCheck,
    authenticate_by_key_or_session,
)
from timewright.interfaces.http.events import EventHub
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.request import HttpRequest
from timewright.operations import OperationContext
from timewright.operations.access.authentication import unauthorized_error
from timewright.operations.access.callers import ROLES, Caller, Role
from timewright.wiring import Instance

SIGN_IN_WAIT_S = 30.0

SignedIn = tuple[str, str] | None
SignIn = Callable[[Request], SignedIn | Awaitable[SignedIn]]


class MountOptions(TypedDict, total=False):
    """The keywords of `Scheduler.asgi`."""

    hosts: Iterable[str]
    sign_in: SignIn
    sign_in_url: str


class HostSignIn:
    """Names the caller of a request by the sign-in of the application around it; API keys work as well."""

    def __init__(self, sign_in: SignIn) -> None:
        self._sign_in = sign_in
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, request: HttpRequest) -> Caller:
        """Return the caller; called on a thread, an async function runs on the loop of the server."""
        if request.headers.get("authorization") is not None:
            return authenticate_by_key_or_session(request)
        found = self._sign_in(request)
        if isawaitable(found):
            assert self.loop is not None
            found = asyncio.run_coroutine_threadsafe(_awaited(found), self.loop).result(SIGN_IN_WAIT_S)
        if found is None:
            raise unauthorized_error()
        caller = _caller_named(found)
        if request.method not in SAFE_METHODS and request.headers.get(CSRF_HEADER) is None:
            # A form of another site cannot send this header.
            raise HttpProblem(
                "csrf",
                "header missing",
                field=CSRF_HEADER,
                rule="writes without an API key carry this header, with any value",
                fix=f"{CSRF_HEADER}: 1",
            )
        return caller


class MountedApp:
    """An ASGI application; served alone its lifespan starts and stops the engine."""

    def __init__(
        self,
        instance: Instance,
        context: OperationContext,
        *,
        lifespan: Callable[[], AbstractAsyncContextManager[None]],
        hosts: Iterable[str] = (),
        sign_in: SignIn | None = None,
        sign_in_url: str = "/",
    ) -> None:
        self._lifespan = lifespan
        self._hub = EventHub()
        instance.loop.observers.append(self._hub)
        self._hub.watch_store(instance.store, instance.change_listener)
        self.end_streams = self._hub.close
        self._sign_in = HostSignIn(sign_in) if sign_in is not None else None
        self._app = HttpApp(
            context,
            host_check=HostOriginCheck(hosts),
            hub=self._hub,
            authenticate=self._sign_in,
            sign_in_url=sign_in_url if self._sign_in is not None else "",
            engine_health=instance.loop.health,
            metrics=instance.metrics_text if instance.settings.metrics else None,
            dashboard=DASHBOARD_FOLDER,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if self._sign_in is not None:
            self._sign_in.loop = asyncio.get_running_loop()
        await self._app(scope, receive, send)

    def lifespan(self, _app: Any = None) -> AbstractAsyncContextManager[None]:
        """The lifespan of the scheduler, for the application around it."""
        return self._lifespan()

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


async def _awaited(found: Awaitable[SignedIn]) -> SignedIn:
    return await found


def _caller_named(found: object) -> Caller:
    """Return the caller that a sign-in function has named."""
    match found:
        case (str(name), str(role)) if name and role in ROLES:
            return Caller(actor=name, scopes=ROLES[cast("Role", role)])
    raise input_error(
        "sign_in",
        found,
        "is not a name with a role",
        rule=f"a tuple of a name and one of {', '.join(ROLES)}, or None",
        fix='return ("anna", "operator")',
    )
