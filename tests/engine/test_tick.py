"""What one instance does over time, with a manual clock."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from timewright.core.facts import AnswerStale, AttemptStarted, CancelRequested, ClockStepped, LeaseLost
from timewright.core.policies.backoff import Constant
from timewright.core.policies.policies import CatchUp, Delivery, LeaseTerms, Overlap, Retry
from timewright.core.recurrence.triggers import After, Once, every
from timewright.core.run.run import Run, RunState, Succeeded
from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.settle import cancel
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, hang, succeed, vanish

MINUTE = timedelta(minutes=1)
SHORT = LeaseTerms(length=timedelta(seconds=30), time_limit=timedelta(seconds=60), grace=timedelta(seconds=5))


def states(runs: list[Run]) -> list[str]:
    return [f"{run.state}:{run.reason}" if run.reason else run.state.value for run in runs]


def test_a_run_starts_at_its_instant() -> None:
    bench = Bench()
    bench.schedule("a", every("7m"))
    bench.advance(hours=1)
    started = [fact for fact in bench.facts if isinstance(fact, AttemptStarted)]
    assert len(started) == 8
    assert all(fact.at == fact.planned_at for fact in started)


def test_an_hour_of_work_is_one_row_per_occurrence_and_nothing_else() -> None:
    bench = Bench()
    bench.schedule("a", every("1m"))
    bench.advance(hours=1)
    runs = bench.runs("a")
    assert states(runs) == ["succeeded"] * 60
    assert len({run.planned_at for run in runs}) == 60


def test_a_slow_run_makes_the_next_occurrences_skip_with_a_reason() -> None:
    bench = Bench()
    bench.schedule("slow", every("1m"))
    bench.target.script("slow", succeed(after=150 * timedelta(seconds=1)))
    bench.advance(minutes=6)
    assert states(bench.runs("slow"))[:3] == ["succeeded", "skipped:overlap", "skipped:overlap"]


def test_a_hung_target_never_delays_another_schedule() -> None:
    bench = Bench()
    bench.schedule("hung", every("1m"))
    bench.schedule("well", every("1m"))
    bench.target.script("hung", hang())
    bench.advance(minutes=10)
    assert states(bench.runs("well")) == ["succeeded"] * 10


def test_a_failed_run_is_tried_again_after_its_backoff_with_a_higher_fence() -> None:
    bench = Bench()
    retry = Retry(max_attempts=3, backoff=Constant(wait=timedelta(seconds=20)))
    bench.schedule("flaky", every("10m"), retry=retry)
    bench.target.script("flaky", fail("first"), fail("second"), succeed())
    bench.advance(minutes=11)
    (run,) = bench.runs("flaky")
    assert run.state is RunState.SUCCEEDED
    assert (run.attempts, run.fence) == (2, 3)
    launches = [launch for launch in bench.target.launched if launch.run_id == run.id]
    assert [launch.fence for launch in launches] == [1, 2, 3]
    assert len({launch.key for launch in launches}) == 1


def test_a_vanished_holder_loses_its_lease_and_its_late_answer_changes_nothing() -> None:
    bench = Bench()
    bench.schedule("gone", every("10m"), lease=SHORT, retry=Retry(max_attempts=2))
    bench.target.script("gone", vanish(), succeed())
    bench.advance(minutes=10)
    (late,) = bench.target.under_way
    bench.loop.launcher.stop_lost(late.launch.run_id, late.launch.fence)
    bench.loop.launcher.in_flight_runs()[0].lease_ends_at = float("-inf")
    bench.clock.advance(minutes=2)
    bench.facts.clear()
    # The vanished engine renews nothing.
    bench.tick()
    assert any(isinstance(fact, LeaseLost) for fact in bench.facts)
    bench.advance(minutes=1)
    assert states(bench.runs("gone")) == ["succeeded"]
    late.end(Succeeded())
    bench.tick()
    assert any(isinstance(fact, AnswerStale) for fact in bench.facts)
    assert states(bench.runs("gone")) == ["succeeded"]


def test_at_most_once_parks_a_run_with_unknown_outcome() -> None:
    bench = Bench()
    bench.schedule("pay", every("10m"), lease=SHORT, delivery=Delivery.AT_MOST_ONCE)
    bench.target.script("pay", hang())
    bench.advance(minutes=12)
    assert states(bench.runs("pay")) == ["parked:unknown"]


def test_replace_stops_the_old_run_before_the_new_one_starts() -> None:
    bench = Bench()
    terms = LeaseTerms(length=timedelta(seconds=30), grace=timedelta(seconds=5))
    bench.schedule("newest", every("1m"), overlap=Overlap.REPLACE, lease=terms)
    bench.target.script("newest", hang())
    bench.advance(minutes=3)
    assert states(bench.runs("newest")) == ["cancelled:replaced", "cancelled:replaced", "leased"]
    assert sum(isinstance(fact, CancelRequested) for fact in bench.facts) == 2


def test_queue_runs_one_after_another_in_order() -> None:
    bench = Bench()
    bench.schedule("line", every("1m"), overlap=Overlap.QUEUE)
    bench.target.script("line", succeed(after=MINUTE * 2))
    bench.advance(minutes=8)
    started = [fact.planned_at for fact in bench.facts if isinstance(fact, AttemptStarted)]
    assert started == sorted(started)
    assert Counter(states(bench.runs("line"))) == {"succeeded": 3, "leased": 1, "held": 4}


def test_after_counts_from_the_end_of_the_last_run() -> None:
    bench = Bench()
    bench.schedule("chain", After(timedelta(minutes=10)))
    bench.target.script("chain", succeed(after=MINUTE * 3))
    bench.advance(minutes=40)
    planned = [run.planned_at - bench.runs("chain")[0].planned_at for run in bench.runs("chain")]
    assert planned == [timedelta(0), timedelta(minutes=13), timedelta(minutes=26)]


def test_once_runs_once_and_then_the_schedule_is_finished() -> None:
    bench = Bench()
    bench.schedule("one", Once(bench.now + MINUTE))
    bench.advance(hours=2)
    assert states(bench.runs("one")) == ["succeeded"]
    assert bench.progress("one").state is ScheduleState.FINISHED


def test_a_schedule_that_keeps_failing_is_parked_and_kept() -> None:
    bench = Bench()
    bench.schedule("bad", every("1m"), retry=Retry(max_attempts=1), disable_after=3)
    bench.target.script("bad", fail())
    bench.advance(minutes=10)
    assert states(bench.runs("bad")) == ["failed:exhausted"] * 3
    assert bench.progress("bad").state is ScheduleState.PARKED


def test_a_run_is_cancelled_while_it_works() -> None:
    bench = Bench()
    bench.schedule("long", every("1m"))
    bench.target.script("long", hang())
    bench.advance(minutes=1)
    (run,) = bench.runs("long")
    cancel(bench.store, run.id, actor="ada", reason="enough", now=bench.now)
    bench.advance(seconds=1)
    assert states(bench.runs("long")) == ["cancelled:enough"]


def test_an_outage_is_caught_up_by_the_catch_up_policy() -> None:
    bench = Bench()
    for policy in CatchUp:
        bench.schedule(policy.value, every("10m"), catch_up=policy, grace=timedelta(seconds=5))
    bench.clock.advance(minutes=35)
    bench.advance(minutes=4)
    assert states(bench.runs("none")) == ["skipped:missed"] * 3
    assert states(bench.runs("last")) == ["skipped:missed"] * 2 + ["succeeded"]
    assert states(bench.runs("all")) == ["succeeded"] * 3
    assert states(bench.runs("spread")) == ["succeeded"] * 3


def test_a_clock_step_forward_is_reported_and_treated_as_an_outage() -> None:
    bench = Bench()
    bench.schedule("a", every("10m"))
    bench.advance(minutes=5)
    bench.clock.step(timedelta(hours=1))
    bench.tick()
    (seen,) = [fact for fact in bench.facts if isinstance(fact, ClockStepped)]
    assert (seen.treated_as, seen.by_seconds) == ("outage", 3600.0)
    assert states(bench.runs("a")) == ["skipped:missed"] * 5 + ["succeeded"]


def test_a_clock_set_back_repeats_nothing() -> None:
    bench = Bench()
    bench.schedule("a", every("10m"))
    bench.advance(hours=1)
    bench.clock.step(-timedelta(minutes=30))
    bench.advance(minutes=30)
    assert len(bench.runs("a")) == len({run.planned_at for run in bench.runs("a")}) == 6


def test_capacity_limits_runs_in_flight() -> None:
    bench = Bench(capacity=3)
    for number in range(10):
        bench.schedule(f"s{number}", every("10m"))
        bench.target.script(f"s{number}", succeed(after=MINUTE))
    bench.advance(minutes=10)
    assert len(bench.target.under_way) == 3
    bench.advance(minutes=4)
    assert all(states(bench.runs(f"s{number}")) == ["succeeded"] for number in range(10))


def test_later_schedules_do_not_overtake_waiting_runs() -> None:
    bench = Bench(capacity=1)
    for minute, names in ((1, "abc"), (2, "d"), (3, "e")):
        for name in names:
            bench.schedule(name, Once(bench.clock.now() + minute * MINUTE))
            bench.target.script(name, succeed(after=MINUTE))
    bench.advance(minutes=7)
    started = [fact.planned_at for fact in bench.facts if isinstance(fact, AttemptStarted)]
    assert len(started) == 5
    assert started == sorted(started)


def test_work_that_outlasts_its_lease_keeps_it_by_renewal() -> None:
    bench = Bench()
    terms = LeaseTerms(length=timedelta(minutes=5), time_limit=timedelta(hours=1))
    bench.schedule("long", every("1h"), lease=terms)
    bench.target.script("long", succeed(after=timedelta(minutes=30)))
    bench.advance(minutes=95)
    (run,) = bench.runs("long")
    assert (run.state, run.attempts, run.fence) == (RunState.SUCCEEDED, 0, 1)
