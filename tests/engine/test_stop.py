"""A stop waits for runs in flight, cancels the rest, and releases their leases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.engine_kit import (
    SECOND,
    FaultyBench,
    attempts,
    bench,
    count_facts,
    faulty,
    nothing_left,
    start_run,
    the_run,
)
from tests.engine.fakes import (
    CannotStop,
    PassingWaker,
)
from tests.faults.tools.worker_fleet import wait_until
from timewright.core.facts import (
    AnswerStale,
    AttemptStarted,
    RunLeased,
    RunReleased,
    RunSucceeded,
    TickFinished,
)
from timewright.core.policies.policies import Delivery
from timewright.core.recurrence.triggers import every
from timewright.core.run.run import Outcome, RunState, Succeeded
from timewright.ports import Launch
from timewright.testing.bench import Bench
from timewright.testing.targets import hang, succeed, vanish

__all__ = ["bench", "faulty", "nothing_left"]


def stoppable(**options: Any) -> FaultyBench:
    bench = FaultyBench(**options)
    bench.loop.waker = PassingWaker(bench.clock, bench.target)
    return bench


def test_a_stop_waits_for_work_that_ends_in_time_and_writes_how_it_did() -> None:
    bench = stoppable()
    bench.target.script("a", succeed(after=3 * SECOND))
    start_run(bench, "a")
    began = bench.now
    bench.loop.stop(wait=30 * SECOND)
    assert the_run(bench, "a").state is RunState.SUCCEEDED
    assert bench.now - began == pytest.approx(3 * SECOND, abs=SECOND / 10)
    assert count_facts(bench, RunSucceeded) == 1


def test_a_stop_cancels_long_work_and_releases_it_without_an_attempt() -> None:
    bench = stoppable()
    bench.target.script("a", hang())
    start_run(bench, "a")
    began = bench.now
    bench.loop.stop(wait=2 * SECOND)
    (released,) = attempts(bench, "a")
    assert (released.outcome, released.charged, released.error) == ("released", False, "released at stop")
    run = the_run(bench, "a")
    assert (run.state, run.attempts, run.reason) == (RunState.READY, 0, "released at stop")
    assert bench.now - began < 3 * SECOND
    assert count_facts(bench, RunReleased) == 1
    assert count_facts(bench, AnswerStale) == 0


def test_work_that_ignores_a_stop_delays_it_only_up_to_the_limit() -> None:
    bench = stoppable()
    bench.target.script("a", vanish())
    start_run(bench, "a")
    (deaf,) = bench.target.under_way
    began = bench.now
    bench.loop.stop(wait=2 * SECOND, grace=4 * SECOND)
    assert bench.now - began == pytest.approx(6 * SECOND, abs=SECOND / 5)
    assert [a.outcome for a in attempts(bench, "a")] == ["released"]
    assert len(bench.loop.launcher) == 0
    deaf.end(Succeeded())
    assert not bench.loop.launcher.results, "nobody listens any more"


def test_an_at_most_once_run_is_parked_at_stop_and_not_released() -> None:
    bench = stoppable()
    bench.target.script("a", hang())
    start_run(bench, "a", delivery=Delivery.AT_MOST_ONCE)
    bench.loop.stop(wait=timedelta(0))
    assert (the_run(bench, "a").state, the_run(bench, "a").reason) == (RunState.PARKED, "unknown")


def test_nothing_new_is_leased_once_a_stop_has_begun() -> None:
    bench = stoppable()
    bench.schedule("a", every("1h"))
    bench.clock.advance(hours=1)
    bench.loop.stop(wait=timedelta(0))
    bench.loop.step()
    assert the_run(bench, "a").state is RunState.READY, "it is decided, and waits for another"
    assert bench.target.launched == []


def test_a_stop_without_a_store_ends_and_lets_the_leases_expire() -> None:
    bench = stoppable()
    bench.target.script("a", hang())
    start_run(bench, "a")
    bench.faults.failing_writes = 1_000_000
    bench.loop.stop(wait=SECOND)
    bench.faults.failing_writes = 0
    assert the_run(bench, "a").state is RunState.LEASED
    assert bench.loop.health.last_error == "StoreUnavailable: the store is unavailable"


def test_no_thread_is_left_after_a_stop(bench: Bench) -> None:
    before = threading.active_count()
    bench.loop.start()
    names = {thread.name for thread in threading.enumerate()}
    assert names >= {"timewright-tick", "timewright-renew", "timewright-watch"}
    wait_until(lambda: bench.loop.health.ticks, "the first tick")
    bench.loop.stop(wait=timedelta(0))
    assert threading.active_count() == before


def test_the_renewal_does_not_spin_while_the_stop_waits(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    faulty.schedule("a", every("1h"))
    faulty.clock.advance(hours=1)
    faulty.loop.start()
    wait_until(lambda: faulty.target.under_way, "the work to begin")
    stopping = threading.Thread(target=faulty.loop.stop)
    stopping.start()
    wait_until(faulty.loop._workers_ended.is_set, "the last tick")
    asked = faulty.faults.asked
    threading.Event().wait(0.5)
    assert faulty.faults.asked - asked <= 2
    faulty.target.under_way[0].end(Succeeded())
    stopping.join()
    assert the_run(faulty, "a").state is RunState.SUCCEEDED


def test_observers_receive_the_start_of_a_short_run_before_its_end() -> None:
    bench = Bench()
    bench.loop.settles_inline = False
    bench.schedule("a", every("1h"))
    settling = threading.Thread(target=bench.loop.settle_thread.settle_results)

    class Quick:
        """A target whose work has ended and is settled before its launch returns."""

        def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
            done(Succeeded())
            settling.start()
            wait_until(lambda: the_run(bench, "a").state is RunState.SUCCEEDED, "the end to be written")
            return CannotStop()

        def close(self, *, grace: timedelta) -> None:
            pass

    bench.loop.launcher._targets = {"note": Quick()}
    bench.clock.advance(hours=1)
    bench.loop.step()
    settling.join()
    order = [
        type(fact) for fact in bench.facts if isinstance(fact, RunLeased | AttemptStarted | RunSucceeded)
    ]
    assert order == [RunLeased, AttemptStarted, RunSucceeded]


def test_only_a_tick_that_did_something_sends_a_summary(bench: Bench) -> None:
    bench.schedule("a", every("1m"))
    bench.loop.step()
    assert count_facts(bench, TickFinished) == 0
    bench.advance(minutes=1)
    finished = [fact for fact in bench.facts if isinstance(fact, TickFinished)]
    assert [(fact.admitted, fact.settled) for fact in finished] == [(1, 0), (0, 1)]
