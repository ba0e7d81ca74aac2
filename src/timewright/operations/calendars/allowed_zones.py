"""Check that schedules and calendars use only the time zones that the settings allow."""

from __future__ import annotations

from collections.abc import Iterable

from timewright.core.recurrence.triggers import ZONED_TRIGGERS, AnyOf
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidZone
from timewright.settings import Settings


def check_schedule_zones(settings: Settings, schedule: Schedule) -> None:
    """Reject a schedule whose triggers use a zone that is not allowed."""
    trigger = schedule.trigger
    parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
    check_zones_allowed(
        settings, (part.zone for part in parts if isinstance(part, ZONED_TRIGGERS)), field="trigger.zone"
    )


def check_zones_allowed(settings: Settings, zones: Iterable[str], *, field: str) -> None:
    """Reject a zone that is not in the settings' list; an empty list allows all."""
    for zone in zones:
        if settings.allowed_zones and zone not in settings.allowed_zones:
            raise InvalidZone(
                f"zone {zone} is not allowed here",
                field=field,
                value=zone,
                rule=f"one of: {', '.join(settings.allowed_zones[:20])}",
                fix=settings.allowed_zones[0],
            )
