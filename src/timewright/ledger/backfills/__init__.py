"""Backfills: past occurrences run again, at a pace, until they are paused, cancelled or done."""
