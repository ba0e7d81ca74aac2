"""One thread at a time; one that has its turn already is refused, where it would wait for itself."""

from __future__ import annotations

import threading

from timewright.errors import NotAllowed


class Turn:
    """The right to use a connection, held by one thread."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._holder = 0

    def __enter__(self) -> None:
        self.refuse_twice()
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self.release()

    def refuse_twice(self) -> None:
        """Refuse the thread whose turn it is."""
        if self._holder == threading.get_ident():
            raise NotAllowed(
                f"{self._place}: a transaction is open on this thread",
                field="store",
                value=self._place,
                rule="one transaction at a time on a thread: a second would wait for the first without end",
                fix="use the transaction that was given to the work, or wait until it is over",
            )

    @property
    def is_taken(self) -> bool:
        """Whether somebody has the turn."""
        return self._lock.locked()

    def try_take(self) -> bool:
        """Take the turn if it is free, without waiting; says whether it was."""
        if not self._lock.acquire(blocking=False):
            return False
        self._holder = threading.get_ident()
        return True

    def release(self) -> None:
        """Let the next one have its turn."""
        self._holder = 0
        self._lock.release()
