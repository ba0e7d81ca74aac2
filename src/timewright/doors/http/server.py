"""A listening server on a thread of its own: sockets first, limits on what may linger, a bounded stop."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from typing import Any

import uvicorn

from timewright.doors.http.protocols import LARGEST_HEAD, new_loop, protocol
from timewright.errors import Conflict, InvalidInput, TimewrightError

IDLE_SECONDS = 15
STOP_SECONDS = 2
MOST_CONNECTIONS = 1000
BACKLOG = 512
TICK_SECONDS = 1.0


class _Quiet(uvicorn.Server):
    """Looks at the clock once a second, and hears at once when it shall end."""

    ended: asyncio.Event

    async def main_loop(self) -> None:
        """Stay until told to end."""
        self.ended = asyncio.Event()
        while not self.should_exit:
            # Zero is the count at which the Date header is renewed.
            await self.on_tick(0)
            try:
                await asyncio.wait_for(self.ended.wait(), TICK_SECONDS)
            except TimeoutError:
                continue


class Server:
    """Serves an ASGI application until it is stopped."""

    def __init__(
        self, *, bind: str, port: int, tls: tuple[str, str] | None = None, client_ca: str = ""
    ) -> None:
        # First what may be refused, then what would have to be given back.
        self._tls = _tls_context(*tls) if tls is not None else None
        if self._tls is not None and client_ca:
            _ask_for_certificates(self._tls, client_ca)
        self.sockets = take_sockets(bind, port)
        self.port: int = self.sockets[0].getsockname()[1]
        self._thread: threading.Thread | None = None
        self._server: _Quiet | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, app: Any) -> None:
        """Begin to answer; what came before waits in the sockets."""
        config = uvicorn.Config(
            app,
            http=protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            limit_concurrency=MOST_CONNECTIONS,
            backlog=BACKLOG,
            h11_max_incomplete_event_size=LARGEST_HEAD,
        )
        config.load()
        config.ssl = self._tls
        self._server = _Quiet(config)
        self._thread = threading.Thread(target=self._serve, name="timewright-door", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests, let those under way end for a moment, and close."""
        server, thread, loop = self._server, self._thread, self._loop
        if server is None or thread is None:
            for one in self.sockets:
                one.close()
            return
        server.should_exit = True
        if loop is not None and hasattr(server, "ended"):
            loop.call_soon_threadsafe(server.ended.set)
        thread.join(timeout=2 * STOP_SECONDS)

    def _serve(self) -> None:
        assert self._server is not None
        self._loop = new_loop()
        try:
            self._loop.run_until_complete(self._server.serve(sockets=self.sockets))
        finally:
            self._loop.run_until_complete(_let_go(self._loop))
            self._loop.close()


async def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    """End what still waits for something that will not come any more."""
    left = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def take_sockets(bind: str, port: int) -> list[socket.socket]:
    """The sockets for an address; this machine's own address is taken in both of its spellings."""
    first = _take(bind, port)
    if bind not in ("127.0.0.1", "localhost"):
        return [first]
    try:
        return [first, _take("::1", first.getsockname()[1])]
    except InvalidInput:
        # A machine without IPv6.
        return [first]
    except TimewrightError:
        first.close()
        raise


def _take(bind: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.socket(family, kind)
    except (OSError, UnicodeError) as error:
        raise _no_address(bind, str(error)) from None
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Of two writes that follow each other the second would wait 40 ms for the reader's acknowledgement.
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            # Everywhere is everywhere; any other address is the one that was said.
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bind != "::")
        taken.bind(address)
        taken.listen(BACKLOG)
        taken.setblocking(False)
    except OSError as error:
        taken.close()
        raise _not_taken(bind, port, error) from None
    return taken


def _not_taken(bind: str, port: int, error: OSError) -> TimewrightError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(
            f"port {port} is taken by another program",
            field="port",
            value=port,
            rule="one program for each port",
            fix="stop that one, or --port 0 for a free port",
        )
    if error.errno == errno.EACCES:
        return InvalidInput(
            f"port {port} may not be taken",
            field="port",
            value=port,
            rule="the system keeps ports under 1024 to itself",
            fix="--port 7411",
        )
    return _no_address(bind, error.strerror or str(error))


def _no_address(bind: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{bind[:255]!r} cannot be bound: {why}",
        field="bind",
        value=bind[:255],
        rule="an address of this machine",
        fix="127.0.0.1",
    )


def _tls_context(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the certificate cannot be used: {error}",
            field="tls_cert",
            value=cert,
            rule="a certificate and its private key, as PEM files that can be read",
            fix="--tls-cert server.pem --tls-key server.key",
        ) from None
    return context


def _ask_for_certificates(context: ssl.SSLContext, authorities: str) -> None:
    """Let only those connect who have a certificate of these authorities."""
    try:
        context.load_verify_locations(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the authorities of clients cannot be used: {error}",
            field="tls_client_ca",
            value=authorities,
            rule="certificates of authorities, as a PEM file that can be read",
            fix="--tls-client-ca clients.pem",
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED
