"""Decides. Pure functions over frozen values; `now` is always an argument."""
