"""Fixtures: a harness with sample data, and an empty working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import postgres_url
from tests.operations.harness import OperationsHarness, sample_harness

__all__ = ["harness", "here", "postgres_url"]


@pytest.fixture
def harness() -> OperationsHarness:
    return sample_harness()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty directory, so that commands do not find another store."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
