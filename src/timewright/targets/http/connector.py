"""The aiohttp connector that enforces the egress policy and the limit on bytes read; why no response came."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aiohttp import (
    ClientConnectionError,
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientResponseError,
    ClientSSLError,
    ConnectionTimeoutError,
    TCPConnector,
)

from timewright.core.run.run import Failed, TimedOut
from timewright.targets.http.egress import EgressPolicy, IpAddress, Url, parse_ip

MAX_REASON_CHARS = 160

_BEFORE_QUOTES = re.compile(r"(?:[A-Za-z0-9 ,.-]|(?<=[a-z])'(?=[a-z]))+")
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]+")


if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.abc import AbstractResolver
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace


class EgressBlocked(ClientConnectionError):
    """The egress policy allows no address of the host. The message lists the refused addresses."""


class ResponseLost(ClientConnectionError):
    """The request was sent, but the connection closed before a response arrived."""


class OutgoingRequest:
    """The request in progress: its URL, how much may be read, and which addresses were tried."""

    def __init__(self, url: Url, *, max_bytes: int) -> None:
        self.url = url
        self.bytes_left = max_bytes
        self.refused_addresses: dict[str, None] = {}
        self.approved_addresses: set[IpAddress | None] = set()
        self.is_connected = False
        self._transport: asyncio.Transport | None = None

    def record_connection(self, transport: asyncio.Transport | None) -> str:
        """Store the connection of this request; returns the address of the peer."""
        self.is_connected = True
        self._transport = transport
        return _peer(transport)

    def abort_connection(self) -> None:
        """Close the connection immediately, because a TLS shutdown waits for the peer."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def limit_exceeded(self) -> bool:
        """Whether the peer has sent more bytes than allowed."""
        return self.bytes_left < 0


# aiohttp does not pass the request to the socket factory; both run in one task, so a ContextVar does.
CURRENT_REQUEST: ContextVar[OutgoingRequest] = ContextVar("timewright_current_request")


class GuardedConnector(TCPConnector):
    """Connects only to allowed addresses, once for each request, and reuses no connection.

    A reused connection may hold leftover bytes of the previous response, or may be closed by the peer just
    when it is used, so that a request is sent twice or fails. A new one costs one handshake.
    """

    def __init__(self, egress: EgressPolicy, *, resolver: AbstractResolver, ttl_dns_cache: int) -> None:
        super().__init__(
            resolver=resolver,
            ttl_dns_cache=ttl_dns_cache,
            socket_factory=self._open,
            force_close=True,
            limit=0,
        )
        self._egress = egress

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - the name is the library's
    ) -> Connection:
        """Connect for the current request, then check the address of the peer again."""
        request = CURRENT_REQUEST.get()
        if request.is_connected:
            # aiohttp retries idempotent methods by itself, but an attempt is one request.
            raise ResponseLost("the connection closed before a response arrived")
        try:
            connection = await super().connect(req, traces, timeout)
        except ClientConnectorError:
            if request.refused_addresses and not request.approved_addresses:
                raise EgressBlocked(
                    self._egress.refusal_message(request.refused_addresses, to=request.url)
                ) from None
            raise
        peer = request.record_connection(connection.transport)
        if parse_ip(peer) not in request.approved_addresses or not self._egress.allows(peer, to=request.url):
            connection.close()
            raise EgressBlocked(self._egress.refusal_message([peer], to=request.url))
        return connection

    def _open(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = info
        request, where = CURRENT_REQUEST.get(), str(address[0])
        if not self._egress.allows(where, to=request.url):
            request.refused_addresses[where] = None
            # On OSError aiohttp tries the next address of the same DNS answer.
            raise OSError(errno.EACCES, "blocked by egress policy")
        request.approved_addresses.add(parse_ip(where))
        return CountingSocket(request, family=family, kind=kind, protocol=protocol)


class CountingSocket(socket.socket):
    """A socket that closes the connection when more bytes were read than the request allows.

    Response bodies are counted elsewhere. This also counts headers, interim responses, chunk sizes and
    trailers.
    """

    def __init__(self, request: OutgoingRequest, *, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._request = request

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read and count bytes."""
        data = super().recv(size, flags)
        self._count(len(data))
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Read into a buffer and count bytes."""
        return self._count(super().recv_into(buffer, nbytes, flags))

    def _count(self, size: int) -> int:
        self._request.bytes_left -= size
        if self._request.limit_exceeded:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the response is larger than allowed")
        return size


def _peer(transport: asyncio.Transport | None) -> str:
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if name else ""


class RequestFailed(Exception):
    """A request failed without a response; carries its outcome."""

    def __init__(self, outcome: Failed | TimedOut) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def failure_outcome(error: Exception, request: OutgoingRequest) -> Failed | TimedOut:
    """The outcome of an attempt that failed with this error."""
    if isinstance(error, ConnectionTimeoutError):
        if request.approved_addresses:
            return TimedOut(error=f"timed out while connecting to {request.url.host_port}")
        return TimedOut(error=f"{request.url.host} was not resolved in time; check its name server")
    # Without a connection nothing was sent; after it, the server may have processed the request.
    is_sent = not isinstance(error, EgressBlocked | ClientConnectorError | ClientSSLError)
    return Failed(error=_why(error, request), unknown=is_sent)


def _why(error: Exception, request: OutgoingRequest) -> str:
    peer = request.url.host_port
    if isinstance(error, EgressBlocked):
        return str(error)
    if request.limit_exceeded:
        return f"{peer} sent more than allowed before the response was complete"
    if isinstance(error, ClientConnectorCertificateError):
        return f"the certificate of {peer} is invalid: {_certificate_error(error.certificate_error)}"
    if isinstance(error, ClientSSLError):
        return f"TLS with {peer} failed: {_system_error(error.os_error)}"
    if isinstance(error, ClientConnectorDNSError):
        return f"{request.url.host} could not be resolved: {_system_error(error.os_error)}"
    if isinstance(error, ClientConnectorError):
        return f"cannot connect to {peer}: {_system_error(error.os_error)}"
    if isinstance(error, ClientResponseError):
        return f"{peer} sent an invalid HTTP response: {_parser_error(error.message)}"
    return f"the connection to {peer} closed before a response arrived"


def _system_error(error: OSError) -> str:
    """The system's text for the error number, because asyncio puts the address into strerror."""
    by_number = errno.errorcode.get(error.errno or 0) and not isinstance(
        error, socket.gaierror | ssl.SSLError
    )
    return _plain(os.strerror(error.errno or 0) if by_number else str(error.strerror or error))


def _parser_error(message: str) -> str:
    """The message of the parser up to where it quotes the server."""
    found = _BEFORE_QUOTES.match(message.strip())
    return found[0].strip() if found else "malformed"


def _certificate_error(error: Exception) -> str:
    return _plain(str(getattr(error, "verify_message", "") or error))


def _plain(text: str) -> str:
    """The first line, in printable ASCII."""
    first = text.strip().partition("\n")[0].strip().removesuffix(":")
    return _NOT_PLAIN.sub("?", first)[:MAX_REASON_CHARS]
