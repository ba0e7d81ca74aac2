"""Calendars, and how they allow, exclude or move the occurrences of a trigger."""

from __future__ import annotations

from timewright.core.calendars.calendar import Calendar, CalendarSource, DateRange, Span, WeeklyHours
from timewright.core.calendars.occurrences import (
    CalendarRule,
    Roll,
    allowed_after,
    build_filter,
    check_calendar_rule,
    occurrence_after,
    occurrence_before,
)
from timewright.core.calendars.rolling import Occurrence

__all__ = [
    "Calendar",
    "CalendarRule",
    "CalendarSource",
    "DateRange",
    "Occurrence",
    "Roll",
    "Span",
    "WeeklyHours",
    "allowed_after",
    "build_filter",
    "check_calendar_rule",
    "occurrence_after",
    "occurrence_before",
]
