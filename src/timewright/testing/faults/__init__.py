"""Faults on purpose, on real processes, files, servers and connections; what was promised is counted."""
