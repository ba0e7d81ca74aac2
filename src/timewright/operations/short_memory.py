"""What was read a moment ago: forgotten soon, and at once when it is changed here."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")

# For so long another process may still go by what a key or a namespace was.
LIVES = 2.0
MOST = 10_000


class ShortMemory(Generic[T]):
    """Values by name, each for a short while; safe from any thread, and it never waits for anyone."""

    def __init__(self, *, lives: float = LIVES, most: int = MOST) -> None:
        self._lives = lives
        self._most = most
        self._kept: dict[str, tuple[T, float]] = {}
        self._guard = threading.Lock()
        self.changes = 0

    def recall(self, name: str, *, at: float) -> T | None:
        """What is remembered under a name, unless that was too long ago."""
        found = self._kept.get(name)
        return found[0] if found is not None and 0 <= at - found[1] < self._lives else None

    def remember(self, name: str, value: T, *, at: float, since: int) -> None:
        """Keep what was read, unless something has changed since; `since` is `changes` from before it was."""
        with self._guard:
            if since != self.changes:
                return
            if len(self._kept) >= self._most:
                self._kept.clear()
            self._kept[name] = (value, at)

    def forget(self) -> None:
        """Something has changed: nothing of before is true for sure, nor is what is being read right now."""
        with self._guard:
            self.changes += 1
            self._kept = {}
