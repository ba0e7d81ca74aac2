"""Which time zones schedules and calendars may name, if the house allows only some."""

from __future__ import annotations

from collections.abc import Iterable

from timewright.core.schedule import Schedule
from timewright.core.triggers import ZONED, AnyOf
from timewright.errors import InvalidZone
from timewright.settings import Settings


def check_zones(settings: Settings, schedule: Schedule) -> None:
    """Refuse a schedule whose expressions are in a zone that is not on the list."""
    trigger = schedule.trigger
    parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
    check_allowed(settings, (part.zone for part in parts if isinstance(part, ZONED)), field="trigger.zone")


def check_allowed(settings: Settings, zones: Iterable[str], *, field: str) -> None:
    """Refuse a zone that is not on the list; an empty list allows all of them."""
    for zone in zones:
        if settings.zones and zone not in settings.zones:
            raise InvalidZone(
                f"zone {zone} is not allowed here",
                field=field,
                value=zone,
                rule=f"one of: {', '.join(settings.zones[:20])}",
                fix=settings.zones[0],
            )
