"""An end is in time, whatever the store does, and says what it left behind."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.faults import FaultyStore
from tests.engine.fleet import until
from timewright import Scheduler, every
from timewright.core.run import RunState, Succeeded
from timewright.engine import leave
from timewright.engine.leave import Ending
from timewright.testing.bench import START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import postgres_server
from timewright.testing.targets import hang

NOW = timedelta(0)


class Faulty(Bench):
    """A bench whose store keeps everyone waiting when it is told to."""

    def __init__(self) -> None:
        clock = ManualClock(START)
        self.faults = FaultyStore(clock)
        super().__init__(store=self.faults, clock=clock)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """A bench that runs, with work under way, and little patience at its end."""
    for name in ("LAST_TICK", "AWAY_PATIENCE", "LAST_WORDS"):
        monkeypatch.setattr(leave, name, 0.1)
    bench = Faulty()
    bench.target.script("a", hang())
    bench.schedule("a", every("1h"))
    bench.clock.advance(hours=1)
    bench.loop.start()
    until(lambda: bench.target.under_way, "the work to begin")
    yield bench
    bench.faults.open.set()
    until(lambda: not ours(), "every thread to be gone")


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")]


def stopped(bench: Bench, **options: Any) -> tuple[Ending, float]:
    began = time.monotonic()
    ending = bench.loop.stop(wait=NOW, grace=NOW, **options)
    return ending, time.monotonic() - began


def test_an_end_with_nothing_undone_has_nothing_to_say(bench: Faulty) -> None:
    bench.target.under_way[0].end(Succeeded())
    ending, _ = stopped(bench)
    assert (ending, ending.in_words()) == (Ending(), "")
    assert bench.runs("a")[0].state is RunState.SUCCEEDED


def test_a_store_that_keeps_us_waiting_does_not_keep_us_from_ending(bench: Faulty) -> None:
    bench.faults.open.clear()
    bench.loop.waker.wake()
    ending, seconds = stopped(bench)
    assert seconds < 30, "and not the minute that the store would take"
    assert ending.unwritten == 1
    assert "the store does not answer" in ending.in_words()
    assert "1 runs could not be given back and are left to their leases" in ending.in_words()


def test_an_answer_that_came_while_the_store_is_away_is_counted_as_unwritten(bench: Faulty) -> None:
    bench.faults.open.clear()
    bench.target.under_way[0].end(Succeeded())
    ending, _ = stopped(bench)
    assert ending.unwritten == 1


def test_a_scheduler_whose_server_died_ends_soon_and_says_what_it_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with postgres_server() as server:
        app = Scheduler(server.url())
        app.schedule(every("1s"), name="steady")(lambda: None)
        app.start()
        until(lambda: app.house.loop.pulse.ticks, "the first tick")
        server.kill()
        until(lambda: app.house.loop.pulse.errors_in_a_row, "the trouble to be seen")
        began = time.monotonic()
        app.stop()
        assert time.monotonic() - began < 25, "stop_wait is thirty seconds, and nothing is under way"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "timewright"]
    # It may have died while something was being committed.
    assert re.match(r"stopped, but the store does not answer \((StoreUnavailable|OutcomeUnknown):", said)
    until(lambda: not ours(), "every thread to be gone")
