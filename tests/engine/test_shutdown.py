"""A shutdown ends in time even if the store blocks, and reports what is left."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.fakes import FaultyStore
from tests.faults.tools.worker_fleet import wait_until
from timewright import Scheduler, every
from timewright.core.run.run import RunState, Succeeded
from timewright.engine import shutdown
from timewright.engine.shutdown import ShutdownReport
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import postgres_server
from timewright.testing.targets import hang

NOW = timedelta(0)


class Faulty(Bench):
    """A bench whose store can be made to block."""

    def __init__(self) -> None:
        clock = ManualClock(DEFAULT_START)
        self.faults = FaultyStore(clock)
        super().__init__(store=self.faults, clock=clock)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """A running bench with work in flight and short shutdown limits."""
    for name in ("CHECK_INTERVAL", "DEFAULT_STOP_GRACE"):
        monkeypatch.setattr(shutdown, name, timedelta(seconds=0.1))
    monkeypatch.setattr(shutdown, "MAX_LAST_TICK_S", 0.1)
    bench = Faulty()
    bench.target.script("a", hang())
    bench.schedule("a", every("1h"))
    bench.clock.advance(hours=1)
    bench.loop.start()
    wait_until(lambda: bench.target.under_way, "the work to begin")
    yield bench
    bench.faults.open.set()
    wait_until(lambda: not ours(), "every thread to be gone")


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")]


def stopped(bench: Bench, **options: Any) -> tuple[ShutdownReport, float]:
    began = time.monotonic()
    ending = bench.loop.stop(wait=NOW, grace=NOW, **options)
    return ending, time.monotonic() - began


def test_a_clean_shutdown_report_is_empty(bench: Faulty) -> None:
    bench.target.under_way[0].end(Succeeded())
    ending, _ = stopped(bench)
    assert (ending, ending.describe()) == (ShutdownReport(), "")
    assert bench.runs("a")[0].state is RunState.SUCCEEDED


def test_a_blocking_store_does_not_prevent_shutdown(bench: Faulty) -> None:
    bench.faults.open.clear()
    bench.loop.waker.wake()
    ending, seconds = stopped(bench)
    assert seconds < 30, "and not the minute that the store would take"
    assert ending.unwritten_results == 1
    assert "the store does not respond" in ending.describe()
    assert "1 runs could not be released; they wait until their leases expire" in ending.describe()


def test_a_result_during_a_store_outage_is_reported_as_unwritten(bench: Faulty) -> None:
    bench.faults.open.clear()
    bench.target.under_way[0].end(Succeeded())
    ending, _ = stopped(bench)
    assert ending.unwritten_results == 1


def test_a_scheduler_with_a_dead_server_stops_soon_and_reports_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with postgres_server() as server:
        app = Scheduler(server.url())
        app.schedule(every("1s"), name="steady")(lambda: None)
        app.start()
        wait_until(lambda: app.instance.loop.health.ticks, "the first tick")
        server.kill()
        wait_until(lambda: app.instance.loop.health.errors_in_a_row, "the trouble to be seen")
        began = time.monotonic()
        app.stop()
        assert time.monotonic() - began < 25, "stop_wait is thirty seconds, and nothing is under way"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "timewright"]
    # The server may have died during a commit.
    assert re.match(
        r"stopped on \S+, but the store does not respond \((StoreUnavailable|OutcomeUnknown):", said
    )
    wait_until(lambda: not ours(), "every thread to be gone")
