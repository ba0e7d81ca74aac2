"""Targets act: each turns a launch into an outcome, and never raises."""
