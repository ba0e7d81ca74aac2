"""A furnished house with an HTTP door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doors.http.visitor import Visitor, visiting
from tests.operations.house import House, furnished


@pytest.fixture
def house() -> House:
    return furnished()


@pytest.fixture
def visitor(house: House) -> Iterator[Visitor]:
    """Someone with every scope."""
    with visiting(house) as found:
        yield found
