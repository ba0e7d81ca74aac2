"""Fixtures: an instance with data, and an empty working directory."""

from __future__ import annotations

from tests.conformance.conftest import clock, database, postgres_place, postgres_template, postgres_url
from tests.interfaces.conftest import harness, here

__all__ = ["clock", "database", "harness", "here", "postgres_place", "postgres_template", "postgres_url"]
