"""The PostgreSQL server that the conformance suite starts serves the examples too."""

from __future__ import annotations

from tests.conformance.conftest import postgres_url

__all__ = ["postgres_url"]
