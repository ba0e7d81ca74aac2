"""Fixtures of the fault scenarios: a folder for each, and the PostgreSQL server of the conformance tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import postgres_url
from tests.faults.scenario import FaultEnvironment

__all__ = ["postgres_url"]


@pytest.fixture
def environment(tmp_path: Path, request: pytest.FixtureRequest) -> FaultEnvironment:
    """Faults are held for two seconds here, and for eight by `python3 dev.py faults`."""
    return FaultEnvironment(tmp_path, lambda: str(request.getfixturevalue("postgres_url")), held_s=2.0)
