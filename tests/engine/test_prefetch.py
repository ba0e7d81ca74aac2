"""Short runs are leased ahead and wait in the process; never more start than capacity allows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.fakes import TIMEOUT_S, CountingWaker, PassingWaker
from tests.faults.tools.worker_fleet import wait_until
from timewright import Context, Manual, Scheduler
from timewright.core.facts import AttemptStarted, RunSucceeded
from timewright.core.policies.policies import LeaseTerms, Retry
from timewright.core.recurrence.triggers import every
from timewright.core.run.run import Failed, Lost, Outcome, RunState, Succeeded
from timewright.engine.constants import MAX_PREFETCHED_RUNS, MIN_SAMPLES, PREFETCH_S
from timewright.engine.in_flight import PrefetchEstimator, SlotLimits
from timewright.engine.launch import Launcher
from timewright.ports import Launch
from timewright.testing.bench import Bench
from timewright.testing.targets import hang, succeed

CAPACITY = 3
RUNS = 10


def record_ends(
    estimator: PrefetchEstimator,
    count: int,
    *,
    since: float,
    until: float,
    took: float = 0.0,
    most: int = 100,
) -> int:
    """Record `count` ends between two times; return the prefetch count."""
    estimator.start_measuring(since)
    for number in range(1, count + 1):
        moment = since + (until - since) * number / count
        estimator.record_end(monotonic_now=moment, started_at=moment - took, max_running=most)
    return estimator.prefetch_count


def test_too_few_samples_give_no_estimate() -> None:
    assert record_ends(PrefetchEstimator(), MIN_SAMPLES - 1, since=0.0, until=0.001) == 0


def test_the_prefetch_count_follows_the_rate_up_to_a_limit() -> None:
    estimator = PrefetchEstimator()
    assert record_ends(estimator, 2 * MIN_SAMPLES, since=10.0, until=10.04) == pytest.approx(
        1600 * PREFETCH_S, abs=1
    )
    assert record_ends(estimator, MIN_SAMPLES, since=10.5, until=10.501) == MAX_PREFETCHED_RUNS


def test_idle_time_does_not_lower_the_rate() -> None:
    estimator = PrefetchEstimator()
    for second in range(4):
        ahead = record_ends(estimator, MIN_SAMPLES // 4, since=second, until=second + 0.005)
    assert ahead == pytest.approx(MIN_SAMPLES / 0.02 * PREFETCH_S, abs=1)


def test_long_runs_that_end_together_are_not_fast() -> None:
    assert (
        record_ends(PrefetchEstimator(), MIN_SAMPLES, since=0.0, until=0.001, took=2.0, most=100)
        <= 100 / 2.0 * PREFETCH_S
    )


def test_with_a_small_capacity_nothing_is_prefetched() -> None:
    assert record_ends(PrefetchEstimator(), 1000, since=0.0, until=0.1, most=MIN_SAMPLES - 1) == 0


def test_the_rate_halves_at_most_per_measurement() -> None:
    estimator = PrefetchEstimator()
    estimator._rate = 1000.0
    rates = [
        record_ends(estimator, 1, since=moment, until=moment + 1) / PREFETCH_S for moment in (2.0, 3.0, 4.0)
    ]
    assert rates == [500, 250, 125]


def test_a_stopped_clock_gives_no_estimate() -> None:
    assert record_ends(PrefetchEstimator(), 1000, since=0.0, until=0.0) == 0


# Prefetched runs.


def ahead(*, act: Any = None, lease: LeaseTerms | None = None) -> Bench:
    """A bench with a high measured rate and more due runs than capacity."""
    bench = Bench(capacity=CAPACITY)
    for number in range(RUNS):
        bench.schedule(f"s{number}", every("1h"), lease=lease or LeaseTerms())
        bench.target.script(f"s{number}", act or hang())
    bench.clock.advance(hours=1)
    bench.loop.launcher._estimator._rate = 1e6
    bench.loop.step()
    return bench


def states(bench: Bench) -> set[RunState]:
    return {bench.runs(f"s{number}")[0].state for number in range(RUNS)}


def test_more_runs_are_leased_than_started() -> None:
    bench = ahead()
    assert states(bench) == {RunState.LEASED}
    assert len(bench.loop.launcher) == RUNS
    assert len(bench.target.launched) == CAPACITY


def test_a_prefetched_run_starts_without_a_query_when_another_ends() -> None:
    bench = ahead()
    for started in range(CAPACITY + 1, RUNS + 1):
        bench.target.under_way[0].end(Succeeded())
        bench.target.finish_due()
        assert len(bench.target.launched) == started
    assert sum(not work.over for work in bench.target.under_way) == CAPACITY


def test_a_prefetched_run_that_is_stopped_never_starts() -> None:
    bench = ahead()
    waiting = bench.loop.launcher.in_flight_runs()[0].lease.run
    bench.loop.launcher.stop(waiting.id, waiting.fence, reason="enough")
    for work in list(bench.target.under_way):
        work.end(Succeeded())
    while bench.target.under_way:
        bench.target.finish_due()
        for work in list(bench.target.under_way):
            work.end(Succeeded())
    bench.tick()
    assert waiting.id not in {launch.run_id for launch in bench.target.launched}
    assert len(bench.target.launched) == RUNS - 1
    assert states(bench) == {RunState.SUCCEEDED, RunState.CANCELLED}


def test_prefetched_runs_are_released_without_an_attempt_at_stop() -> None:
    bench = ahead()
    bench.loop.stop(wait=timedelta(0), grace=timedelta(0))
    assert states(bench) == {RunState.READY}
    assert {bench.runs(f"s{number}")[0].attempts for number in range(RUNS)} == {0}
    assert len(bench.target.launched) == CAPACITY


def test_prefetched_runs_do_not_start_after_a_stop_began() -> None:
    bench = ahead(act=succeed(after=timedelta(seconds=1)))
    bench.loop.waker = PassingWaker(bench.clock, bench.target)
    bench.loop.stop(wait=timedelta(seconds=30))
    assert len(bench.target.launched) == CAPACITY
    assert states(bench) == {RunState.READY, RunState.SUCCEEDED}


def test_a_prefetched_run_keeps_its_lease_and_its_time_limit() -> None:
    terms = LeaseTerms(length=timedelta(seconds=30), time_limit=timedelta(seconds=60))
    bench = ahead(lease=terms)
    bench.clock.advance(seconds=20)
    bench.loop.renew_leases(now=bench.now)
    bench.clock.advance(seconds=20)
    bench.loop.renew_leases(now=bench.now)
    bench.clock.advance(seconds=19)
    bench.loop.launcher.stop_expired()
    assert len(bench.loop.launcher) == RUNS, "a renewed run is not stopped"
    bench.target.under_way[0].end(Succeeded())
    begun = [flown for flown in bench.loop.launcher.in_flight_runs() if flown.is_started]
    assert max(flown.time_limit_at for flown in begun) > bench.clock.monotonic() + 60


def test_a_prefetched_run_whose_lease_expires_ends_without_a_start() -> None:
    bench = ahead(lease=LeaseTerms(length=timedelta(seconds=30)))
    bench.clock.advance(seconds=29.5)
    bench.loop.launcher.stop_expired()
    assert len(bench.target.launched) == CAPACITY
    assert len(bench.loop.launcher) == 0


def test_a_thousand_runs_that_end_at_once_do_not_grow_the_stack() -> None:
    """Each end starts the next run in a loop; recursion would overflow the stack."""

    class ImmediateTarget:
        def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
            done(Succeeded())
            return self

        def stop(self, reason: str) -> None:
            raise AssertionError("it has ended")

        def close(self, *, grace: timedelta) -> None:
            pass

    bench = Bench(capacity=1)
    first = Bench.schedule
    for number in range(MAX_PREFETCHED_RUNS):
        first(bench, f"s{number}", every("1h"))
    bench.target.script("s0", hang())
    bench.loop.tick.limits = type(bench.loop.tick.limits)(batch=MAX_PREFETCHED_RUNS)
    bench.clock.advance(hours=1)
    bench.loop.launcher._estimator._rate = 1e6
    bench.loop.step()
    bench._targets["note"] = ImmediateTarget()
    assert len(bench.loop.launcher) > 500
    bench.target.under_way[0].end(Succeeded())
    assert len(bench.loop.launcher) == 0
    bench.tick()
    assert sum(isinstance(fact, RunSucceeded) for fact in bench.facts) == MAX_PREFETCHED_RUNS


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_small_capacity_is_never_exceeded(capacity: int) -> None:
    bench = Bench(capacity=capacity)
    for number in range(RUNS):
        bench.schedule(f"s{number}", every("1h"))
    bench.clock.advance(hours=1)
    for _ in range(RUNS):
        bench.clock.advance(timedelta(microseconds=1))
        bench.loop.step()
        assert len(bench.loop.launcher) <= capacity


# Settling beside the tick.


def test_a_result_that_is_being_written_is_not_adopted_as_an_unknown_lease() -> None:
    bench = ahead()
    bench.target.under_way[0].end(Succeeded())
    run = next(fact for fact in bench.facts if isinstance(fact, AttemptStarted))
    answers = bench.loop.launcher.results.take()
    assert bench.loop.tick.adopt_unknown_leases(now=bench.now) == []
    bench.loop.launcher.results.confirm(answers)
    assert [lease.run.id for lease in bench.loop.tick.adopt_unknown_leases(now=bench.now)] == [run.run_id]


def test_an_attempt_never_starts_before_its_lease() -> None:
    bench = ahead()
    bench.loop.launcher.abandon_all()
    tick, late = bench.loop.tick, bench.now - timedelta(seconds=1)
    leases = tick.adopt_unknown_leases(now=bench.now)
    tick.launch(leases, now=late, monotonic_now=bench.clock.monotonic(), notify=bench.facts.extend)
    under_way = bench.loop.launcher.in_flight_runs()
    assert [flown.started_at for flown in under_way] == [flown.lease.run.leased_at for flown in under_way]
    assert len(under_way) == RUNS
    starts = [fact.at for fact in bench.facts[-RUNS:] if isinstance(fact, AttemptStarted)]
    assert starts == [lease.run.leased_at for lease in leases], "and the fact is not dated before it"


class SettlingBench(Bench):
    """A bench that settles beside its tick, with a counting waker."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.waker = CountingWaker()
        self.loop.waker = self.waker
        self.loop.settles_inline = False

    def end(self, outcome: Outcome, *, name: str = "a", **policies: Any) -> int:
        """End and settle a run of a new schedule; return how often that woke the tick."""
        self.schedule(name, every("1h"), **policies)
        self.target.script(name, hang())
        self.clock.advance(hours=1)
        self.loop.step()
        before = self.waker.woken
        self.target.under_way[-1].end(outcome)
        self.loop.settle_thread.settle_results()
        return self.waker.woken - before


def test_a_success_does_not_wake_the_tick() -> None:
    bench = SettlingBench()
    assert bench.end(Succeeded()) == 0
    assert bench.runs("a")[0].state is RunState.SUCCEEDED


def test_a_retry_wakes_the_tick() -> None:
    assert SettlingBench().end(Failed(error="again"), retry=Retry(max_attempts=2)) == 1
    assert SettlingBench().end(Lost()) == 1


def test_an_end_that_frees_a_limit_wakes_the_tick() -> None:
    assert SettlingBench().end(Succeeded(), limits=("crm",)) == 1


def test_an_end_wakes_a_tick_that_waits_for_capacity() -> None:
    bench = SettlingBench(capacity=1)
    bench.schedule("other", every("1h"))
    bench.target.script("other", hang())
    assert bench.end(Succeeded()) == 1
    assert len(bench.target.launched) == 1


def test_a_tick_that_checked_capacity_too_early_is_woken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It queries, and then all runs end before the result that woke it is written."""
    bench, waker = Bench(capacity=2), CountingWaker()
    for name in ("a", "b", "c", "d"):
        bench.schedule(name, every("1h"))
        bench.target.script(name, hang())
    bench.clock.advance(hours=1)
    bench.loop.settles_inline = False
    bench.loop.waker = waker
    bench.loop.step()
    end_all(bench, most=1)
    now = bench.store.now

    def slow_clock() -> Any:
        monkeypatch.setattr(bench.store, "now", now)
        bench.loop.step()
        waker.woken = 0
        end_all(bench, most=2)
        return now()

    monkeypatch.setattr(bench.store, "now", slow_clock)
    bench.loop.settle_thread.settle_results()
    assert (len(bench.target.launched), bool(bench.loop.launcher.results)) == (3, False)
    assert waker.woken == 1


def end_all(bench: Bench, *, most: int) -> None:
    for work in list(bench.target.under_way)[:most]:
        work.end(Succeeded())
    bench.target.finish_due()


def test_a_run_that_waits_for_a_limit_starts_when_the_previous_one_ends(file: str) -> None:
    app, order = Scheduler(file), list[str]()
    go_on = threading.Event()

    def work(ctx: Context) -> None:
        order.append(ctx.schedule_name)
        assert go_on.wait(TIMEOUT_S)

    for name in ("first", "second"):
        app.schedule(Manual(), name=name, limits=["crm"])(work)
    with app:
        app.schedules.run(schedule="first")
        wait_until(lambda: order == ["first"], "the first run to start")
        app.schedules.run(schedule="second")
        wait_until(lambda: app.runs.list(state="ready").runs, "the second run to wait")
        go_on.set()
        wait_until(lambda: order == ["first", "second"], "the second run to start", seconds=45)


def test_a_full_slot_wakes_the_tick_after_the_next_end() -> None:
    def launcher(count: int) -> Launcher:
        slots = SlotLimits(slot_of=lambda _: "process", counts={"process": count})
        return Launcher({}, monotonic=lambda: 0.0, wake=lambda: None, slots=slots)

    full, free = launcher(0), launcher(1)
    assert (full.lease_offer().free, free.lease_offer().free) == ({"process": 0}, {"process": 1})
    assert (full.pop_is_awaited(), free.pop_is_awaited()) == (True, False)
    assert full.free > 0, "only this kind of slot is full"
