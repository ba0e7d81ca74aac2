"""The guard at the socket: which addresses are connected to, how often, and how much is read from them."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aiohttp import ClientConnectionError, ClientConnectorError, TCPConnector

from timewright.targets.egress import Address, Egress, parse_address
from timewright.targets.urls import Url

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.abc import AbstractResolver
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace


class EgressBlocked(ClientConnectionError):
    """No address of the host may be connected to; the message says which were refused."""


class AnswerLost(ClientConnectionError):
    """The request went out, and the connection ended before an answer came."""


class Asked:
    """One request on its way: where it goes, what it may read, and what the guard has seen of it."""

    def __init__(self, url: Url, *, most_bytes: int) -> None:
        self.url = url
        self.left = most_bytes
        self.refused: dict[str, None] = {}
        self.approved: set[Address | None] = set()
        self.connected = False
        self._transport: asyncio.Transport | None = None

    def meet(self, transport: asyncio.Transport | None) -> str:
        """Note the one connection there will be; gives the address at its other end."""
        self.connected = True
        self._transport = transport
        return _peer(transport)

    def part(self) -> None:
        """End the connection now: a farewell over TLS waits for the other side's, which may never come."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def overrun(self) -> bool:
        """Whether the other side has sent more than may be read."""
        return self.left < 0


# The connector hears of an address and not of the request it is for; both happen in one task or its children.
ASKED: ContextVar[Asked] = ContextVar("timewright_asked")


class GuardedConnector(TCPConnector):
    """Connects to what the policy allows, once for each request, and keeps no connection for the next.

    A connection that is used again may hold words left over from the answer before, and may be gone just when
    a request needs it, which is then sent twice or fails; a fresh one costs a handshake.
    """

    def __init__(self, egress: Egress, *, resolver: AbstractResolver, ttl_dns_cache: int) -> None:
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
        """Connect for the request that is being asked, and look once more at who is at the other end."""
        asked = ASKED.get()
        if asked.connected:
            # The library would send some methods again by itself; an attempt is one request.
            raise AnswerLost("the connection ended before an answer came")
        try:
            connection = await super().connect(req, traces, timeout)
        except ClientConnectorError:
            if asked.refused and not asked.approved:
                raise EgressBlocked(self._egress.refusal(asked.refused, to=asked.url)) from None
            raise
        peer = asked.meet(connection.transport)
        if parse_address(peer) not in asked.approved or not self._egress.allows(peer, to=asked.url):
            connection.close()
            raise EgressBlocked(self._egress.refusal([peer], to=asked.url))
        return connection

    def _open(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = info
        asked, where = ASKED.get(), str(address[0])
        if not self._egress.allows(where, to=asked.url):
            asked.refused[where] = None
            # An OSError lets the connector go on to the next address of the same answer.
            raise OSError(errno.EACCES, "blocked by egress policy")
        asked.approved.add(parse_address(where))
        return MeteredSocket(asked, family=family, kind=kind, protocol=protocol)


class MeteredSocket(socket.socket):
    """A socket that ends the connection when more was read than the request may read.

    Bodies are counted where they are read; this also counts what never becomes a body: headers, interim
    answers, chunk sizes, trailers.
    """

    def __init__(self, asked: Asked, *, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._asked = asked

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read, and count."""
        data = super().recv(size, flags)
        self._count(len(data))
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Read into a buffer, and count."""
        return self._count(super().recv_into(buffer, nbytes, flags))

    def _count(self, size: int) -> int:
        self._asked.left -= size
        if self._asked.overrun:
            raise ConnectionAbortedError(errno.ECONNABORTED, "more was sent than may be read")
        return size


def _peer(transport: asyncio.Transport | None) -> str:
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if name else ""
