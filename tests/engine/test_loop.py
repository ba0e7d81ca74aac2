"""The loop: how long it sleeps, what wakes it, and which faults it survives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.engine.engine_kit import (
    HALF_MINUTE,
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
    PacedWaker,
    Raises,
)
from tests.faults.tools.worker_fleet import wait_until
from timewright.clocks import SystemClock
from timewright.core.facts import (
    Fact,
    RunSucceeded,
)
from timewright.core.policies.backoff import Constant
from timewright.core.policies.policies import CatchUp, Delivery, Retry
from timewright.core.recurrence.triggers import Once, every
from timewright.core.run.run import RunState, Succeeded
from timewright.core.schedule.schedule import ScheduleState
from timewright.engine.constants import ERROR_BACKOFF_S, SETTLE_BATCH_RESULTS, SETTLE_WAIT_S
from timewright.engine.tick import TickLimits
from timewright.engine.waiting import EventWaker
from timewright.errors import StoreUnavailable
from timewright.ledger import admission_batch
from timewright.ledger.lease import lease_ready
from timewright.ports.overview import PendingWork
from timewright.ports.rows import LeasedRuns
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, hang, succeed

__all__ = ["bench", "faulty", "nothing_left"]


# Sleep.


def test_the_loop_sleeps_until_the_next_instant(bench: Bench) -> None:
    bench.schedule("a", every("45s"))
    bench.clock.advance(seconds=5.25)
    assert bench.loop.step() == 39.75


def test_the_loop_sleeps_at_most_a_minute_or_max_sleep(bench: Bench) -> None:
    assert bench.loop.step() == 60.0
    bench.schedule("a", every("7d"))
    assert bench.loop.step() == 60.0
    bench.loop.sleep_plan.max_sleep = 7 * SECOND
    assert bench.loop.step() == 7.0


def test_the_loop_does_not_sleep_while_more_schedules_are_due(bench: Bench) -> None:
    bench.loop.tick.limits = TickLimits(batch=2)
    for number in range(5):
        bench.schedule(f"s{number}", every("1h"))
    bench.clock.advance(hours=1)
    sleeps = [bench.loop.step() for _ in range(4)]
    assert sleeps[:2] == [0.0, 0.0]
    assert sleeps[-1] == 60.0
    assert all(the_run(bench, f"s{number}").state is RunState.SUCCEEDED for number in range(5))


def test_a_sleep_ends_when_any_lease_may_expire(bench: Bench) -> None:
    bench.schedule("theirs", every("1h"), lease=HALF_MINUTE)
    bench.loop.launcher.is_open = False
    bench.clock.advance(hours=1)
    bench.loop.step()
    lease_ready(bench.store, ids=bench.ids, holder="someone", capacity=1, now=bench.now)
    bench.clock.advance(seconds=10)
    assert bench.loop.step() == 20.0


def test_a_sleep_is_too_long_if_a_search_of_the_past_is_due_before_its_end(bench: Bench) -> None:
    assert bench.loop.step() == 60.0
    is_too_long = bench.loop.sleep_plan.is_too_long_for
    assert is_too_long(PendingWork(complete_in=SECOND))
    assert not is_too_long(PendingWork(complete_in=61 * SECOND))
    bench.clock.advance(seconds=30)
    assert not is_too_long(PendingWork(complete_in=31 * SECOND))


def test_a_schedule_that_is_long_overdue_is_found_at_once(bench: Bench) -> None:
    bench.advance(minutes=5)
    bench.schedule("past", Once(bench.now - timedelta(hours=2)), catch_up=CatchUp.LAST)
    bench.loop.step()
    assert the_run(bench, "past").leased_at == bench.now


def test_a_run_that_waits_for_capacity_does_not_make_the_loop_spin() -> None:
    bench = Bench(capacity=1)
    retry = Retry(max_attempts=2, backoff=Constant(wait=SECOND))
    bench.schedule("again", every("1h"), retry=retry)
    bench.target.script("again", fail())
    bench.clock.advance(minutes=30)
    bench.schedule("long", every("30m"))
    bench.target.script("long", hang())
    bench.clock.advance(minutes=30)
    bench.loop.step()
    bench.loop.step()
    bench.clock.advance(seconds=5)
    assert the_run(bench, "again").state is RunState.READY
    assert len(bench.loop.launcher) == 1
    assert bench.loop.step() == 1.0, "a run that ends wakes the loop; until then there is nothing to do"


def test_a_wake_up_ends_a_sleep_even_before_it_begins() -> None:
    waker = EventWaker()
    waker.wake()
    assert waker.wait(60.0) is True
    assert waker.wait(0.0) is False
    threading.Timer(0.01, waker.wake).start()
    assert waker.wait(60.0) is True


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.0002, 0.003])
def test_a_sleep_of_the_system_clock_lasts_long_enough(seconds: float) -> None:
    began = monotonic()
    SystemClock().sleep(seconds)
    assert monotonic() - began >= seconds


@pytest.mark.parametrize(("results", "waits"), [(1, [SETTLE_WAIT_S]), (SETTLE_BATCH_RESULTS, [])])
def test_a_batch_of_results_is_settled_when_it_is_full_or_after_a_short_wait(
    bench: Bench, results: int, waits: list[float]
) -> None:
    settler: Any = bench.loop.settle_thread
    launcher: Any = bench.loop.launcher
    launcher.results._waiting.extend([None] * results)
    waited: list[float] = []
    woken: list[bool] = []
    stopping = threading.Event()

    def settle() -> None:
        woken.append(results < SETTLE_BATCH_RESULTS)
        settler.on_result()
        stopping.set()

    settler._waker = SimpleNamespace(wait=waited.append, wake=lambda: woken.append(True))
    settler.settle_results = settle
    settler.run(stopping, on_error=lambda error, tries: 0.0, max_sleep_s=60.0)
    assert waited == waits
    assert woken == ([True] if waits else [False, True]), "while it collects, only a full batch wakes it"


def test_an_outcome_wakes_the_loop_so_that_it_is_written_at_once(bench: Bench) -> None:
    bench.target.script("a", hang())
    start_run(bench, "a")
    waker = bench.loop.waker
    assert waker.wait(0.0) is False
    bench.target.under_way[0].end(Succeeded())
    assert waker.wait(0.0) is True


# Faults.


def test_an_unavailable_store_is_retried_with_backoff(faulty: FaultyBench) -> None:
    faulty.schedule("a", every("1h"))
    faulty.clock.advance(hours=1)
    faulty.loop.run_counter.run(now=faulty.now)  # so that only the tick meets the faults
    faulty.faults.failing_writes = 7
    faulty.loop.waker = waker = PacedWaker()
    faulty.loop.start()
    sleeps = [waker.next_rest() for _ in range(8)]
    assert sleeps[:7] == [*ERROR_BACKOFF_S, ERROR_BACKOFF_S[-1], ERROR_BACKOFF_S[-1]]
    assert sleeps[7] > 0
    wait_until(lambda: the_run(faulty, "a").state is RunState.SUCCEEDED, "the run to be done")
    faulty.loop.stop(wait=timedelta(0))
    health = faulty.loop.health
    assert (health.errors, health.errors_in_a_row) == (7, 0)
    assert health.last_error == "StoreUnavailable: the store is unavailable"


def test_an_unexpected_error_does_not_end_the_loop(faulty: FaultyBench) -> None:
    faulty.loop.run_counter.run(now=faulty.now)  # so that only the tick meets the faults
    faulty.faults.error = ZeroDivisionError("a bug")
    faulty.faults.failing_reads = 2
    faulty.loop.waker = waker = PacedWaker()
    faulty.loop.start()
    assert [waker.next_rest() for _ in range(3)] == [0.1, 0.5, 60.0]
    faulty.loop.stop(wait=timedelta(0))
    assert faulty.loop.health.last_error == "ZeroDivisionError: a bug"


def test_a_result_survives_an_unavailable_store(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    start_run(faulty, "a")
    faulty.target.under_way[0].end(Succeeded(result=42))
    faulty.faults.failing_writes = 2
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            faulty.loop.step()
    faulty.loop.step()
    assert [(a.outcome, a.result) for a in attempts(faulty, "a")] == [("succeeded", 42)]


def test_facts_of_one_step_are_sent_even_if_the_next_step_fails(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    start_run(faulty, "a")
    faulty.target.under_way[0].end(Succeeded())
    faulty.clock.advance(seconds=2)
    settle = faulty.loop.settle_thread.settle_results

    def settle_and_fail() -> None:
        settle()
        faulty.faults.failing_reads = 1

    faulty.loop.settle_thread.settle_results = settle_and_fail  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        faulty.loop.step()
    assert count_facts(faulty, RunSucceeded) == 1


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(1)])
def test_a_failing_observer_does_not_affect_the_loop(bench: Bench, error: BaseException) -> None:
    class Broken:
        def notify(self, fact: Fact) -> None:
            raise error

    bench.loop.observers.insert(0, Broken())
    bench.schedule("a", every("1m"))
    bench.advance(minutes=3)
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED] * 3
    assert count_facts(bench, RunSucceeded) == 3
    assert bench.loop.health.last_error.startswith(f"observer: {type(error).__name__}")


def test_a_schedule_that_cannot_be_decided_is_parked_and_stops_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(decide: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(schedule: Any, *positional: Any, **named: Any) -> Any:
            if schedule.name == "bad":
                raise ZeroDivisionError("only this schedule")
            return decide(schedule, *positional, **named)

        return wrapper

    for name in ("next_if_on_time", "admit_general"):
        monkeypatch.setattr(admission_batch, name, failing(getattr(admission_batch, name)))
    bench.schedule("bad", every("1m"))
    bench.schedule("good", every("1m"))
    bench.advance(minutes=3)
    assert [run.state for run in bench.runs("good")] == [RunState.SUCCEEDED] * 3
    assert bench.progress("bad").state is ScheduleState.PARKED
    assert bench.progress("bad").reason == "only this schedule"


def test_a_result_that_cannot_be_stored_fails_only_its_own_run(
    bench: Bench,
) -> None:
    endless: list[Any] = []
    for _ in range(100_000):
        endless = [endless]
    bench.schedule("bad", every("1h"), retry=Retry(max_attempts=1))
    bench.schedule("good", every("1h"))
    bench.target.script("bad", succeed(result=endless))
    bench.advance(hours=1)
    assert the_run(bench, "good").state is RunState.SUCCEEDED
    assert the_run(bench, "bad").error.startswith("its result could not be stored: ")
    assert bench.loop.health.errors == 0
    while endless:  # take the nested list apart step by step: deleting it at once would overflow the stack
        endless = endless.pop()


def test_a_target_that_cannot_be_launched_is_an_outcome_and_no_error_of_the_loop(bench: Bench) -> None:
    bench.loop.launcher._targets = {"note": Raises()}
    bench.schedule("a", every("1h"), retry=Retry(max_attempts=1))
    bench.advance(hours=1)
    assert the_run(bench, "a").error == "RuntimeError: the target broke"
    assert bench.loop.health.errors == 0


def test_a_target_that_cannot_be_built_fails_only_its_own_runs(bench: Bench) -> None:
    class Missing(Mapping[str, Any]):
        def __getitem__(self, kind: str) -> Any:
            raise ImportError("no such library")

        def __iter__(self) -> Iterator[str]:
            return iter(["note"])

        def __len__(self) -> int:
            return 1

    bench.loop.launcher._targets = Missing()
    bench.schedule("a", every("1h"), retry=Retry(max_attempts=1))
    bench.advance(hours=1)
    assert the_run(bench, "a").error == "ImportError: no such library"


def test_a_kind_of_target_this_process_does_not_have_parks_the_schedule(bench: Bench) -> None:
    bench.loop.launcher._targets = {}
    bench.schedule("a", every("1h"), retry=Retry(max_attempts=2, backoff=Constant(wait=SECOND)))
    bench.advance(hours=1, minutes=1)
    assert attempts(bench, "a")[0].error == "this process has no note target"
    assert bench.progress("a").state is ScheduleState.PARKED


def test_a_lease_whose_commit_answer_was_lost_is_adopted(faulty: FaultyBench) -> None:
    faulty.loop.step()
    faulty.schedule("a", every("1h"), delivery=Delivery.AT_MOST_ONCE)
    faulty.clock.advance(hours=1)
    faulty.faults.error = StoreUnavailable("away")

    class Cuts:
        """The connection breaks at the commit of the admission, and reads fail too."""

        def __call__(self, *work: Any, **arguments: Any) -> Any:
            faulty.faults.lost_answers = 1
            faulty.faults.failing_reads = 1
            return admit(*work, **arguments)

    admit = faulty.loop.tick.admit
    faulty.loop.tick.admit = Cuts()  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        faulty.loop.step()
    faulty.loop.record_error(StoreUnavailable("away"))
    faulty.loop.tick.admit = admit  # type: ignore[method-assign]
    assert the_run(faulty, "a").state is RunState.LEASED
    assert faulty.target.launched == []
    faulty.clock.advance(seconds=1)
    faulty.tick()
    assert [(a.outcome, a.fence) for a in attempts(faulty, "a")] == [("succeeded", 1)]
    assert len(faulty.target.launched) == 1


def test_an_unwritten_result_is_not_adopted_as_an_unknown_lease(
    faulty: FaultyBench,
) -> None:
    faulty.target.script("a", hang())
    run = start_run(faulty, "a")
    faulty.target.under_way[0].end(Succeeded())
    assert faulty.loop.tick.adopt_unknown_leases(now=faulty.now) == []
    faulty.loop.step()
    assert the_run(faulty, "a").state is RunState.SUCCEEDED
    assert (run.id, run.fence) not in faulty.loop.launcher.known_leases()


def test_a_run_that_is_settled_while_unknown_leases_are_read_is_not_started_again(
    faulty: FaultyBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.target.script("a", hang())
    start_run(faulty, "a")
    read = faulty.loop.tick.store.read

    def read_then_settle(work: Callable[[Any], Any]) -> Any:
        leased = read(lambda tx: tx.select(LeasedRuns(holder=faulty.loop.tick.holder)))
        faulty.target.under_way[0].end(Succeeded())
        faulty.loop.settle_thread.settle_results()
        return read(lambda tx: work(Mock(wraps=tx, select=lambda _: leased)))

    monkeypatch.setattr(faulty.loop.tick.store, "read", read_then_settle)
    assert faulty.loop.tick.adopt_unknown_leases(now=faulty.now) == []
    monkeypatch.undo()
    assert the_run(faulty, "a").state is RunState.SUCCEEDED
