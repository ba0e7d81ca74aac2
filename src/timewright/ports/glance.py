"""What we ask of a store for those who look at many schedules at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class Mark(Struct, frozen=True, kw_only=True):
    """One occurrence as a strip shows it: its fate, and where its run is found."""

    run: str
    schedule_id: str
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: str
    reason: str
    dropped: int = 0


class GlanceVerbs(Protocol):
    """Verbs that read a little of many schedules; each costs what it gives back."""

    def upcoming(self, namespace: str, *, until: datetime, limit: int) -> list[str]:
        """The ids of the schedules that will be looked at next, the earliest first."""
        ...

    def newest_marks(self, schedule_ids: Iterable[str], *, each: int) -> dict[str, tuple[Mark, ...]]:
        """The newest occurrences of schedules, oldest first, at most `each` of every schedule."""
        ...
