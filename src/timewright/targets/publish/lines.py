"""Connections to brokers: one for each address and sign-in, kept until it fails or is no longer used."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from timewright.targets.publish.broker import Broker

MOST_IDLE = 32
CLOSING_SECONDS = 2.0


class _Line:
    """A connection, how many use it now, and whether it failed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.users = 0
        self.broken = False


class Lines:
    """Every connection of one target; all of it happens on the loop."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[Any, ...], _Line] = OrderedDict()
        self._making = asyncio.Lock()

    @asynccontextmanager
    async def use(self, place: tuple[Any, ...], make: Callable[[], Broker]) -> AsyncIterator[Broker]:
        """A connection to that place; one whose use did not end well is closed, and the next is a new one."""
        line = await self._line(place, make)
        line.users += 1
        try:
            yield line.broker
        except BaseException:
            line.broken = True
            if self._lines.get(place) is line:
                del self._lines[place]
            raise
        finally:
            line.users -= 1
            if line.broken and not line.users:
                await _close(line)
            await self._tidy()

    async def close(self) -> None:
        """Close all of them."""
        lines, self._lines = list(self._lines.values()), OrderedDict()
        await asyncio.gather(*map(_close, lines))

    async def _line(self, place: tuple[Any, ...], make: Callable[[], Broker]) -> _Line:
        """The connection, made on a thread: some libraries take long to import."""
        async with self._making:
            if place not in self._lines:
                self._lines[place] = _Line(await asyncio.to_thread(make))
            self._lines.move_to_end(place)
            return self._lines[place]

    async def _tidy(self) -> None:
        """Close those unused for longest, beyond so many."""
        idle = [place for place, line in self._lines.items() if not line.users]
        for place in idle[: max(len(self._lines) - MOST_IDLE, 0)]:
            await _close(self._lines.pop(place))


async def _close(line: _Line) -> None:
    # A connection that is already lost may fail to close, in whatever way its library likes.
    with suppress(Exception):
        await asyncio.wait_for(line.broker.close(), CLOSING_SECONDS)
