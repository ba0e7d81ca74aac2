"""A scene for each story: a folder of its own, and the server that the conformance suite starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import postgres_url
from timewright.testing.faults.story import Scene

__all__ = ["postgres_url"]


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(tmp_path, lambda: str(request.getfixturevalue("postgres_url")))
