"""Fixtures for tests of runs."""

from __future__ import annotations

import pytest

from tests.conformance.support.builders import (
    make_schedule,
    put,
    schedule_write,
)
from timewright.ports import Store


@pytest.fixture
def nightly(store: Store) -> str:
    schedule = make_schedule("nightly")
    put(store, schedule_write(schedule))
    return schedule.id
