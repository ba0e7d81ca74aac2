"""pytest fixtures for users of Timewright; pytest finds them through the entry point."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Imported inside the fixtures, because every pytest run on the machine loads this file.
if TYPE_CHECKING:
    from timewright import Scheduler
    from timewright.ports import Store
    from timewright.testing.bench import Bench
    from timewright.testing.clock import ManualClock


@pytest.fixture
def timewright_clock() -> ManualClock:
    """A manual clock at noon of 10 March 2026, UTC."""
    from timewright.testing.bench import DEFAULT_START
    from timewright.testing.clock import ManualClock

    return ManualClock(DEFAULT_START)


@pytest.fixture
def timewright_store(timewright_clock: ManualClock) -> Iterator[Store]:
    """An empty store in memory that uses `timewright_clock`."""
    from timewright.stores.sqlite.store import SqliteStore

    store = SqliteStore(":memory:", clock=timewright_clock)
    yield store
    store.close()


@pytest.fixture
def timewright_bench(timewright_clock: ManualClock, timewright_store: Store) -> Bench:
    """An instance driven by hand on that clock and store: `timewright_bench.advance(hours=3)`."""
    from timewright.testing.bench import Bench

    return Bench(clock=timewright_clock, store=timewright_store)


@pytest.fixture
def timewright_scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler in real time on a temporary file; stopped at the end of the test."""
    from timewright import Scheduler

    scheduler = Scheduler(tmp_path / "timewright.db")
    yield scheduler
    scheduler.stop(wait=timedelta(0))
