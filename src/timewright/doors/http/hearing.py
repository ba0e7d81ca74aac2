"""Hears of what other processes write into the same store, for as long as anyone here listens."""

from __future__ import annotations

import threading
from collections.abc import Callable

from timewright.errors import TimewrightError
from timewright.ports import Ear


class Hearing:
    """A thread that says when something has changed; it says not what, because the store does not tell."""

    def __init__(self, ear: Callable[[], Ear | None], *, changed: Callable[[], None]) -> None:
        self._new_ear = ear
        self._changed = changed
        self._guard = threading.Lock()
        self._ear: Ear | None = None

    def begin(self) -> None:
        """Begin to hear; a store that nobody else can write to has no ear."""
        with self._guard:
            if self._ear is not None:
                return
            self._ear = self._new_ear()
            if self._ear is not None:
                threading.Thread(
                    target=self._hear, args=(self._ear,), name="timewright-overhear", daemon=True
                ).start()

    def end(self) -> None:
        """Hear no longer."""
        with self._guard:
            ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()

    def _hear(self, ear: Ear) -> None:
        try:
            for _ in ear.calls():
                self._changed()
        except TimewrightError:
            # The store is away; whoever listens looks again by itself.
            return
