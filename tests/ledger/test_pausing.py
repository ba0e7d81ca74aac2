"""A pause skips and records its occurrences, and catches none up."""

from __future__ import annotations

import pytest

from tests.ledger.ledger_kit import LedgerHarness, at, kinds
from timewright.core.moments import MINUTE, SECOND
from timewright.core.policies.backoff import Ladder
from timewright.core.policies.policies import Align, CatchUp, Overlap
from timewright.core.recurrence.triggers import After, Every, Once
from timewright.core.run.run import Failed, RunState
from timewright.core.schedule.hints import NO_HINTS, IntervalHint, PauseHint
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidInput, NotAllowed, NotFound


def test_occurrences_in_a_pause_are_skipped_and_never_caught_up(bench: LedgerHarness) -> None:
    job = bench.schedule(catch_up=CatchUp.ALL)
    bench.move_to(0.5)
    bench.pause(job, until=at(3))
    bench.move_to(2)
    assert bench.admit().schedules_read == 0
    bench.move_to(3)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "paused"), (2, "paused"), (3, "ready")]
    assert bench.progress(job).state is ScheduleState.ACTIVE


def test_a_pause_without_an_end_lasts_until_someone_resumes(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(0.5)
    changed = bench.pause(job)
    assert (changed.progress.state, changed.progress.next_at) == (ScheduleState.PAUSED, None)
    bench.move_to(4.5)
    assert bench.admit().schedules_read == 0
    changed = bench.resume(job)
    assert changed.progress.next_at == at(5), "the next time is known at once"
    assert kinds(changed.facts) == ["ScheduleChanged", *["RunSkipped"] * 4]
    assert bench.outcomes_of(job) == [(minute, "paused") for minute in (1, 2, 3, 4)]
    bench.move_to(5)
    bench.admit()
    assert bench.outcomes_of(job)[-1] == (5, "ready")


def test_a_long_pause_is_one_row_that_counts(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(SECOND))
    bench.pause(job)
    bench.clock.advance(seconds=3600.5)
    bench.resume(job)
    assert bench.outcomes_of(job) == [(1 / 60, "pausedx3600")]
    assert bench.progress(job).next_at == at(60) + SECOND


def test_a_very_long_pause_is_recorded_pass_by_pass(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(SECOND))
    bench.pause(job)
    bench.clock.advance(seconds=25_000.5)
    bench.resume(job)
    while bench.admit().admit_again:
        pass
    rows = bench.runs(job)
    assert sum(run.dropped for run in rows) == 25_000
    assert {run.reason for run in rows} == {"paused"}
    assert bench.progress(job).next_at == at(0) + 25_001 * SECOND


def test_resuming_early_goes_on_at_the_next_instant(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.pause(job, until=at(60))
    bench.move_to(2.5)
    bench.resume(job)
    bench.move_to(3)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "paused"), (2, "paused"), (3, "ready")]


def test_pausing_twice_is_one_pause_from_the_first(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(0.5)
    bench.pause(job, until=at(2.5))
    bench.move_to(1.5)
    bench.pause(job, until=at(4.5))
    bench.move_to(5)
    bench.admit()
    assert bench.outcomes_of(job) == [*[(minute, "paused") for minute in (1, 2, 3, 4)], (5, "ready")]


def test_runs_in_flight_and_held_runs_continue_during_a_pause(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    (run,) = bench.lease()
    bench.pause(job)
    bench.settle(run)
    bench.work()
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "succeeded")]
    assert bench.progress(job).state is ScheduleState.PAUSED


def test_occurrences_missed_before_a_pause_are_caught_up_after_it(bench: LedgerHarness) -> None:
    """No admission since noon; the pause began later."""
    job = bench.schedule(trigger=Every(10 * MINUTE))
    bench.move_to(15)
    bench.pause(job, until=at(28))
    bench.move_to(29)
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "ready"), (20, "paused")]


def test_counted_from_now_it_runs_at_the_very_end_of_the_pause(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.pause(job, until=at(25))
    bench.move_to(25)
    bench.admit()
    assert bench.outcomes_of(job) == [(25, "ready")]


@pytest.mark.parametrize("is_hinted", [False, True])
def test_counted_from_now_it_runs_at_the_end_of_the_first_of_two_pauses(
    bench: LedgerHarness, is_hinted: bool
) -> None:
    """The engine was late, and the second pause began after the end of the first (ruling 2)."""
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW, adaptive=True)
    bench.pause(job, until=at(25))
    bench.move_to(30)
    if is_hinted:
        bench.hint(job, PauseHint(until=at(40)))
    else:
        bench.pause(job, until=at(40))
    bench.move_to(41)
    bench.admit()
    # What is due is decided first, so the end of the second pause finds that run.
    assert bench.outcomes_of(job) == [(25, "ready"), (40, "overlap")]


def test_a_delay_starts_again_from_the_end_of_the_pause(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=After(10 * MINUTE))
    bench.pause(job, until=at(25))
    bench.move_to(25)
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "paused")]
    assert bench.progress(job).next_at == at(35)


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.LAST, CatchUp.ALL])
def test_a_delay_that_was_over_before_the_pause_is_no_part_of_it(
    bench: LedgerHarness, catch_up: CatchUp
) -> None:
    """Dense seed 150000065: it was recorded as paused, and never ran."""
    job = bench.schedule(trigger=After(10 * MINUTE), catch_up=catch_up)
    bench.move_to(15)
    bench.pause(job, until=at(25))
    bench.move_to(25)
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "missed" if catch_up is CatchUp.NONE else "ready")]
    bench.move_to(30)
    bench.work()
    assert bench.progress(job).next_at == at(35 if catch_up is CatchUp.NONE else 40)


def test_a_delay_that_was_over_before_the_pause_stays_due_whatever_a_hint_decides(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule(trigger=After(10 * MINUTE), adaptive=True)
    bench.move_to(15)
    bench.pause(job, until=at(25))
    bench.hint(job, IntervalHint(interval=20 * MINUTE, expires_at=at(60)))
    bench.move_to(25)
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "ready")]


def test_once_inside_a_pause_is_skipped_and_over(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Once(at(5)))
    bench.pause(job)
    bench.move_to(9)
    changed = bench.resume(job)
    assert bench.outcomes_of(job) == [(5, "paused")]
    assert changed.progress.state is ScheduleState.FINISHED


def test_the_end_of_a_pause_must_be_in_the_future(bench: LedgerHarness) -> None:
    job = bench.schedule()
    with pytest.raises(InvalidInput, match="not in the future"):
        bench.pause(job, until=bench.now)


def test_a_schedule_that_is_not_paused_cannot_be_resumed(bench: LedgerHarness) -> None:
    job = bench.schedule()
    with pytest.raises(NotAllowed, match="active cannot be resumed"):
        bench.resume(job)
    finished = bench.schedule("once", Once(at(1)))
    bench.move_to(1)
    bench.admit()
    bench.work()
    with pytest.raises(NotAllowed, match="finished cannot be paused"):
        bench.pause(finished)
    gone = bench.draft("never kept")
    with pytest.raises(NotFound):
        bench.pause(gone)


def test_each_pause_and_each_resume_has_an_audit_entry(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.pause(job, until=at(9))
    bench.pause(job)
    bench.resume(job)
    lines = [(e.action, e.before, e.after, e.actor, e.reason) for e in bench.audit()[1:]]
    assert lines == [
        ("schedule.pause", "active", "paused", "ada", "because"),
        ("schedule.pause", "paused", "paused", "ada", "because"),
        ("schedule.resume", "paused", "active", "ada", "because"),
    ]


def test_a_pause_after_one_that_is_over_does_not_reach_back_to_it(bench: LedgerHarness) -> None:
    job = bench.schedule(
        trigger=Every(MINUTE, at(0)), catch_up=CatchUp.ALL, catch_up_limit=3, overlap=Overlap.ALLOW
    )
    bench.pause(job, until=at(5))
    bench.move_to(12)
    bench.admit()
    ran = [run.planned_at for run in bench.runs(job) if run.state is RunState.READY]
    assert ran
    assert min(ran) >= at(5)
    bench.pause(job)
    assert bench.progress(job).paused_at == at(12)


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize("is_admitted", [False, True])
@pytest.mark.parametrize("is_hinted", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_instant_between_two_pauses_is_no_part_of_them(
    bench: LedgerHarness, limit: int, is_admitted: bool, is_hinted: bool, is_resumed: bool
) -> None:
    """The first pause is still stored at the second: a limit carries over what was due before it."""
    job = bench.schedule(
        trigger=Every(MINUTE, at(0)), adaptive=True, catch_up=CatchUp.ALL, catch_up_limit=limit
    )

    def pause(until: float) -> None:
        if is_hinted:
            bench.hint(job, PauseHint(until=at(until)))
        else:
            bench.pause(job, until=at(until))

    bench.move_to(3.5)
    pause(5.5)
    bench.move_to(8.5)
    if is_admitted:
        bench.admit()
    if is_resumed and bench.progress(job).state is ScheduleState.PAUSED:
        bench.resume(job)
    pause(10.5)
    bench.move_to(11.5)
    for _ in range(20):
        bench.admit()
        bench.work()
        bench.advance(1)
    paused = [run.planned_at for run in bench.runs(job) if run.reason == "paused"]
    assert paused == [at(4), at(5), at(9), at(10)]
    assert [run.planned_at for run in bench.runs(job)] == [at(minute) for minute in range(1, 12)]
    assert bench.progress(job).hints == NO_HINTS
    assert bench.progress(job).paused_at is None


@pytest.mark.parametrize("by_hint", [False, True])
def test_a_failure_by_hand_does_not_move_the_next_time_that_a_pause_suppresses(
    bench: LedgerHarness, *, by_hint: bool
) -> None:
    steps = Ladder(steps=(90 * SECOND, 330 * SECOND))
    job = bench.schedule(cadence=steps, adaptive=by_hint)
    bench.move_to(1)
    bench.admit()
    bench.work(Failed(error="no answer"))
    bench.move_to(2)
    bench.run_now(job)
    bench.work(Failed(error="no answer"))
    assert bench.progress(job).next_at == at(2.5)
    if by_hint:
        bench.hint(job, PauseHint(until=at(6.2)))
    else:
        bench.pause(job, until=at(6.2))
    bench.move_to(6.2)
    bench.admit()
    paused = [planned for planned, reason in bench.outcomes_of(job) if reason == "paused"]
    assert paused == [2.5, 3, 4, 5, 6]
    assert bench.progress(job).next_at == at(7.5)
