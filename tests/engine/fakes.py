"""Fakes: a store with injected failures, wakers under control of the test, and broken targets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from timewright.core.run.run import Outcome
from timewright.errors import OutcomeUnknown, StoreUnavailable
from timewright.ports import Launch, RunHandle, Store, Transaction
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock
from timewright.testing.targets import ScriptedTarget

T = TypeVar("T")
TIMEOUT_S = 60.0


class FaultyStore:
    """A store in memory whose next calls can be made to fail or to block."""

    def __init__(self, clock: ManualClock) -> None:
        self._store: Store = SqliteStore(":memory:", clock=clock)
        self._clock = clock
        self.failing_writes = 0
        self.failing_reads = 0
        self.lost_answers = 0
        self.write_takes = timedelta(0)
        self.error: Exception = StoreUnavailable("the store is unavailable")
        self.open = threading.Event()
        self.open.set()
        self.asked = 0

    def now(self) -> datetime:
        self.asked += 1
        assert self.open.wait(TIMEOUT_S)
        return self._store.now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        assert self.open.wait(TIMEOUT_S)
        if self.failing_writes:
            self.failing_writes -= 1
            raise self.error
        answer = self._store.write(work, commit_at=commit_at)
        self._clock.advance(self.write_takes)
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("the connection broke at commit")
        return answer

    def read(self, work: Callable[[Transaction], T]) -> T:
        assert self.open.wait(TIMEOUT_S)
        if self.failing_reads:
            self.failing_reads -= 1
            raise self.error
        return self._store.read(work)

    def close(self) -> None:
        self._store.close()


class PacedWaker:
    """A sleep lasts until the test has read its length."""

    def __init__(self) -> None:
        self._rests: queue.Queue[float] = queue.Queue()
        self._end = threading.Semaphore(0)

    def wait(self, seconds: float) -> bool:
        self._rests.put(seconds)
        return self._end.acquire(timeout=TIMEOUT_S)

    def wake(self) -> None:
        self._end.release()

    def next_rest(self) -> float:
        """Wait until the engine sleeps, return the length of the sleep, and wake it."""
        seconds = self._rests.get(timeout=TIMEOUT_S)
        self._end.release()
        return seconds


class PassingWaker:
    """A sleep advances the manual clock and ends the work that is due."""

    def __init__(self, clock: ManualClock, target: ScriptedTarget) -> None:
        self._clock = clock
        self._target = target

    def wait(self, seconds: float) -> bool:
        self._clock.advance(seconds=seconds)
        self._target.finish_due()
        return False

    def wake(self) -> None:
        pass


class CountingWaker:
    """Counts wake-ups."""

    def __init__(self) -> None:
        self.woken = 0

    def wait(self, seconds: float) -> bool:
        return False

    def wake(self) -> None:
        self.woken += 1


class Raises:
    """A target whose launch raises."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        raise RuntimeError("the target broke")

    def close(self, *, grace: timedelta) -> None:
        pass


class StoppedInLaunch:
    """A target that receives a stop during its launch."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.reasons: list[str] = []

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
        self._ask()
        return self

    def stop(self, reason: str) -> None:
        self.reasons.append(reason)

    def close(self, *, grace: timedelta) -> None:
        pass


class CannotStop:
    """A target whose work raises on stop."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
        return self

    def stop(self, reason: str) -> None:
        raise RuntimeError("no brakes")

    def close(self, *, grace: timedelta) -> None:
        pass
