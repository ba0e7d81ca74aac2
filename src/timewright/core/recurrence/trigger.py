"""Base class of triggers; the kinds are in `timewright.core.recurrence.triggers`."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Trigger(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """An ordered set of instants that does not depend on the current time."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first instant strictly after this one, in UTC, or None."""
        raise NotImplementedError

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the last instant strictly before this one, in UTC, or None."""
        raise NotImplementedError

    def between(self, a: datetime, b: datetime, limit: int = 1000) -> tuple[datetime, ...]:
        """Return the instants after `a` up to and including `b`, oldest first, at most `limit`."""
        found: list[datetime] = []
        moment = self.next_after(a)
        while moment is not None and moment <= b and len(found) < limit:
            found.append(moment)
            moment = self.next_after(moment)
        return tuple(found)

    def describe(self) -> str:
        """Return the trigger in words."""
        raise NotImplementedError
