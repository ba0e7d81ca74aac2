"""Pauses: which of them hold for schedules and runs, and those that the clock sets."""
