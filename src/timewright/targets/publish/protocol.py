"""The interface of a broker, and a base class for blocking client libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from timewright.core.run.run import Outcome
from timewright.targets.publish.message import BrokerMessage, Receipt

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 10.0
# Concurrent blocking calls per connection: a broker that hangs must not use up all threads.
MAX_CONCURRENT_CALLS = 8
# How long the key of an accepted message is stored where the broker does not deduplicate itself.
SENT_KEY_TTL_S = 86_400
_MIN_POLL_INTERVAL_S = 0.05
_MAX_POLL_INTERVAL_S = 1.0


class Broker(Protocol):
    """A connection that accepts messages until it is closed."""

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Send the message and wait until the broker has accepted it. Raises the error of the library."""
        ...

    async def close(self) -> None:
        """Close all sockets and threads."""
        ...


class ResultBroker(Broker, Protocol):
    """A broker that also reports how the work ended."""

    async def read_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the work with this id, or None while it is running."""
        ...

    async def cancel(self, message: BrokerMessage, remote_id: str) -> None:
        """Cancel the work where that is possible, so that a later attempt can start it again."""
        ...


class BlockingBroker:
    """Runs blocking library calls on threads, at most MAX_CONCURRENT_CALLS at a time."""

    def __init__(self, close_client: Callable[[], object]) -> None:
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._end = close_client

    async def run_in_thread(self, act: Callable[..., T], *args: Any) -> T:
        """Run a blocking call on a thread and return its result."""
        async with self._slots:
            return await asyncio.to_thread(act, *args)

    async def close(self) -> None:
        """Close all sockets, without waiting for calls that hang."""
        await asyncio.to_thread(self._end)


async def poll_until(
    found: Callable[[], Awaitable[T | None]], *, interval_s: float = _MIN_POLL_INTERVAL_S
) -> T:
    """Poll until there is a value, with intervals that grow from `interval_s` to 1 s."""
    rest = interval_s
    while (thing := await found()) is None:
        await asyncio.sleep(rest)
        rest = min(rest * 1.5, _MAX_POLL_INTERVAL_S)
    return thing
