"""Leases in the engine: renewal, loss, time limits and cancels."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.engine.engine_kit import (
    HALF_MINUTE,
    MINUTE,
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
    CountingWaker,
    StoppedInLaunch,
)
from tests.faults.tools.worker_fleet import wait_until
from timewright.core.facts import (
    AnswerStale,
    LeaseLost,
)
from timewright.core.policies.backoff import Constant
from timewright.core.policies.policies import Delivery, LeaseTerms, Retry
from timewright.core.recurrence.triggers import every
from timewright.core.run.run import RunState, Succeeded, TimedOut
from timewright.engine.constants import GIVE_UP_MARGIN_S
from timewright.errors import StoreUnavailable
from timewright.ledger.settle import cancel
from timewright.testing.bench import Bench
from timewright.testing.targets import ScriptedWork, hang, succeed, vanish

__all__ = ["bench", "faulty", "nothing_left"]


def test_a_lease_is_renewed_when_a_third_of_it_is_used(bench: Bench) -> None:
    bench.target.script("a", hang())
    run = start_run(bench, "a")
    bench.clock.advance(seconds=9)
    bench.loop.renew_leases(now=bench.now)
    assert the_run(bench, "a").lease_until == run.lease_until
    bench.clock.advance(seconds=1)
    bench.loop.renew_leases(now=bench.now)
    assert the_run(bench, "a").lease_until == bench.now + 30 * SECOND
    assert bench.loop.launcher.stop_expired() == 29.0


def test_work_whose_lease_cannot_be_renewed_is_stopped_before_it_expires(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang(), succeed())
    run = start_run(faulty, "a", retry=Retry(max_attempts=2))
    faulty.faults.failing_writes = 3
    for seconds in (10, 10, 8.9):
        faulty.clock.advance(seconds=seconds)
        with pytest.raises(StoreUnavailable):
            faulty.loop.renew_leases(now=faulty.now)
        faulty.loop.launcher.stop_expired()
        assert len(faulty.loop.launcher) == 1
    faulty.clock.advance(seconds=0.1)
    faulty.loop.launcher.stop_expired()
    assert faulty.target.under_way[0].over
    assert run.lease_until is not None
    assert faulty.now < run.lease_until, "nobody else can have it yet"
    faulty.loop.step()
    (lost,) = attempts(faulty, "a")
    assert (lost.outcome, lost.charged, lost.error) == ("lost", False, "lease not renewed in time")


def test_at_most_once_work_that_the_engine_gave_up_is_unknown(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    start_run(faulty, "a", delivery=Delivery.AT_MOST_ONCE)
    faulty.clock.advance(seconds=29)
    faulty.loop.launcher.stop_expired()
    faulty.loop.step()
    run = the_run(faulty, "a")
    assert (run.state, run.reason, run.error) == (RunState.PARKED, "unknown", "lease not renewed in time")


def test_a_lease_of_a_second_is_not_ended_before_it_could_be_renewed(bench: Bench) -> None:
    bench.target.script("a", hang())
    start_run(bench, "a", lease=LeaseTerms(length=SECOND))
    bench.clock.advance(seconds=0.5)
    bench.loop.launcher.stop_expired()
    assert not bench.target.under_way[0].over
    bench.loop.renew_leases(now=bench.now)
    bench.clock.advance(seconds=0.8)
    bench.loop.launcher.stop_expired()
    assert not bench.target.under_way[0].over
    bench.clock.advance(seconds=0.1)
    bench.loop.launcher.stop_expired()
    assert bench.target.under_way[0].over


def test_a_lease_counts_from_the_request_even_if_the_store_is_slow(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    faulty.schedule("a", every("1h"), lease=HALF_MINUTE)
    faulty.clock.advance(hours=1)
    faulty.faults.write_takes = 3 * SECOND
    faulty.loop.step()
    run = the_run(faulty, "a")
    assert run.lease_until is not None
    faulty.clock.advance(run.lease_until - faulty.now - SECOND)
    faulty.loop.launcher.stop_expired()
    assert faulty.target.under_way[0].over


def test_a_short_lease_shortens_the_renew_interval(bench: Bench) -> None:
    bench.loop._interval_wakers = [CountingWaker()]  # type: ignore[list-item]
    bench.target.script("long", hang())
    bench.target.script("short", hang())
    start_run(bench, "long", lease=LeaseTerms())
    assert bench.loop._interval_wakers[0].woken == 0  # type: ignore[attr-defined]
    start_run(bench, "short", lease=LeaseTerms(length=2 * SECOND))
    assert bench.loop._interval_wakers[0].woken == 1  # type: ignore[attr-defined]
    assert bench.loop._renew_interval_s() == pytest.approx(1 / 3)
    next(work for work in bench.target.under_way if work.launch.schedule_name == "short").end(Succeeded())
    assert bench.loop._renew_interval_s() == 1.0


def test_work_whose_lease_was_lost_is_stopped_and_its_result_rejected(bench: Bench) -> None:
    bench.target.script("a", vanish(), succeed())
    start_run(bench, "a", retry=Retry(max_attempts=2, backoff=Constant(wait=timedelta(0))))
    (first,) = bench.target.under_way
    bench.clock.advance(seconds=40)
    bench.loop.step()
    bench.loop.step()
    assert count_facts(bench, LeaseLost) == 1
    bench.loop.renew_leases(now=bench.now)
    (flown,) = [one for one in bench.loop.launcher.in_flight_runs() if one.is_started]
    assert flown.stop_reason == "lease not renewed in time"
    first.end(Succeeded())
    bench.tick()
    assert count_facts(bench, AnswerStale) == 1
    assert [(a.outcome, a.fence) for a in attempts(bench, "a")] == [("lost", 1), ("succeeded", 2)]


class StuckThread(ScriptedWork):
    """A function on a thread: it ends when the test ends it."""

    must_return = True


@pytest.mark.parametrize("can_be_killed", [True, False])
def test_a_run_that_is_leased_again_waits_for_its_earlier_copy(bench: Bench, can_be_killed: bool) -> None:
    bench.target.script("a", vanish(), succeed())
    start_run(bench, "a")
    (first,) = bench.target.under_way
    first.__class__ = ScriptedWork if can_be_killed else StuckThread
    bench.clock.advance(seconds=40)
    bench.loop.step()
    bench.loop.step()
    assert (the_run(bench, "a").fence, len(bench.target.launched)) == (2, 1), "leased, but not started"
    for _ in range(32):
        bench.clock.advance(seconds=1)
        bench.loop.renew_leases(now=bench.now)
        bench.loop.launcher.stop_expired()
        bench.loop.step()
    assert len(bench.target.launched) == (2 if can_be_killed else 1), "work that can be killed is given up"
    first.end(Succeeded())
    bench.tick()
    assert [(a.outcome, a.fence) for a in attempts(bench, "a")] == [("lost", 1), ("succeeded", 2)]
    assert the_run(bench, "a").losses == 1


@pytest.mark.parametrize("too_late_s", [0.5, 120])
def test_work_that_was_suspended_with_its_process_is_not_given_up_before_it_can_end(
    bench: Bench, too_late_s: float
) -> None:
    """Paused seed 712: the next attempt started beside work that was suspended while it stopped."""
    bench.target.script("a", vanish(), succeed())
    start_run(bench, "a")
    (first,) = bench.target.under_way
    bench.clock.advance(seconds=29.5)
    bench.loop.launcher.stop_expired()
    (stopping,) = bench.loop.launcher.in_flight_runs()
    assert stopping.stop_reason == "lease not renewed in time"
    bench.clock.advance(seconds=stopping.give_up_at - bench.clock.monotonic() + too_late_s)
    for _ in range(3):
        bench.loop.launcher.stop_expired()
        bench.loop.step()
    assert (the_run(bench, "a").fence, len(bench.target.launched)) == (2, 1), "leased, but not started"
    first.end(Succeeded())
    bench.tick()
    assert [(a.outcome, a.fence) for a in attempts(bench, "a")] == [("lost", 1), ("succeeded", 2)]


def test_a_function_past_its_time_limit_stays_leased_until_it_returns(bench: Bench) -> None:
    """A limit of five minutes, a function of six."""
    bench.target.script("a", vanish())
    terms = LeaseTerms(length=60 * SECOND, time_limit=300 * SECOND)
    start_run(bench, "a", lease=terms, retry=Retry(max_attempts=2))
    (work,) = bench.target.under_way
    work.__class__ = StuckThread
    other = Bench(store=bench.store, clock=bench.clock, name="other")
    for _ in range(36):
        bench.clock.advance(seconds=10)
        bench.loop.launcher.stop_expired()
        bench.loop.renew_leases(now=bench.now)
        bench.loop.step()
        other.loop.step()
        run = the_run(bench, "a")
        assert (run.state, run.fence, len(bench.target.launched)) == (RunState.LEASED, 1, 1)
        assert other.target.launched == []
    work.end(TimedOut(error="time limit reached"))
    bench.loop.step()
    run = the_run(bench, "a")
    assert (run.state, run.attempts, run.losses) == (RunState.READY, 1, 0)


def test_a_function_of_six_minutes_runs_to_its_end_without_a_time_limit(bench: Bench) -> None:
    bench.target.script("a", succeed(after=timedelta(minutes=6)))
    start_run(bench, "a", lease=LeaseTerms())
    other = Bench(store=bench.store, clock=bench.clock, name="other")
    for _ in range(40):
        bench.advance(seconds=10)
        other.loop.step()
    run = the_run(bench, "a")
    assert (run.state, run.fence, run.attempts, run.losses) == (RunState.SUCCEEDED, 1, 0, 0)
    assert run.finished_at is not None
    assert run.started_at is not None
    assert run.finished_at - run.started_at >= timedelta(minutes=6)


def test_a_lease_that_was_taken_away_is_noticed_at_the_next_renewal(bench: Bench) -> None:
    bench.target.script("a", hang())
    run = start_run(bench, "a")
    cancel(bench.store, run.id, actor="ada", reason="enough", now=bench.now)
    bench.clock.advance(seconds=6)
    Bench(store=bench.store, clock=bench.clock, name="other").loop.step()
    assert the_run(bench, "a").state is RunState.CANCELLED
    bench.clock.advance(seconds=10)
    (flown,) = bench.loop.launcher.in_flight_runs()
    bench.loop.renew_leases(now=bench.now)
    assert (flown.stop_reason, flown.has_ended) == ("lease lost", True)
    bench.loop.step()
    assert count_facts(bench, AnswerStale) == 1


@pytest.mark.parametrize("who", ["tick", "renewal"])
def test_a_cancel_is_noticed_by_the_tick_and_by_the_renewal(bench: Bench, who: str) -> None:
    bench.target.script("a", hang())
    run = start_run(bench, "a")
    cancel(bench.store, run.id, actor="ada", reason="enough", now=bench.now)
    if who == "tick":
        bench.loop.step()
    else:
        bench.loop._renew()
    assert bench.target.under_way[0].over
    bench.loop.step()
    assert (the_run(bench, "a").state, the_run(bench, "a").reason) == (RunState.CANCELLED, "enough")


def test_expired_work_is_stopped_even_if_the_store_blocks(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    faulty.schedule("a", every("1h"), lease=HALF_MINUTE)
    faulty.clock.advance(hours=1)
    faulty.loop.start()
    wait_until(lambda: faulty.target.under_way, "the work to begin")
    faulty.faults.open.clear()
    faulty.clock.advance(seconds=29.5)
    wait_until(lambda: faulty.target.under_way[0].over, "the watch to end it", seconds=45)
    faulty.faults.open.set()
    faulty.loop.stop(wait=timedelta(0))


def test_a_renewal_that_fails_unexpectedly_is_retried(faulty: FaultyBench) -> None:
    faulty.target.script("a", hang())
    run = start_run(faulty, "a", lease=LeaseTerms(length=6 * SECOND))
    faulty.faults.error = ZeroDivisionError("a bug")
    faulty.faults.failing_writes = 1
    faulty.loop.launcher.is_open = False
    faulty.clock.advance(seconds=2)
    faulty.loop._stopping.set()
    faulty.loop.start()
    wait_until(lambda: the_run(faulty, "a").lease_until != run.lease_until, "the lease to be renewed")
    assert faulty.faults.failing_writes == 0
    faulty.target.under_way[0].end(Succeeded())
    faulty.loop.stop(wait=timedelta(0))


def test_work_that_outlives_its_time_limit_is_timed_out_without_an_answer_of_its_target(bench: Bench) -> None:
    terms = LeaseTerms(length=10 * MINUTE, time_limit=MINUTE, grace=5 * SECOND)
    bench.target.script("a", vanish(), succeed())
    start_run(bench, "a", lease=terms, retry=Retry(max_attempts=1))
    bench.clock.advance(MINUTE + GIVE_UP_MARGIN_S * SECOND + SECOND / 10)
    bench.loop.step()
    (flown,) = bench.loop.launcher.in_flight_runs()
    assert flown.stop_reason == "time limit reached"
    bench.clock.advance((5 + GIVE_UP_MARGIN_S) * SECOND - SECOND)
    for _ in range(10):
        bench.loop.step()
        assert len(bench.loop.launcher) == 1, "it has its grace"
        bench.clock.advance(seconds=0.1)
    bench.clock.advance(seconds=0.2)
    bench.loop.step()
    bench.loop.step()
    assert [a.outcome for a in attempts(bench, "a")] == ["timed_out"]
    assert len(bench.loop.launcher) == 0, "what it holds here is free again"


def test_work_that_ends_at_its_time_limit_is_timed_out_and_not_cancelled(bench: Bench) -> None:
    terms = LeaseTerms(length=10 * MINUTE, time_limit=MINUTE, grace=timedelta(0))
    bench.target.script("a", hang())
    start_run(bench, "a", lease=terms, retry=Retry(max_attempts=1))
    bench.clock.advance(minutes=2)
    bench.loop.launcher.stop_expired()
    bench.loop.step()
    assert [(a.outcome, a.charged) for a in attempts(bench, "a")] == [("timed_out", True)]


def test_work_that_is_asked_to_stop_while_it_starts_is_stopped_when_it_has(bench: Bench) -> None:
    target = StoppedInLaunch(bench.loop.launcher.stop_all)
    bench.loop.launcher._targets = {"note": target}
    start_run(bench, "a")
    assert target.reasons == ["stopping"]


def test_work_that_cannot_be_stopped_has_failed(bench: Bench) -> None:
    bench.loop.launcher._targets = {"note": CannotStop()}
    start_run(bench, "a", retry=Retry(max_attempts=1))
    bench.loop.launcher.stop_all()
    bench.loop.step()
    assert the_run(bench, "a").error == "could not be stopped: RuntimeError: no brakes"


def test_no_more_runs_start_than_capacity_allows() -> None:
    bench = Bench(capacity=3)
    for number in range(10):
        bench.schedule(f"s{number}", every("10m"))
        bench.target.script(f"s{number}", hang())
    bench.clock.advance(minutes=10)
    for _ in range(5):
        bench.loop.step()
        assert len(bench.loop.launcher) <= 3
    assert len(bench.target.launched) == 3
    bench.target.under_way[0].end(Succeeded())
    bench.loop.step()
    assert len(bench.target.launched) == 4
