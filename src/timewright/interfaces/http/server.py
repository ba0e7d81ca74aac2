"""The uvicorn server in its own thread, with limits for connections and headers and a bounded shutdown."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from timewright.errors import Conflict, InvalidInput, TimewrightError
from timewright.wiring.metrics_port import server_tls_context

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024
KEEP_ALIVE_S = 15
SHUTDOWN_TIMEOUT_S = 2
MAX_CONNECTIONS = 1000
BACKLOG = 512
DATE_REFRESH_S = 1.0


class HeaderTimeoutProtocol(asyncio.Protocol):
    """A mixin that closes a connection if the headers of a request take longer than 10 s."""

    loop: Any
    transport: Any
    cycle: Any
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once the headers are complete; start it for the next request."""
        super().data_received(data)
        if not self.awaits_headers():
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def awaits_headers(self) -> bool:
        """Whether the connection waits for headers."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_TIMEOUT_S, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        if self.awaits_headers():
            self.transport.close()


class H11ServerProtocol(HeaderTimeoutProtocol, H11Protocol):
    """The h11 protocol, which limits the size of the headers itself."""


def protocol_class() -> type[asyncio.Protocol]:
    """Return the httptools protocol if it is installed (extra `fast`), else h11."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ModuleNotFoundError:
        return H11ServerProtocol

    class HttptoolsServerProtocol(HeaderTimeoutProtocol, HttpToolsProtocol):
        """Refuses headers that are too large, also incomplete ones, and ignores trailers after the body."""

        # Bytes received since the last complete headers: an upper bound for the next headers.
        _received_bytes = 0

        def data_received(self, data: bytes) -> None:
            """Parse the data, and refuse headers that exceed the limit before they are complete."""
            self._received_bytes += len(data)
            super().data_received(data)
            if self._received_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                self.send_400_response("Invalid HTTP request received.")

        def on_headers_complete(self) -> None:
            """Check the size of the headers, then drop them so that trailers cannot change the request."""
            if self._received_bytes > MAX_HEADER_BYTES and self._header_bytes() > MAX_HEADER_BYTES:
                raise ValueError("the headers are too large")
            self._received_bytes = 0
            super().on_headers_complete()
            self.headers = []

        def on_body(self, body: bytes) -> None:
            """Pass a part of the body on; its size is limited where it is read."""
            self._received_bytes = 0
            super().on_body(body)

        def _header_bytes(self) -> int:
            return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    return HttptoolsServerProtocol


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop if it is installed, else an asyncio loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class UvicornServer(uvicorn.Server):
    """Ticks once a second instead of every 0.1 s, and stops immediately when asked."""

    stop_event: asyncio.Event

    async def main_loop(self) -> None:
        """Run until stopped."""
        self.stop_event = asyncio.Event()
        while not self.should_exit:
            # Tick 0 renews the Date header. Python cannot read a clock that shows the year 2999.
            with suppress(OverflowError):
                await self.on_tick(0)
            try:
                await asyncio.wait_for(self.stop_event.wait(), DATE_REFRESH_S)
            except TimeoutError:
                continue


class ServerThread:
    """Serves an ASGI application in a thread until it is stopped."""

    def __init__(
        self, *, bind: str, port: int, tls: tuple[str, str] | None = None, client_ca: str = ""
    ) -> None:
        # Check the certificates before binding, so that an error leaves no open socket.
        self._tls = server_tls_context(*tls, client_ca=client_ca) if tls is not None else None
        self.sockets = bind_sockets(bind, port)
        self.port: int = self.sockets[0].getsockname()[1]
        self._thread: threading.Thread | None = None
        self._server: UvicornServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, app: Any) -> None:
        """Start to serve; earlier connections wait in the socket backlog."""
        config = uvicorn.Config(
            app,
            http=protocol_class(),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
            limit_concurrency=MAX_CONNECTIONS,
            backlog=BACKLOG,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = self._tls
        self._server = UvicornServer(config)
        self._thread = threading.Thread(target=self._serve, name="timewright-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, wait briefly for those in progress, and close."""
        server, thread, loop = self._server, self._thread, self._loop
        if server is None or thread is None:
            for one in self.sockets:
                one.close()
            return
        server.should_exit = True
        if loop is not None and hasattr(server, "stop_event"):
            loop.call_soon_threadsafe(server.stop_event.set)
        thread.join(timeout=2 * SHUTDOWN_TIMEOUT_S)

    def _serve(self) -> None:
        assert self._server is not None
        self._loop = new_event_loop()
        try:
            self._loop.run_until_complete(self._server.serve(sockets=self.sockets))
        finally:
            self._loop.run_until_complete(_cancel_tasks(self._loop))
            self._loop.close()


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that are still waiting."""
    remaining = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in remaining:
        task.cancel()
    await asyncio.gather(*remaining, return_exceptions=True)


def bind_sockets(bind: str, port: int) -> list[socket.socket]:
    """Bind an address; for loopback, bind both IPv4 and IPv6."""
    first = _bind(bind, port)
    if bind not in ("127.0.0.1", "localhost"):
        return [first]
    try:
        return [first, _bind("::1", first.getsockname()[1])]
    except InvalidInput:
        # The machine has no IPv6.
        return [first]
    except TimewrightError:
        first.close()
        raise


def _bind(bind: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind)
    except (OSError, UnicodeError) as error:
        raise _address_error(bind, str(error)) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Without TCP_NODELAY the second of two writes may wait 40 ms for the acknowledgement of the first.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            # :: also accepts IPv4; a specific IPv6 address does not.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bind != "::")
        bound.bind(address)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _bind_error(bind, port, error) from None
    return bound


def _bind_error(bind: str, port: int, error: OSError) -> TimewrightError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(
            f"port {port} is in use by another program",
            field="port",
            value=port,
            rule="only one program can use a port",
            fix="stop that program, or use --port 0 for a free port",
        )
    if error.errno == errno.EACCES:
        return InvalidInput(
            f"no permission to use port {port}",
            field="port",
            value=port,
            rule="ports below 1024 need special permission",
            fix="--port 7411",
        )
    return _address_error(bind, error.strerror or str(error))


def _address_error(bind: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"cannot bind to {bind[:255]!r}: {why}",
        field="bind",
        value=bind[:255],
        rule="an address of this machine",
        fix="127.0.0.1",
    )
