"""Fixtures of the store tests."""

from __future__ import annotations

from tests.conformance.conftest import postgres_url

__all__ = ["postgres_url"]
