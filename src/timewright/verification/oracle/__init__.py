"""Planned instants and policies, computed without the engine's code."""
