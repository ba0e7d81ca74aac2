"""Fixtures for the tests of those who use Timewright; pytest finds them by itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# What the fixtures need is imported when one is asked for: every test run of the machine loads this file.
if TYPE_CHECKING:
    from timewright import Scheduler
    from timewright.ports import Store
    from timewright.testing.bench import Bench
    from timewright.testing.clock import ManualClock


@pytest.fixture
def timewright_clock() -> ManualClock:
    """A clock that stands at noon of 10 March 2026, UTC, until it is moved."""
    from timewright.testing.bench import START
    from timewright.testing.clock import ManualClock

    return ManualClock(START)


@pytest.fixture
def timewright_store(timewright_clock: ManualClock) -> Iterator[Store]:
    """An empty store in memory that goes by that clock."""
    from timewright.stores.sqlite import SqliteStore

    store = SqliteStore(":memory:", clock=timewright_clock)
    yield store
    store.close()


@pytest.fixture
def timewright_bench(timewright_clock: ManualClock, timewright_store: Store) -> Bench:
    """A whole instance by hand, on that clock and in that store: `timewright_bench.advance(hours=3)`."""
    from timewright.testing.bench import Bench

    return Bench(clock=timewright_clock, store=timewright_store)


@pytest.fixture
def timewright_scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler of its own in real time, on a file that is gone with the test; it is stopped at the end."""
    from timewright import Scheduler

    scheduler = Scheduler(tmp_path / "timewright.db")
    yield scheduler
    scheduler.stop(wait=timedelta(0))
