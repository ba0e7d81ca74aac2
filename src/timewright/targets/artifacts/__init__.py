"""Artifacts: data of runs that is too large for a result."""
