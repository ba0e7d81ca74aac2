"""Observers: facts become log lines, metrics and traces. Nothing here decides or stores anything."""
