"""Names of schedules by id, for everything that shows a fact to a person."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from timewright.errors import TimewrightError
from timewright.ports.store import Store

MAX_CACHED_NAMES = 10_000
CACHE_TTL_S = 30.0


class ScheduleNames:
    """Looks up names of schedules; cached for 30 s, because schedules can be renamed."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._names: dict[str, str] = {}
        self._expires_at = 0.0

    def __call__(self, schedule_id: str) -> str:
        """The name of a schedule; empty if it is unknown or the store does not answer."""
        now = time.monotonic()
        if now >= self._expires_at or len(self._names) >= MAX_CACHED_NAMES:
            self._names, self._expires_at = {}, now + CACHE_TTL_S
        names = self._names
        if schedule_id and schedule_id not in names:
            with suppress(TimewrightError):
                names[schedule_id] = self._read(schedule_id)
        return names.get(schedule_id, "")


def names_in(store: Store) -> ScheduleNames:
    """The names of the schedules in a store."""

    def read(schedule_id: str) -> str:
        return store.read(lambda tx: tx.get_schedule_names([schedule_id])).get(schedule_id, "")

    return ScheduleNames(read)
