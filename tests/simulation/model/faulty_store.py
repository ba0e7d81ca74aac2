"""The store as one actor sees it: calls may fail, and every commit is recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.model.recording_transaction import RecordingTransaction
from timewright.errors import StoreUnavailable
from timewright.ports.store import ClockDoubt

if TYPE_CHECKING:
    from tests.simulation.model.actors import SimulatedActor

T = TypeVar("T")


class FaultyStore:
    """Runs one call at a time: no other actor runs until the call ends or time passes inside it."""

    def __init__(self, actor: SimulatedActor, store: Any) -> None:
        self.inner = store
        self._actor = actor
        self._sim = actor.sim

    def lead_time(self, rows: int) -> timedelta:
        """The store's lead time."""
        lead: timedelta = self.inner.lead_time(rows)
        return lead

    def now(self) -> datetime:
        """The store's clock."""
        now: datetime = self.inner.now()
        return now

    @property
    def clock_doubt(self) -> ClockDoubt | None:
        """The reading of the clock that the store does not use, if there is one."""
        doubt: ClockDoubt | None = self.inner.clock_doubt
        return doubt

    def write(self, work: Callable[[Any], T], *, commit_at: datetime | None = None) -> T:
        """Run one recorded transaction; faults may strike before or after it."""
        sim, actor, name = self._sim, self._actor, transaction_name(work)
        self._check_reachable()
        if sim.faults.is_active:
            sim.faults.before_transaction(actor, name)
        transaction: RecordingTransaction | None = None

        def recorded(tx: Any) -> T:
            nonlocal transaction
            transaction = sim.record_transaction(actor, name, tx)
            before = transaction.change_count()
            answer = work(transaction)
            transaction.changed = transaction.change_count() != before
            return answer

        answer: T = self.inner.write(recorded, commit_at=commit_at)
        if transaction is not None:
            sim.on_commit(transaction)
        if sim.faults.is_active:
            sim.faults.after_transaction(actor, name)
        return answer

    def read(self, work: Callable[[Any], T]) -> T:
        """Read one snapshot."""
        self._check_reachable()
        if self._sim.faults.is_active:
            self._sim.faults.before_transaction(self._actor, transaction_name(work))
        answer: T = self.inner.read(work)
        return answer

    def close(self) -> None:
        """Do nothing: the simulation closes the store."""

    def _check_reachable(self) -> None:
        sim = self._sim
        if sim.time.at < sim.store_down_until or sim.time.at < self._actor.partitioned_until:
            sim.count("store unavailable")
            raise StoreUnavailable("the store is down")


def transaction_name(work: Callable[[Any], Any]) -> str:
    """The name of a transaction: the function that runs it."""
    return work.__qualname__.partition(".<locals>")[0]
