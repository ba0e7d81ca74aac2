"""Calendars: their days and sources, and the iCalendar feed of schedules."""
