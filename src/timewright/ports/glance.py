"""What we ask of a store for those who look at many schedules at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
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


class Past(Struct, frozen=True, gc=False):
    """What is counted of one occurrence behind us: its fate, and how late it began."""

    state: str
    planned_at: datetime
    late_by: timedelta | None


class Counts(Struct, frozen=True, kw_only=True):
    """How many runs stand where somebody looks first."""

    leased: int
    ready: int
    failed: int
    parked: int


class Membership(Struct, frozen=True, kw_only=True):
    """How many schedules of a group stand where."""

    name: str
    schedules: int
    active: int
    paused: int
    parked: int


class GlanceVerbs(Protocol):
    """Verbs that read a little of many schedules; each costs what it gives back."""

    def upcoming(self, namespace: str, *, until: datetime, limit: int) -> list[str]:
        """The ids of the schedules that will be looked at next, the earliest first."""
        ...

    def newest_marks(self, schedule_ids: Iterable[str], *, each: int) -> dict[str, tuple[Mark, ...]]:
        """The newest occurrences of schedules, oldest first, at most `each` of every schedule."""
        ...

    def count_standing(self, namespace: str, *, failed_since: datetime, most: int) -> Counts:
        """How many runs stand in each of those states, each counted up to `most`."""
        ...

    def groups(self, namespace: str, *, after: str, limit: int) -> list[Membership]:
        """The groups that have schedules, by name, from one on; it walks the schedules of the namespace."""
        ...

    def past(self, namespace: str, *, since: datetime, limit: int) -> list[Past]:
        """The occurrences planned since an instant, the newest first."""
        ...
