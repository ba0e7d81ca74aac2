"""What we ask of a store for those who look at schedules again and again: little, and in one go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from timewright.core.schedule import Schedule, Standing
from timewright.ports.rows import Due, Page, ScheduleFilter


class Shown(Struct, frozen=True, gc=False):
    """A schedule as a list shows it: what it says and where it stands, not what it has under way."""

    schedule: Schedule
    standing: Standing


class Look(Struct, frozen=True, gc=False):
    """One schedule, and what else there is about it that would have to be asked for."""

    due: Due
    is_asked_for: bool = True
    """Whether other schedules may wait for its ends."""
    has_made: bool = True
    """Whether someone may have made runs of it for an instant ahead."""
    has_notes: bool = True
    """Whether someone may have written beside an occurrence of it."""


class LookVerbs(Protocol):
    """Verbs that only look; what has not changed since the last look is the same value again."""

    def look_at(self, namespace: str, name: str) -> Look | None:
        """A schedule by its name."""
        ...

    def schedule_names(self, ids: Iterable[str]) -> dict[str, str]:
        """What schedules are called today, by id; also those of which nothing else can be understood."""
        ...

    def list_shown(self, which: ScheduleFilter) -> Page:
        """A page of `Shown` in one namespace, by name; what cannot be understood is named beside them."""
        ...
