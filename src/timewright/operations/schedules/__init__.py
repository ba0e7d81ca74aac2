"""Schedules: read, write, pause, run manually, group, annotate, approve and declare."""
