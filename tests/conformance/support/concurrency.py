"""Concurrent transactions: one is held open while another is tried."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

TIMEOUT_S = 60.0


class Held:
    """A transaction that has run its first part and waits for release."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self.first: Any = None
        self.future: Future[Any] | None = None

    def release(self) -> Any:
        """Let it finish; returns the result of `then`."""
        self.released.set()
        assert self.future is not None
        return self.future.result(TIMEOUT_S)


@contextmanager
def held_open(
    store: Any, first: Callable[[Any], Any], then: Callable[[Any, Any], Any] | None = None
) -> Iterator[Held]:
    """Open a transaction on its own thread: `first` runs before the block, `then` at release."""
    held = Held()

    def work(tx: Any) -> Any:
        held.first = first(tx)
        held.reached.set()
        assert held.released.wait(TIMEOUT_S)
        return then(tx, held.first) if then is not None else None

    with ThreadPoolExecutor(1) as pool:
        held.future = pool.submit(store.write, work)
        try:
            while not held.reached.wait(0.05):
                if held.future.done():
                    held.future.result()
            yield held
        finally:
            held.release()


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Run something concurrently; it is joined at the end of the block."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        yield future
        future.result(TIMEOUT_S)


def all_at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """Start all functions at the same moment; returns results and errors in order."""
    barrier = threading.Barrier(len(works))

    def go(work: Callable[[], Any]) -> Any:
        barrier.wait(TIMEOUT_S)
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the caller looks at what came of each
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(60) for future in [pool.submit(go, work) for work in works]]
