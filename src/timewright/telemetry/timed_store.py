"""A store that measures the duration of its queries and transactions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, cast

from timewright.ports import Store, Transaction
from timewright.ports.store import NonBlockingReader

T = TypeVar("T")
Measure = Callable[[str, float], None]

# Labels for whole transactions: opening, waiting, queries and commit.
TRANSACTION_LABELS = {"read": "read (whole)", "write": "write (whole)"}


class TimedStore:
    """Forwards every call to a store and reports its duration."""

    def __init__(self, store: Store, *, measure: Measure, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._measure = measure
        self._monotonic = monotonic

    def now(self) -> datetime:
        """The store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction, and measure it and its queries."""
        return self.measure_call(
            "write",
            lambda: self._store.write(lambda tx: work(self._timed_transaction(tx)), commit_at=commit_at),
        )

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent snapshot, and measure it and its queries."""
        return self.measure_call(
            "read", lambda: self._store.read(lambda tx: work(self._timed_transaction(tx)))
        )

    @property
    def nonblocking_reader(self) -> NonBlockingReader | None:
        """The store's non-blocking reader, measured, if it has one."""
        nonblocking_reader: NonBlockingReader | None = getattr(self._store, "nonblocking_reader", None)
        return _TimedReader(nonblocking_reader, self) if nonblocking_reader is not None else None

    def close(self) -> None:
        """Close every connection."""
        self._store.close()

    def __getattr__(self, name: str) -> Any:
        # Optional methods that only some stores have.
        return getattr(self._store, name)

    def _timed_transaction(self, tx: Transaction) -> Transaction:
        return cast(Transaction, _TimedTransaction(tx, measure=self._measure, monotonic=self._monotonic))

    def measure_call(self, name: str, call: Callable[[], T]) -> T:
        """Run `call` and report its duration."""
        began = self._monotonic()
        try:
            return call()
        finally:
            self._measure(TRANSACTION_LABELS[name], self._monotonic() - began)


class _TimedReader:
    """A measured non-blocking reader.

    Only whole reads are measured: timing each query costs as much as the query.
    """

    def __init__(self, nonblocking_reader: NonBlockingReader, timed: TimedStore) -> None:
        self._nonblocking_reader = nonblocking_reader
        self._timed = timed
        self.now = nonblocking_reader.now
        self.data_version = nonblocking_reader.data_version

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent snapshot, and measure it."""
        return self._timed.measure_call("read", lambda: self._nonblocking_reader.read(work))


class _TimedTransaction:
    """A transaction whose queries are measured."""

    __slots__ = ("_measure", "_monotonic", "_tx")

    def __init__(self, tx: Transaction, *, measure: Measure, monotonic: Callable[[], float]) -> None:
        self._tx = tx
        self._measure = measure
        self._monotonic = monotonic

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        measure, monotonic = self._measure, self._monotonic

        def timed(*given: Any, **named: Any) -> Any:
            began = monotonic()
            try:
                return found(*given, **named)
            finally:
                measure(name, monotonic() - began)

        return timed
