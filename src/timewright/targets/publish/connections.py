"""Broker connections: one per address and credentials, kept until it fails or is unused."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from timewright.targets.publish.protocol import Broker

MAX_IDLE_CONNECTIONS = 32
CLOSE_TIMEOUT_S = 2.0


class _Connection:
    """A connection, its number of current users, and whether it failed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.users = 0
        self.broken = False


class BrokerConnections:
    """The connections of one target. All methods run on the loop."""

    def __init__(self) -> None:
        self._connections: OrderedDict[tuple[Any, ...], _Connection] = OrderedDict()
        self._create_lock = asyncio.Lock()

    @asynccontextmanager
    async def use(self, key: tuple[Any, ...], create: Callable[[], Broker]) -> AsyncIterator[Broker]:
        """Use the connection of this key. After an error it is closed, and the next use creates a new one."""
        connection = await self._get(key, create)
        connection.users += 1
        try:
            yield connection.broker
        except BaseException:
            connection.broken = True
            if self._connections.get(key) is connection:
                del self._connections[key]
            raise
        finally:
            connection.users -= 1
            if connection.broken and not connection.users:
                await _close(connection)
            await self._close_idle()

    async def close(self) -> None:
        """Close all connections."""
        connections, self._connections = list(self._connections.values()), OrderedDict()
        await asyncio.gather(*map(_close, connections))

    async def _get(self, key: tuple[Any, ...], create: Callable[[], Broker]) -> _Connection:
        """Get or create a connection, on a thread because some libraries take long to import."""
        async with self._create_lock:
            if key not in self._connections:
                self._connections[key] = _Connection(await asyncio.to_thread(create))
            self._connections.move_to_end(key)
            return self._connections[key]

    async def _close_idle(self) -> None:
        """Close the least recently used idle connections beyond MAX_IDLE_CONNECTIONS."""
        idle = [key for key, connection in self._connections.items() if not connection.users]
        for key in idle[: max(len(self._connections) - MAX_IDLE_CONNECTIONS, 0)]:
            await _close(self._connections.pop(key))


async def _close(connection: _Connection) -> None:
    # Closing a lost connection may raise any error of its library.
    with suppress(Exception):
        await asyncio.wait_for(connection.broker.close(), CLOSE_TIMEOUT_S)
