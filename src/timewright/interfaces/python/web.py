"""A scheduler inside a web application: it runs as long, and its dashboard is mounted there."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from timewright.operations.context import OperationContext
from timewright.wiring import Instance

if TYPE_CHECKING:
    from timewright.interfaces.http.mounted_app import MountedApp, MountOptions


class WebMethods:
    """The methods of a scheduler that a web application uses."""

    if TYPE_CHECKING:

        @property
        def instance(self) -> Instance: ...
        def start(self) -> None: ...
        def stop(self) -> None: ...
        def _context(self) -> OperationContext: ...

    @cached_property
    def _mounted(self) -> list[MountedApp]:
        return []

    def lifespan(self, _web: Any = None) -> AbstractAsyncContextManager[None]:
        """Start and stop with a web application: `FastAPI(lifespan=app.lifespan)`."""
        return _run_lifespan(self.start, self.stop, self._mounted)

    def asgi(self, **options: Unpack[MountOptions]) -> MountedApp:
        """Return the dashboard and the HTTP API as an ASGI application, to serve alone or to mount.

        Mounted, it needs `lifespan=app.lifespan` in the application around it. `sign_in` is called with each
        request and returns who sent it, for example `("anna", "operator")`, or None; a page that nobody is
        signed in for leads to `sign_in_url`. `hosts` are the names that the application is reached by.
        """
        return self.mount(self.lifespan, options)

    def mount(
        self, lifespan: Callable[[], AbstractAsyncContextManager[None]], options: MountOptions
    ) -> MountedApp:
        """Return the ASGI application, with another lifespan than that of this scheduler."""
        from timewright.interfaces.http.mounted_app import MountedApp

        context = replace(self._context(), system_zone="")  # its callers may be on other machines
        mounted = MountedApp(self.instance, context, lifespan=lifespan, **options)
        self._mounted.append(mounted)
        return mounted


@asynccontextmanager
async def _run_lifespan(
    start: Callable[[], None], stop: Callable[[], None], mounted: Sequence[MountedApp]
) -> AsyncIterator[None]:
    """Start, wait for the application to end, and stop."""

    def end_all() -> None:
        for one in mounted:
            one.end_streams()

    with _called_at_signal(end_all):
        await asyncio.to_thread(start)
        try:
            yield
        finally:
            end_all()
            await asyncio.to_thread(stop)


@contextmanager
def _called_at_signal(call: Callable[[], None]) -> Iterator[None]:
    """Call this at a signal, before the server's own handler.

    A server waits for open responses before it ends the lifespan, and event streams would never end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    installed: dict[signal.Signals, tuple[Any, Any]] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        previous = signal.getsignal(number)
        if callable(previous):
            installed[number] = (_handler(call, loop, previous), previous)
            signal.signal(number, installed[number][0])
    try:
        yield
    finally:
        for number, (own, previous) in installed.items():
            if signal.getsignal(number) is own:
                signal.signal(number, previous)


def _handler(
    call: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
    previous: Callable[[int, FrameType | None], Any],
) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        loop.call_soon_threadsafe(call)
        return previous(number, frame)

    return handle
