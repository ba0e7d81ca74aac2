"""Runs a scheduler as long as the web application around it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any


@asynccontextmanager
async def run_lifespan(
    start: Callable[[], None], stop: Callable[[], None], end_streams: Sequence[Callable[[], None]]
) -> AsyncIterator[None]:
    """Start, wait for the application to end, and stop."""

    def end_all() -> None:
        for end in end_streams:
            end()

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
