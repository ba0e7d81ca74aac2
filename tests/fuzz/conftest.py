"""A house that is furnished, and an empty folder to be in."""

from __future__ import annotations

from tests.conformance.conftest import clock, database, postgres_place, postgres_template, postgres_url
from tests.doors.conftest import here, house

__all__ = ["clock", "database", "here", "house", "postgres_place", "postgres_template", "postgres_url"]
