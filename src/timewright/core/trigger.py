"""What every trigger can be asked; the kinds are in `timewright.core.triggers`."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Trigger(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """When something wants to run: a set of instants, in order, known without looking at a clock."""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first instant strictly after this one, in UTC; nothing when there is none."""
        raise NotImplementedError

    def previous_before(self, moment: datetime) -> datetime | None:
        """The last instant strictly before this one, in UTC; nothing when there is none."""
        raise NotImplementedError

    def between(self, a: datetime, b: datetime, limit: int = 1000) -> tuple[datetime, ...]:
        """The instants after `a`, up to and including `b`, oldest first and at most `limit` of them."""
        found: list[datetime] = []
        moment = self.next_after(a)
        while moment is not None and moment <= b and len(found) < limit:
            found.append(moment)
            moment = self.next_after(moment)
        return tuple(found)

    def describe(self) -> str:
        """The same in plain words."""
        raise NotImplementedError
