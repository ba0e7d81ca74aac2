"""A store that measures its verbs: the same store, and how long each of them took."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, cast

from timewright.ports import Store, Transaction
from timewright.ports.glimpse import Glimpses

T = TypeVar("T")
Measure = Callable[[str, float], None]

# No verbs: what it took to open, wait for and keep the transaction around them.
WHOLE = {"read": "read (whole)", "write": "write (whole)"}


class TimedStore:
    """Hands on every question, and tells how long its answer took."""

    def __init__(self, store: Store, *, measure: Measure, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._measure = measure
        self._monotonic = monotonic

    def now(self) -> datetime:
        """The store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one durable transaction, and measure it and its verbs."""
        return self.timed("write", lambda: self._store.write(lambda tx: work(self._watched(tx))))

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent picture of the store, and measure it and its verbs."""
        return self.timed("read", lambda: self._store.read(lambda tx: work(self._watched(tx))))

    @property
    def glimpses(self) -> Glimpses | None:
        """Reads that are over at once, where the store has them, measured as well."""
        glimpses: Glimpses | None = getattr(self._store, "glimpses", None)
        return _TimedGlimpses(glimpses, self) if glimpses is not None else None

    def close(self) -> None:
        """Give back every connection."""
        self._store.close()

    def __getattr__(self, name: str) -> Any:
        # What one database can and another cannot: it is asked for by name.
        return getattr(self._store, name)

    def _watched(self, tx: Transaction) -> Transaction:
        return cast(Transaction, _Watched(tx, measure=self._measure, monotonic=self._monotonic))

    def timed(self, name: str, ask: Callable[[], T]) -> T:
        """Ask, and measure the whole of it."""
        began = self._monotonic()
        try:
            return ask()
        finally:
            self._measure(WHOLE[name], self._monotonic() - began)


class _TimedGlimpses:
    """Reads that are over at once, measured as a whole: to measure each verb costs as much as the verb."""

    def __init__(self, glimpses: Glimpses, timed: TimedStore) -> None:
        self._glimpses = glimpses
        self._timed = timed
        self.now = glimpses.now
        self.stamp = glimpses.stamp

    def look(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent picture of the store, and measure it."""
        return self._timed.timed("read", lambda: self._glimpses.look(work))


class _Watched:
    """A transaction whose verbs are measured."""

    __slots__ = ("_measure", "_monotonic", "_tx")

    def __init__(self, tx: Transaction, *, measure: Measure, monotonic: Callable[[], float]) -> None:
        self._tx = tx
        self._measure = measure
        self._monotonic = monotonic

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._tx, verb)
        measure, monotonic = self._measure, self._monotonic

        def timed(*given: Any, **named: Any) -> Any:
            began = monotonic()
            try:
                return found(*given, **named)
            finally:
                measure(verb, monotonic() - began)

        return timed
