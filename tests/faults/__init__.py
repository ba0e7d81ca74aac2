"""Fault injection on real processes, files, servers and connections."""
