"""Recurrence."""
