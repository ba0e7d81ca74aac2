"""A lock held by one thread. A second acquisition by the same thread raises instead of deadlocking."""

from __future__ import annotations

import threading

from timewright.errors import NotAllowed


class WriterLock:
    """The right to use the writing connection."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._holder = 0

    def __enter__(self) -> None:
        self.check_not_held()
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self.release()

    def check_not_held(self) -> None:
        """Raise if the calling thread holds the lock."""
        if self._holder == threading.get_ident():
            raise NotAllowed(
                f"{self._path}: a transaction is open on this thread",
                field="store",
                value=self._path,
                rule="one transaction at a time per thread; a second would wait for the first forever",
                fix="use the transaction passed to the work, or wait until it has ended",
            )

    @property
    def is_held(self) -> bool:
        """Whether a thread holds the lock."""
        return self._lock.locked()

    def try_acquire(self) -> bool:
        """Acquire the lock without waiting; returns whether it was free."""
        if not self._lock.acquire(blocking=False):
            return False
        self._holder = threading.get_ident()
        return True

    def release(self) -> None:
        """Release the lock."""
        self._holder = 0
        self._lock.release()
