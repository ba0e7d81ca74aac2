"""Workflows: definitions, their versions and schedules, and their runs."""
