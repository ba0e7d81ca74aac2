"""Settling results and expired leases; a result of a lost lease changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.conformance.support.concurrency import all_at_once
from tests.ledger.ledger_kit import ADA, LedgerHarness, at, kinds
from timewright.core.moments import MINUTE, SECOND
from timewright.core.policies.backoff import Ladder, Stretch
from timewright.core.policies.policies import MAX_REFUNDS, Align, Delivery, Exhausted, Overlap, Retry
from timewright.core.recurrence.triggers import Every
from timewright.core.run.run import Cancelled, Failed, Outcome, Released, Run, RunState, Succeeded, TimedOut
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import NotAllowed, NotFound
from timewright.ledger.replan import archive
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import cancel, reopen, reset, settle_results

ONCE = Retry(max_attempts=1)
PARK_AT_ONCE = Retry(max_attempts=1, exhausted=Exhausted.PARK)


def leased(bench: LedgerHarness, **fields: Any) -> tuple[Schedule, Run]:
    """A schedule with one leased run."""
    job = bench.schedule(**fields)
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    return job, run


def test_a_success_is_recorded_with_its_label_and_result(bench: LedgerHarness) -> None:
    _, run = leased(bench)
    bench.advance(5)
    settled = bench.settle(run, outcome=Succeeded(outcome_label="noop", result={"rows": 3}))
    assert kinds(settled.facts) == ["RunSucceeded"]
    now = bench.run(run)
    assert (now.state, now.outcome_label, now.finished_at) == (RunState.SUCCEEDED, "noop", bench.now)
    (attempt,) = bench.attempts(run)
    assert (attempt.fence, attempt.outcome, attempt.charged, attempt.result) == (
        1,
        "succeeded",
        False,
        {"rows": 3},
    )
    assert (attempt.started_at, attempt.ended_at) == (at(1), at(1) + 5 * SECOND)


def test_failure_costs_an_attempt_and_the_next_one_waits_for_its_backoff(bench: LedgerHarness) -> None:
    job, run = leased(bench, retry=Retry(max_attempts=3))
    for failures, wait in ((1, 1), (2, 2)):
        settled = bench.settle(run, outcome=Failed(error="no"))
        assert kinds(settled.facts) == ["RunWillRetry"]
        now = bench.run(run)
        assert (now.state, now.attempts, now.fire_at) == (RunState.READY, failures, bench.now + wait * SECOND)
        assert bench.lease() == []
        bench.advance(wait)
        (run,) = bench.lease()
    settled = bench.settle(run, outcome=Failed(error="no more"))
    assert kinds(settled.facts) == ["RunFailed"]
    now = bench.run(run)
    assert (now.state, now.reason, now.error, now.attempts) == (RunState.FAILED, "exhausted", "no more", 3)
    assert bench.progress(job).failures == 1, "a run that failed is one failure, however many attempts it had"


def test_a_target_can_ask_to_be_left_alone_for_a_while(bench: LedgerHarness) -> None:
    _, run = leased(bench)
    bench.settle(run, outcome=Failed(error="busy", not_before=at(9)))
    assert bench.run(run).fire_at == at(9)


def test_an_entry_of_a_queue_is_parked_when_it_is_out_of_attempts(bench: LedgerHarness) -> None:
    (entry,) = bench.enqueue("letter")
    for wait in (1, 2, 4):
        (run,) = bench.lease(handoff=True)
        bench.settle(run, outcome=Failed(error="no"))
        bench.advance(wait)
    now = bench.run(entry)
    assert (now.state, now.reason) == (RunState.PARKED, "exhausted: 3/3 attempts used")
    bench.clock.advance(days=30)
    assert bench.lease(handoff=True) == []


def test_a_lost_lease_is_counted_before_the_run_is_leased_again(bench: LedgerHarness) -> None:
    _, run = leased(bench)
    bench.clock.advance(300 * SECOND)
    assert bench.lease() == []
    settled = bench.reclaim()
    assert kinds(settled.facts) == ["LeaseLost", "RunReleased"]
    assert (bench.run(run).attempts, bench.run(run).losses) == (0, 1)
    assert [(a.outcome, a.charged) for a in bench.attempts(run)] == [("lost", False)]
    (again,) = bench.lease()
    assert (again.id, again.fence) == (run.id, 2)


def test_a_run_that_is_lost_again_and_again_is_parked_as_lost(bench: LedgerHarness) -> None:
    job, run = leased(bench)
    for losses in range(1, 4):
        bench.clock.advance(MINUTE)
        bench.reclaim()
        assert (bench.run(run).state, bench.run(run).losses) == (RunState.READY, losses)
        bench.lease()
    bench.clock.advance(MINUTE)
    assert kinds(bench.reclaim().facts)[:2] == ["LeaseLost", "RunParked"]
    parked = bench.run(run)
    assert (parked.state, parked.reason, parked.attempts, parked.losses) == (RunState.PARKED, "lost", 0, 4)
    reset(bench.store, run.id, actor="ada", now=bench.now)
    assert (bench.run(run).state, bench.run(run).losses) == (RunState.READY, 0)
    assert job.retry.max_losses == 3


def test_a_deferred_run_keeps_its_attempts_until_max_wait_is_used(bench: LedgerHarness) -> None:
    _, run = leased(bench, retry=Retry(max_wait=90 * SECOND))
    for waited, state in ((60, RunState.READY), (30, RunState.READY), (0, RunState.FAILED)):
        later = Failed(error="429 Too Many Requests", not_before=bench.now + MINUTE)
        bench.settle(bench.run(run), outcome=later)
        assert (bench.run(run).state, bench.run(run).attempts) == (state, int(state is RunState.FAILED))
        if waited:
            assert bench.run(run).fire_at == bench.now + waited * SECOND
            assert bench.lease() == []
            bench.clock.advance(waited * SECOND)
            bench.lease()
    assert [a.outcome for a in bench.attempts(run)] == ["deferred", "deferred", "failed"]


def test_a_lease_is_reclaimed_once_however_many_look(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    for i in range(3):
        bench.schedule(f"job-{i}")
    bench.move_to(1)
    bench.admit()
    runs = bench.lease()
    bench.clock.advance(10 * MINUTE)
    answers = all_at_once([another("left").reclaim, another("right").reclaim])
    assert sum(kinds(a.facts).count("LeaseLost") for a in answers) == 3
    assert {bench.run(run).losses for run in runs} == {1}


def test_a_result_of_a_lost_lease_changes_nothing_and_is_counted(bench: LedgerHarness) -> None:
    job, old = leased(bench)
    bench.clock.advance(300 * SECOND)
    bench.reclaim()
    bench.advance(1)
    (new,) = bench.lease()
    before = bench.run(new)
    settled = bench.settle(old)
    assert (kinds(settled.facts), settled.stale, settled.ended) == (["AnswerStale"], (old.id,), ())
    assert bench.run(new) == before
    assert bench.settle(new).stale == ()
    late = bench.settle(old, outcome=Failed(error="too late"))
    assert late.stale == (old.id,)
    assert bench.outcomes_of(job) == [(1, "succeeded")]
    assert [a.outcome for a in bench.attempts(new)] == ["lost", "succeeded"]


def test_two_results_of_one_run_are_distinguished_by_their_fence(bench: LedgerHarness) -> None:
    job, old = leased(bench)
    bench.clock.advance(300 * SECOND)
    bench.reclaim()
    bench.advance(1)
    (new,) = bench.lease()
    settled = bench.settle(new, old)
    assert settled.stale == (old.id,)
    assert sorted(kinds(settled.facts)) == ["AnswerStale", "RunSucceeded"]
    assert bench.outcomes_of(job) == [(1, "succeeded")]


def test_a_repeated_result_is_neither_stale_nor_counted_again(bench: LedgerHarness) -> None:
    job, run = leased(bench, retry=ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    bench.advance(7)
    again = bench.settle(run, outcome=Failed(error="no"))
    assert (again.facts, again.stale) == ((), ())
    assert bench.progress(job).failures == 1
    assert bench.settle(run).stale == (run.id,), "another answer is"


def test_completing_at_the_moment_of_reclaim_has_one_winner(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    for turn in range(3):
        job, run = leased_in(bench, f"job-{turn}")
        bench.clock.advance(300 * SECOND)
        left, right = another("left"), another("right")
        all_at_once([partial(left.settle, run), right.reclaim])
        ends = bench.attempts(run)
        assert len(ends) == 1
        assert bench.run(run).state is (
            RunState.SUCCEEDED if ends[0].outcome == "succeeded" else RunState.READY
        )
        bench.clock.advance(minutes=2)
        bench.work()
        assert bench.outcomes_of(job)[0][1] == "succeeded"


def leased_in(bench: LedgerHarness, name: str) -> tuple[Schedule, Run]:
    job = bench.schedule(name)
    bench.advance(60)
    bench.admit()
    (run,) = [run for run in bench.lease() if run.schedule_id == job.id]
    return job, run


@pytest.mark.parametrize("outcome", [TimedOut(), Released(reason="stopping")])
def test_an_at_most_once_run_with_a_lost_lease_is_parked_as_unknown(
    bench: LedgerHarness, outcome: TimedOut | Released
) -> None:
    _, run = leased(bench, delivery=Delivery.AT_MOST_ONCE)
    assert kinds(bench.settle(run, outcome=outcome).facts) == ["RunParked"]
    assert (bench.run(run).state, bench.run(run).reason) == (RunState.PARKED, "unknown")


@pytest.mark.parametrize("asked", [False, True])
def test_at_most_once_is_parked_as_unknown_after_silence_also_when_asked_to_stop(
    bench: LedgerHarness, asked: bool
) -> None:
    job, run = leased(bench, delivery=Delivery.AT_MOST_ONCE)
    if asked:
        cancel(bench.store, run.id, actor="ada", reason="", now=bench.now)
    bench.clock.advance(300 * SECOND)
    bench.reclaim()
    assert (bench.run(run).state, bench.run(run).reason) == (RunState.PARKED, "unknown")
    bench.clock.advance(days=1)
    bench.admit()
    assert run.id not in {one.id for one in bench.lease()}
    assert len(bench.attempts(run)) == 1
    assert bench.outcomes_of(job)[0] == (1, "parked")


def test_releasing_a_run_is_free_up_to_a_limit(bench: LedgerHarness) -> None:
    _, run = leased(bench, retry=Retry(max_attempts=2))
    for refunds in range(1, MAX_REFUNDS + 1):
        bench.settle(run, outcome=Released(reason="stopping"))
        assert (bench.run(run).attempts, bench.run(run).refunds) == (0, refunds)
        (run,) = bench.lease()
    bench.settle(run, outcome=Released(reason="stopping"))
    assert bench.run(run).attempts == 1
    bench.advance(1)
    (run,) = bench.lease()
    bench.settle(run, outcome=Released(reason="stopping"))
    assert bench.run(run).state is RunState.FAILED


def test_consecutive_failures_park_the_schedule_and_resume_clears_them(bench: LedgerHarness) -> None:
    job = bench.schedule(retry=ONCE, disable_after=2)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
        told = bench.settle(*bench.lease(), outcome=Failed(error="no")).facts
    assert kinds(told) == ["RunFailed", "ScheduleParked"]
    progress = bench.progress(job)
    assert (progress.state, progress.reason) == (ScheduleState.PARKED, "disabled after 2 failures in a row")
    bench.move_to(5)
    assert bench.admit().schedules_read == 0
    bench.resume(job)
    bench.move_to(6)
    bench.admit()
    progress = bench.progress(job)
    assert (progress.state, progress.failures) == (ScheduleState.ACTIVE, 0)
    assert bench.outcomes_of(job)[2:] == [(3, "paused"), (4, "paused"), (5, "ready"), (6, "overlap")]


def test_any_success_clears_the_failure_streak(bench: LedgerHarness) -> None:
    job = bench.schedule(retry=ONCE, disable_after=2)
    for minute, outcome in enumerate([Failed(error="no"), None, Failed(error="no"), None], start=1):
        bench.move_to(minute)
        bench.admit()
        bench.work(outcome)
        assert bench.progress(job).failures == (1 if outcome else 0)
    assert bench.progress(job).state is ScheduleState.ACTIVE


def test_a_cancel_does_not_change_the_failure_streak(bench: LedgerHarness) -> None:
    job = bench.schedule(retry=ONCE)
    outcomes: list[Outcome] = [Failed(error="no"), Cancelled()]
    for minute, outcome in enumerate(outcomes, start=1):
        bench.move_to(minute)
        bench.admit()
        bench.work(outcome)
    assert bench.progress(job).failures == 1


def test_a_target_that_does_not_resolve_parks_the_schedule_after_its_attempts(bench: LedgerHarness) -> None:
    job, run = leased(bench, retry=Retry(max_attempts=2))
    bench.settle(run, outcome=Failed(error="no module shop", unresolved=True))
    assert bench.progress(job).state is ScheduleState.ACTIVE
    bench.advance(1)
    told = bench.settle(*bench.lease(), outcome=Failed(error="no module shop", unresolved=True)).facts
    assert kinds(told) == ["RunFailed", "ScheduleParked"]
    progress = bench.progress(job)
    assert progress.state is ScheduleState.PARKED
    assert progress.reason == "target does not resolve: no module shop"


def test_a_parked_run_does_not_block_its_schedule(bench: LedgerHarness) -> None:
    job, run = leased(bench, retry=PARK_AT_ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    bench.move_to(2)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "parked"), (2, "ready")]


@pytest.mark.parametrize("again", [reset, reopen])
def test_a_reopened_run_is_held_while_another_is_live(
    bench: LedgerHarness, again: Callable[..., object]
) -> None:
    job, run = leased(bench, retry=PARK_AT_ONCE if again is reset else ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    bench.move_to(2)
    bench.admit()
    (live,) = bench.lease()
    again(bench.store, run.id, actor="ada", reason="mended", now=bench.now)
    assert bench.outcomes_of(job) == [(1, "held"), (2, "leased")]
    bench.settle(live)
    (second,) = bench.lease()
    assert (second.id, second.fence, second.attempts) == (run.id, 2, 0)
    bench.settle(second)
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "succeeded")]
    assert bench.audit()[-1].actor == "ada"


@pytest.mark.parametrize("again", [reset, reopen])
def test_a_reopened_run_is_ready_if_no_other_is_live(
    bench: LedgerHarness, again: Callable[..., object]
) -> None:
    _, run = leased(bench, retry=PARK_AT_ONCE if again is reset else ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    again(bench.store, run.id, actor="ada", now=bench.now)
    now = bench.run(run)
    assert (now.state, now.attempts, now.reason, now.finished_at) == (RunState.READY, 0, "", None)
    assert [one.id for one in bench.lease()] == [run.id]


def test_only_a_parked_run_is_reset_and_only_by_a_named_actor(bench: LedgerHarness) -> None:
    _, run = leased(bench, retry=ONCE)
    with pytest.raises(NotAllowed, match="leased cannot be reset"):
        reset(bench.store, run.id, actor="ada", now=bench.now)
    with pytest.raises(NotAllowed, match="needs an actor"):
        reset(bench.store, run.id, actor="", now=bench.now)
    with pytest.raises(NotFound):
        reset(bench.store, "run_nobody", actor="ada", now=bench.now)
    bench.settle(run)
    with pytest.raises(NotAllowed, match="succeeded cannot be retried"):
        reopen(bench.store, run.id, actor="ada", now=bench.now)


def test_a_run_of_an_archived_schedule_cannot_be_reopened(bench: LedgerHarness) -> None:
    job, run = leased(bench, retry=ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    archive(bench.store, job.id, by=ADA, now=bench.now)
    with pytest.raises(NotAllowed, match="archived"):
        reopen(bench.store, run.id, actor="ada", now=bench.now)


def test_a_cancel_asks_the_holder_and_gives_it_its_grace(bench: LedgerHarness) -> None:
    _, run = leased(bench)
    told = cancel(bench.store, run.id, actor="ada", reason="wrong file", now=bench.now)
    assert kinds(told) == ["CancelRequested"]
    now = bench.run(run)
    assert (now.state, now.cancel_at, now.lease_until) == (RunState.LEASED, at(1), at(1) + 10 * SECOND)
    told = bench.settle(run, outcome=Failed(error="terminated")).facts
    assert kinds(told) == ["RunCancelled"]
    assert (bench.run(run).state, bench.run(run).reason) == (RunState.CANCELLED, "wrong file")


def test_a_parked_run_can_be_given_up(bench: LedgerHarness) -> None:
    job, run = leased(bench, retry=PARK_AT_ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    before = bench.progress(job)
    cancel(bench.store, run.id, actor="ada", reason="", now=bench.move_to(1.5))
    assert bench.run(run).state is RunState.CANCELLED
    assert bench.progress(job) == before
    with pytest.raises(NotAllowed):
        cancel(bench.store, run.id, actor="ada", reason="", now=bench.now)


def test_counted_from_now_the_next_time_is_one_interval_after_the_start(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.move_to(10.5)
    bench.admit()
    bench.move_to(11)
    (run,) = bench.lease()
    bench.move_to(12)
    bench.settle(run)
    assert bench.outcomes_of(job) == [(10, "succeeded")]
    assert bench.progress(job).next_at == at(21)


def test_counted_from_now_a_run_that_was_stopped_counts_from_its_start_too(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.move_to(10)
    bench.admit()
    bench.move_to(13)
    bench.work(Cancelled())
    assert bench.progress(job).next_at == at(23)


def test_a_schedule_is_not_finished_while_the_last_of_its_runs_is_held(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE, end_at=at(2))
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    bench.work()
    assert bench.progress(job).state is ScheduleState.ACTIVE
    bench.work()
    assert bench.progress(job).state is ScheduleState.FINISHED


def test_failures_stretch_the_interval_and_a_success_lets_go(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW, cadence=Stretch(), retry=ONCE)
    for planned, outcome, following in (
        (10, Failed(error="no"), 30),
        (30, Failed(error="no"), 70),
        (70, None, 80),
    ):
        bench.move_to(planned)
        bench.admit()
        bench.work(outcome)
        assert bench.progress(job).next_at == at(following)


def test_a_run_longer_than_its_interval_is_followed_one_interval_after_its_end(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(MINUTE), align=Align.NOW, overlap=Overlap.SKIP)
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    bench.move_to(1.9)
    bench.settle(run)
    assert bench.progress(job).next_at == at(2)
    bench.move_to(2)
    bench.admit()
    (run,) = bench.lease()
    bench.move_to(2.5)
    bench.admit()
    bench.move_to(5)
    bench.settle(run)
    assert bench.progress(job).next_at == at(6)


def test_a_ladder_keeps_a_failing_schedule_away(bench: LedgerHarness) -> None:
    job = bench.schedule(cadence=Ladder((5 * MINUTE,)), retry=ONCE)
    bench.move_to(1)
    bench.admit()
    bench.work(Failed(error="no"))
    assert bench.progress(job).next_at == at(6)


def test_many_results_are_settled_in_one_transaction(bench: LedgerHarness) -> None:
    jobs = [bench.schedule(f"job-{i}") for i in range(30)]
    bench.move_to(1)
    bench.admit()
    runs = bench.lease(100)
    answers = [
        AttemptResult(run=run, outcome=Succeeded() if i % 2 else Failed(error="no", final=True))
        for i, run in enumerate(runs)
    ]
    settled = settle_results(bench.store, answers, now=bench.now)
    assert kinds(settled.facts).count("RunSucceeded") == kinds(settled.facts).count("RunFailed") == 15
    assert sorted(bench.progress(job).failures for job in jobs) == [0] * 15 + [1] * 15
    assert settle_results(bench.store, [], now=bench.now).facts == ()
