"""Runs: list, cancel, retry, report, logs and trends of results."""
