"""What a broker has to do for us, and what those share whose client library blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from timewright.core.run import Outcome
from timewright.targets.publish.message import Message, Receipt

T = TypeVar("T")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
# How many calls of one connection block a thread at once: a broker that hangs must not stop the others.
AT_ONCE = 8
# How long an accepted message is remembered where the broker itself does not.
REMEMBERED_SECONDS = 86_400
_FIRST_LOOK = 0.05
_LONGEST_LOOK = 1.0


class Broker(Protocol):
    """One connection: it takes messages until it is closed."""

    async def publish(self, message: Message) -> Receipt:
        """Hand the message over, and return when the broker has accepted it; raises what went wrong."""
        ...

    async def close(self) -> None:
        """Free every socket and thread."""
        ...


class Answering(Broker, Protocol):
    """A broker that also knows how the work ended."""

    async def look(self, message: Message, work: str) -> Outcome | None:
        """How the work with this id there ended, or nothing while it has not."""
        ...

    async def abandon(self, message: Message, work: str) -> None:
        """Nobody waits any more: stop the work where that is possible, so that it may begin anew."""
        ...


class Blocking:
    """Calls of a library that blocks, each on a thread, a few at a time."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._end = end

    async def aside(self, act: Callable[..., T], *args: Any) -> T:
        """Run it on a thread and wait for what it gives back."""
        async with self._slots:
            return await asyncio.to_thread(act, *args)

    async def close(self) -> None:
        """Free every socket, without waiting for calls that hang."""
        await asyncio.to_thread(self._end)


async def until(found: Callable[[], Awaitable[T | None]], *, first: float = _FIRST_LOOK) -> T:
    """Look until there is something: soon at first, then once a second."""
    rest = first
    while (thing := await found()) is None:
        await asyncio.sleep(rest)
        rest = min(rest * 1.5, _LONGEST_LOOK)
    return thing
