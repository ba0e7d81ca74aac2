"""When a schedule runs: the base class of triggers; the kinds are in `triggers`."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import force_setattr

from timewright.core.zones import DEFAULT_ZONE, check_zone, name_of_zone


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


class ZonedTrigger(Trigger, frozen=True, dict=True):
    """A trigger of wall-clock times. Without a zone it uses UTC, and a schedule its default zone."""

    @property
    def names_zone(self) -> bool:
        """Whether it was made with a zone."""
        return not self.__dict__.get("zone_is_default", False)

    @property
    def zone_words(self) -> str:
        zone: str = getattr(self, "zone")  # noqa: B009 - a field of the subclasses
        return zone if zone == "UTC" else f"{zone} time"

    def _set_zone(self, zone: object) -> None:
        """Set the zone from a name or a `ZoneInfo`; called once, when the trigger is made."""
        if zone == DEFAULT_ZONE:
            self.__dict__["zone_is_default"] = True
        force_setattr(self, "zone", "UTC" if zone == DEFAULT_ZONE else check_zone(name_of_zone(zone)))
