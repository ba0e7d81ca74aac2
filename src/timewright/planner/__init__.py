"""Advises. A client of the operations, never of the engine."""
