"""What an answer means, what silence means, and that an answer from a lost lease means nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.conformance.together import all_at_once
from tests.ledger.bench import ADA, Bench, at, kinds
from timewright.core.backoff import Ladder, Stretch
from timewright.core.moments import MINUTE, SECOND
from timewright.core.policies import REFUND_CAP, Align, Delivery, Exhausted, Overlap, Retry
from timewright.core.run import Cancelled, Failed, Outcome, Released, Run, RunState, Succeeded, TimedOut
from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.triggers import Every
from timewright.errors import NotAllowed, NotFound
from timewright.ledger.replan import archive
from timewright.ledger.settle import Answer, cancel, reopen, reset, settle_answers

ONCE = Retry(max_attempts=1)
PARK_AT_ONCE = Retry(max_attempts=1, exhausted=Exhausted.PARK)


def leased(bench: Bench, **fields: Any) -> tuple[Schedule, Run]:
    """A schedule with one run that was just leased."""
    job = bench.schedule(**fields)
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    return job, run


def test_a_success_is_recorded_with_its_word_and_its_result(bench: Bench) -> None:
    _, run = leased(bench)
    bench.rest(5)
    settled = bench.settle(run, outcome=Succeeded(word="noop", result={"rows": 3}))
    assert kinds(settled.facts) == ["RunSucceeded"]
    now = bench.run(run)
    assert (now.state, now.word, now.finished_at) == (RunState.SUCCEEDED, "noop", bench.now)
    (attempt,) = bench.attempts(run)
    assert (attempt.fence, attempt.outcome, attempt.charged, attempt.result) == (
        1,
        "succeeded",
        False,
        {"rows": 3},
    )
    assert (attempt.started_at, attempt.ended_at) == (at(1), at(1) + 5 * SECOND)


def test_failure_costs_an_attempt_and_the_next_one_waits_for_its_backoff(bench: Bench) -> None:
    job, run = leased(bench, retry=Retry(max_attempts=3))
    for failures, wait in ((1, 1), (2, 2)):
        settled = bench.settle(run, outcome=Failed(error="no"))
        assert kinds(settled.facts) == ["RunWillRetry"]
        now = bench.run(run)
        assert (now.state, now.attempts, now.fire_at) == (RunState.READY, failures, bench.now + wait * SECOND)
        assert bench.lease() == []
        bench.rest(wait)
        (run,) = bench.lease()
    settled = bench.settle(run, outcome=Failed(error="no more"))
    assert kinds(settled.facts) == ["RunFailed"]
    now = bench.run(run)
    assert (now.state, now.reason, now.error, now.attempts) == (RunState.FAILED, "exhausted", "no more", 3)
    assert bench.standing(job).failures == 1, "a run that failed is one failure, however many attempts it had"


def test_a_target_can_ask_to_be_left_alone_for_a_while(bench: Bench) -> None:
    _, run = leased(bench)
    bench.settle(run, outcome=Failed(error="busy", not_before=at(9)))
    assert bench.run(run).fire_at == at(9)


def test_an_entry_of_a_queue_is_parked_when_it_is_out_of_attempts(bench: Bench) -> None:
    (entry,) = bench.enqueue("letter")
    for wait in (1, 2, 4):
        (run,) = bench.lease(handoff=True)
        bench.settle(run, outcome=Failed(error="no"))
        bench.rest(wait)
    now = bench.run(entry)
    assert (now.state, now.reason) == (RunState.PARKED, "exhausted: 3/3 attempts used")
    bench.clock.advance(days=30)
    assert bench.lease(handoff=True) == []


def test_silence_costs_an_attempt_and_only_then_the_run_is_handed_out_again(bench: Bench) -> None:
    _, run = leased(bench)
    bench.clock.advance(300 * SECOND)
    assert bench.lease() == []
    settled = bench.reclaim()
    assert kinds(settled.facts) == ["LeaseLost", "RunWillRetry"]
    assert bench.run(run).attempts == 1
    assert bench.attempts(run)[0].outcome == "lost"
    bench.rest(1)
    (again,) = bench.lease()
    assert (again.id, again.fence) == (run.id, 2)


def test_a_lease_is_reclaimed_once_however_many_look(bench: Bench, another: Callable[[str], Bench]) -> None:
    for i in range(3):
        bench.schedule(f"job-{i}")
    bench.go(1)
    bench.admit()
    runs = bench.lease()
    bench.clock.advance(10 * MINUTE)
    answers = all_at_once([another("left").reclaim, another("right").reclaim])
    assert sum(kinds(a.facts).count("LeaseLost") for a in answers) == 3
    assert {bench.run(run).attempts for run in runs} == {1}


def test_an_answer_from_a_lost_lease_changes_nothing_and_is_counted(bench: Bench) -> None:
    job, old = leased(bench)
    bench.clock.advance(300 * SECOND)
    bench.reclaim()
    bench.rest(1)
    (new,) = bench.lease()
    before = bench.run(new)
    settled = bench.settle(old)
    assert (kinds(settled.facts), settled.stale, settled.ended) == (["AnswerStale"], (old.id,), ())
    assert bench.run(new) == before
    assert bench.settle(new).stale == ()
    late = bench.settle(old, outcome=Failed(error="too late"))
    assert late.stale == (old.id,)
    assert bench.fates(job) == [(1, "succeeded")]
    assert [a.outcome for a in bench.attempts(new)] == ["lost", "succeeded"]


def test_two_answers_for_one_run_are_told_apart_by_their_fence(bench: Bench) -> None:
    job, old = leased(bench)
    bench.clock.advance(300 * SECOND)
    bench.reclaim()
    bench.rest(1)
    (new,) = bench.lease()
    settled = bench.settle(new, old)
    assert settled.stale == (old.id,)
    assert sorted(kinds(settled.facts)) == ["AnswerStale", "RunSucceeded"]
    assert bench.fates(job) == [(1, "succeeded")]


def test_the_same_answer_twice_is_neither_stale_nor_counted_again(bench: Bench) -> None:
    job, run = leased(bench, retry=ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    bench.rest(7)
    again = bench.settle(run, outcome=Failed(error="no"))
    assert (again.facts, again.stale) == ((), ())
    assert bench.standing(job).failures == 1
    assert bench.settle(run).stale == (run.id,), "another answer is"


def test_completing_at_the_moment_of_reclaim_has_one_winner(
    bench: Bench, another: Callable[[str], Bench]
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
        assert bench.fates(job)[0][1] == "succeeded"


def leased_in(bench: Bench, name: str) -> tuple[Schedule, Run]:
    job = bench.schedule(name)
    bench.rest(60)
    bench.admit()
    (run,) = [run for run in bench.lease() if run.schedule_id == job.id]
    return job, run


@pytest.mark.parametrize("outcome", [TimedOut(), Released(reason="stopping")])
def test_at_most_once_is_parked_as_unknown_when_nobody_knows(
    bench: Bench, outcome: TimedOut | Released
) -> None:
    _, run = leased(bench, delivery=Delivery.AT_MOST_ONCE)
    assert kinds(bench.settle(run, outcome=outcome).facts) == ["RunParked"]
    assert (bench.run(run).state, bench.run(run).reason) == (RunState.PARKED, "unknown")


@pytest.mark.parametrize("asked", [False, True])
def test_at_most_once_is_parked_as_unknown_after_silence_also_when_asked_to_stop(
    bench: Bench, asked: bool
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
    assert bench.fates(job)[0] == (1, "parked")


def test_giving_a_run_back_is_free_so_many_times_and_then_costs(bench: Bench) -> None:
    _, run = leased(bench, retry=Retry(max_attempts=2))
    for refunds in range(1, REFUND_CAP + 1):
        bench.settle(run, outcome=Released(reason="stopping"))
        assert (bench.run(run).attempts, bench.run(run).refunds) == (0, refunds)
        (run,) = bench.lease()
    bench.settle(run, outcome=Released(reason="stopping"))
    assert bench.run(run).attempts == 1
    bench.rest(1)
    (run,) = bench.lease()
    bench.settle(run, outcome=Released(reason="stopping"))
    assert bench.run(run).state is RunState.FAILED


def test_so_many_failures_in_a_row_park_the_schedule_and_resume_forgives(bench: Bench) -> None:
    job = bench.schedule(retry=ONCE, disable_after=2)
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
        told = bench.settle(*bench.lease(), outcome=Failed(error="no")).facts
    assert kinds(told) == ["RunFailed", "ScheduleParked"]
    standing = bench.standing(job)
    assert (standing.state, standing.reason) == (ScheduleState.PARKED, "disabled after 2 failures in a row")
    bench.go(5)
    assert bench.admit().looked_at == 0
    bench.resume(job)
    bench.go(6)
    bench.admit()
    standing = bench.standing(job)
    assert (standing.state, standing.failures) == (ScheduleState.ACTIVE, 0)
    assert bench.fates(job)[2:] == [(3, "paused"), (4, "paused"), (5, "ready"), (6, "overlap")]


def test_any_success_ends_the_row_of_failures(bench: Bench) -> None:
    job = bench.schedule(retry=ONCE, disable_after=2)
    for minute, outcome in enumerate([Failed(error="no"), None, Failed(error="no"), None], start=1):
        bench.go(minute)
        bench.admit()
        bench.work(outcome)
        assert bench.standing(job).failures == (1 if outcome else 0)
    assert bench.standing(job).state is ScheduleState.ACTIVE


def test_a_cancel_says_nothing_about_the_row_of_failures(bench: Bench) -> None:
    job = bench.schedule(retry=ONCE)
    outcomes: list[Outcome] = [Failed(error="no"), Cancelled()]
    for minute, outcome in enumerate(outcomes, start=1):
        bench.go(minute)
        bench.admit()
        bench.work(outcome)
    assert bench.standing(job).failures == 1


def test_a_target_that_does_not_resolve_parks_the_schedule_after_its_attempts(bench: Bench) -> None:
    job, run = leased(bench, retry=Retry(max_attempts=2))
    bench.settle(run, outcome=Failed(error="no module shop", unresolved=True))
    assert bench.standing(job).state is ScheduleState.ACTIVE
    bench.rest(1)
    told = bench.settle(*bench.lease(), outcome=Failed(error="no module shop", unresolved=True)).facts
    assert kinds(told) == ["RunFailed", "ScheduleParked"]
    standing = bench.standing(job)
    assert standing.state is ScheduleState.PARKED
    assert standing.reason == "target does not resolve: no module shop"


def test_a_parked_run_does_not_block_its_schedule(bench: Bench) -> None:
    job, run = leased(bench, retry=PARK_AT_ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    bench.go(2)
    bench.admit()
    assert bench.fates(job) == [(1, "parked"), (2, "ready")]


@pytest.mark.parametrize("again", [reset, reopen])
def test_a_run_that_is_tried_again_is_held_while_another_is_live(
    bench: Bench, again: Callable[..., object]
) -> None:
    job, run = leased(bench, retry=PARK_AT_ONCE if again is reset else ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    bench.go(2)
    bench.admit()
    (live,) = bench.lease()
    again(bench.store, run.id, actor="ada", reason="mended", now=bench.now)
    assert bench.fates(job) == [(1, "held"), (2, "leased")]
    bench.settle(live)
    (second,) = bench.lease()
    assert (second.id, second.fence, second.attempts) == (run.id, 2, 0)
    bench.settle(second)
    assert bench.fates(job) == [(1, "succeeded"), (2, "succeeded")]
    assert bench.audit()[-1].actor == "ada"


@pytest.mark.parametrize("again", [reset, reopen])
def test_a_run_that_is_tried_again_is_ready_when_nothing_else_is(
    bench: Bench, again: Callable[..., object]
) -> None:
    _, run = leased(bench, retry=PARK_AT_ONCE if again is reset else ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    again(bench.store, run.id, actor="ada", now=bench.now)
    now = bench.run(run)
    assert (now.state, now.attempts, now.reason, now.finished_at) == (RunState.READY, 0, "", None)
    assert [one.id for one in bench.lease()] == [run.id]


def test_only_what_is_parked_is_reset_and_only_by_someone_with_a_name(bench: Bench) -> None:
    _, run = leased(bench, retry=ONCE)
    with pytest.raises(NotAllowed, match="leased cannot reset"):
        reset(bench.store, run.id, actor="ada", now=bench.now)
    with pytest.raises(NotAllowed, match="needs an actor"):
        reset(bench.store, run.id, actor="", now=bench.now)
    with pytest.raises(NotFound):
        reset(bench.store, "run_nobody", actor="ada", now=bench.now)
    bench.settle(run)
    with pytest.raises(NotAllowed, match="succeeded cannot reopen"):
        reopen(bench.store, run.id, actor="ada", now=bench.now)


def test_a_run_of_an_archived_schedule_is_not_tried_again(bench: Bench) -> None:
    job, run = leased(bench, retry=ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    archive(bench.store, job.id, by=ADA, now=bench.now)
    with pytest.raises(NotAllowed, match="archived"):
        reopen(bench.store, run.id, actor="ada", now=bench.now)


def test_a_cancel_asks_the_holder_and_gives_it_its_grace(bench: Bench) -> None:
    _, run = leased(bench)
    told = cancel(bench.store, run.id, actor="ada", reason="wrong file", now=bench.now)
    assert kinds(told) == ["CancelRequested"]
    now = bench.run(run)
    assert (now.state, now.cancel_at, now.lease_until) == (RunState.LEASED, at(1), at(1) + 10 * SECOND)
    told = bench.settle(run, outcome=Failed(error="terminated")).facts
    assert kinds(told) == ["RunCancelled"]
    assert (bench.run(run).state, bench.run(run).reason) == (RunState.CANCELLED, "wrong file")


def test_a_parked_run_can_be_given_up(bench: Bench) -> None:
    job, run = leased(bench, retry=PARK_AT_ONCE)
    bench.settle(run, outcome=Failed(error="no"))
    before = bench.standing(job)
    cancel(bench.store, run.id, actor="ada", reason="", now=bench.go(1.5))
    assert bench.run(run).state is RunState.CANCELLED
    assert bench.standing(job) == before
    with pytest.raises(NotAllowed):
        cancel(bench.store, run.id, actor="ada", reason="", now=bench.now)


def test_counted_from_now_the_next_time_is_one_interval_after_the_start(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.go(10.5)
    bench.admit()
    bench.go(11)
    (run,) = bench.lease()
    bench.go(12)
    bench.settle(run)
    assert bench.fates(job) == [(10, "succeeded")]
    assert bench.standing(job).next_at == at(21)


def test_counted_from_now_a_run_that_was_stopped_counts_from_its_start_too(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.go(10)
    bench.admit()
    bench.go(13)
    bench.work(Cancelled())
    assert bench.standing(job).next_at == at(23)


def test_a_schedule_is_not_finished_while_the_last_of_its_runs_is_held(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE, end_at=at(2))
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    bench.work()
    assert bench.standing(job).state is ScheduleState.ACTIVE
    bench.work()
    assert bench.standing(job).state is ScheduleState.FINISHED


def test_failures_stretch_the_interval_and_a_success_lets_go(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW, cadence=Stretch(), retry=ONCE)
    for planned, outcome, following in (
        (10, Failed(error="no"), 30),
        (30, Failed(error="no"), 70),
        (70, None, 80),
    ):
        bench.go(planned)
        bench.admit()
        bench.work(outcome)
        assert bench.standing(job).next_at == at(following)


def test_a_run_longer_than_its_interval_is_followed_one_interval_after_its_end(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(MINUTE), align=Align.NOW, overlap=Overlap.SKIP)
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    bench.go(1.9)
    bench.settle(run)
    assert bench.standing(job).next_at == at(2)
    bench.go(2)
    bench.admit()
    (run,) = bench.lease()
    bench.go(2.5)
    bench.admit()
    bench.go(5)
    bench.settle(run)
    assert bench.standing(job).next_at == at(6)


def test_a_ladder_keeps_a_failing_schedule_away(bench: Bench) -> None:
    job = bench.schedule(cadence=Ladder((5 * MINUTE,)), retry=ONCE)
    bench.go(1)
    bench.admit()
    bench.work(Failed(error="no"))
    assert bench.standing(job).next_at == at(6)


def test_many_answers_are_written_together(bench: Bench) -> None:
    jobs = [bench.schedule(f"job-{i}") for i in range(30)]
    bench.go(1)
    bench.admit()
    runs = bench.lease(100)
    answers = [
        Answer(run=run, outcome=Succeeded() if i % 2 else Failed(error="no", final=True))
        for i, run in enumerate(runs)
    ]
    settled = settle_answers(bench.store, answers, now=bench.now)
    assert kinds(settled.facts).count("RunSucceeded") == kinds(settled.facts).count("RunFailed") == 15
    assert sorted(bench.standing(job).failures for job in jobs) == [0] * 15 + [1] * 15
    assert settle_answers(bench.store, [], now=bench.now).facts == ()
