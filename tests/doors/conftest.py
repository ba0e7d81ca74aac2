"""A furnished house for every test, and a folder to be in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import postgres_url
from tests.operations.house import House, furnished

__all__ = ["here", "house", "postgres_url"]


@pytest.fixture
def house() -> House:
    return furnished()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder: a command without a store never meets somebody else's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
