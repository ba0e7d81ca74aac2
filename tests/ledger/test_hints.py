"""Hints expire, bring the next time forward at once, are used once, and respect pauses."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.ledger_kit import ADA, LedgerHarness, at, kinds
from timewright.core.moments import HOUR, MINUTE
from timewright.core.policies.policies import Align, CatchUp, Clamp
from timewright.core.recurrence.triggers import Every
from timewright.core.schedule.hints import NO_HINTS, IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import NotAllowed
from timewright.ledger.manual_runs import skip_next
from timewright.ledger.replan import clear_hints


def adaptive(bench: LedgerHarness, **fields: Any) -> Schedule:
    return bench.schedule(trigger=Every(HOUR), adaptive=True, **fields)


def often(minutes: float, *, expires: float = 600) -> IntervalHint:
    return IntervalHint(interval=timedelta(minutes=minutes), expires_at=at(expires), reason="rising")


def once(minutes: float, *, expires: float = 600) -> OneShotHint:
    return OneShotHint(at=at(minutes), expires_at=at(expires), reason="look soon")


def next_at(bench: LedgerHarness, job: Schedule) -> tuple[datetime | None, str]:
    progress = bench.progress(job)
    return progress.next_at, str(progress.source)


def test_only_adaptive_schedules_accept_hints(bench: LedgerHarness) -> None:
    job = bench.schedule()
    with pytest.raises(NotAllowed, match="does not accept hints"):
        bench.hint(job, often(5))
    assert bench.progress(job).hints.interval is None


def test_a_nearer_wish_moves_the_next_time_at_once_and_a_later_one_does_not(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    changed = bench.hint(job, often(5))
    assert kinds(changed.facts) == ["ScheduleChanged", "ScheduleMoved"]
    assert next_at(bench, job) == (at(5), "ai-interval")
    changed = bench.hint(job, often(30))
    assert kinds(changed.facts) == ["ScheduleChanged"]
    assert next_at(bench, job) == (at(5), "ai-interval")


def test_a_run_made_by_a_hint_names_the_hint_and_the_rejected_candidates(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    bench.move_to(5)
    bench.admit()
    (run,) = bench.runs(job)
    assert (run.planned_at, run.source) == (at(5), "ai-interval")
    assert at(60) in {candidate.at for candidate in run.trail}


def test_a_one_shot_is_used_up_by_the_run_that_used_it(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, once(7))
    bench.move_to(7)
    bench.admit()
    assert bench.progress(job).hints.one_shot is None
    bench.work()
    assert bench.outcomes_of(job) == [(7, "succeeded")]
    assert next_at(bench, job) == (at(60), "baseline-interval")


def test_an_interval_wish_holds_until_it_expires(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, often(20, expires=45))
    for minute in (20, 40, 60):
        bench.move_to(minute)
        bench.admit()
        bench.work()
    assert bench.outcomes_of(job) == [(20, "succeeded"), (40, "succeeded"), (60, "succeeded")]
    assert next_at(bench, job) == (at(120), "baseline-interval")


def test_no_wish_comes_nearer_than_the_clamp(bench: LedgerHarness) -> None:
    job = adaptive(bench, clamp=Clamp(min=10 * MINUTE))
    bench.hint(job, often(1))
    assert next_at(bench, job) == (at(10), "clamped-min")


def test_a_pause_by_hint_holds_back_and_is_recorded(bench: LedgerHarness) -> None:
    job = bench.schedule(adaptive=True, catch_up=CatchUp.ALL)
    bench.move_to(0.5)
    bench.hint(job, PauseHint(until=at(3), reason="quiet"))
    assert next_at(bench, job) == (at(3), "paused")
    bench.move_to(3)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "paused"), (2, "paused"), (3, "ready")]
    assert bench.progress(job).hints.pause is None
    assert bench.progress(job).state is ScheduleState.ACTIVE


def test_one_pause_by_hint_after_another_is_one_pause(bench: LedgerHarness) -> None:
    job = bench.schedule(adaptive=True)
    bench.move_to(0.5)
    bench.hint(job, PauseHint(until=at(2.5)))
    bench.move_to(2.2)
    bench.hint(job, PauseHint(until=at(4.5)))
    bench.move_to(5)
    bench.admit()
    assert bench.outcomes_of(job) == [*[(minute, "paused") for minute in (1, 2, 3, 4)], (5, "ready")]


def test_forgetting_a_pause_that_was_wished_ends_it_now(bench: LedgerHarness) -> None:
    job = bench.schedule(adaptive=True, catch_up=CatchUp.ALL)
    bench.move_to(0.5)
    bench.hint(job, PauseHint(until=at(30)))
    bench.move_to(2.5)
    clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "paused"), (2, "paused")]
    assert next_at(bench, job) == (at(3), "baseline-interval")


def test_a_person_can_end_a_pause_that_was_wished(bench: LedgerHarness) -> None:
    job = bench.schedule(adaptive=True)
    bench.move_to(0.5)
    bench.hint(job, PauseHint(until=at(30)))
    bench.move_to(2.5)
    changed = bench.resume(job)
    assert bench.outcomes_of(job) == [(1, "paused"), (2, "paused")]
    assert (changed.progress.next_at, changed.progress.hints) == (at(3), NO_HINTS)


def test_forgetting_wishes_decides_without_them(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    bench.hint(job, once(3))
    changed = clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.progress.hints == NO_HINTS
    assert next_at(bench, job) == (at(60), "baseline-interval")


def test_an_instant_that_a_hint_made_due_stays_due_after_the_hint_is_cleared(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    bench.move_to(6)
    clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.admit()
    assert bench.outcomes_of(job) == [(5, "ready")]


@pytest.mark.parametrize("passes", [0, 1, 3])
@pytest.mark.parametrize("is_cleared", [False, True])
def test_a_requested_instant_that_is_due_in_a_backlog_stays_due_when_its_hint_ends(
    bench: LedgerHarness, passes: int, is_cleared: bool
) -> None:
    """Dense seed 120000422: a limit carried it over, and another hint took its place."""
    job = bench.schedule(trigger=Every(5 * MINUTE), adaptive=True, catch_up=CatchUp.ALL, catch_up_limit=1)
    bench.hint(job, once(12, expires=30))
    bench.move_to(32)
    for _ in range(passes):
        bench.admit()
        bench.work()
    if is_cleared:
        clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    else:
        bench.hint(job, once(33))
        bench.hint(job, once(41))
    bench.move_to(42)
    for _ in range(20):
        bench.admit()
        bench.work()
        bench.advance(1)
    planned = [run.planned_at for run in bench.runs(job)]
    wished = [] if is_cleared else [at(41)]
    assert planned == sorted([at(12), *wished, *(at(minute) for minute in range(5, 45, 5))])
    assert bench.progress(job).hints == NO_HINTS


def test_an_interval_wish_after_a_pause_that_is_over_counts_from_now(bench: LedgerHarness) -> None:
    """The engine was late: nothing was decided since the pause, from whose end the wish counted."""
    job = bench.schedule(trigger=Every(10 * MINUTE), adaptive=True, catch_up=CatchUp.NONE)
    bench.pause(job, until=at(5))
    bench.move_to(25)
    bench.hint(job, often(3))
    assert next_at(bench, job) == (at(28), "ai-interval")
    bench.move_to(28)
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "missed"), (20, "missed"), (28, "ready")]


def test_a_wish_for_a_paused_schedule_is_kept_and_moves_nothing(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.pause(job)
    bench.hint(job, often(5))
    assert next_at(bench, job) == (None, "paused")
    clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert next_at(bench, job) == (None, "paused")
    bench.move_to(30)
    assert bench.admit().schedules_read == 0


def test_a_hint_during_a_run_counts_when_the_run_ends(bench: LedgerHarness) -> None:
    job = adaptive(bench, align=Align.NOW)
    bench.move_to(60)
    bench.admit()
    (run,) = bench.lease()
    bench.move_to(62)
    bench.hint(job, often(5))
    bench.move_to(63)
    bench.settle(run)
    assert next_at(bench, job) == (at(65), "ai-interval"), "five minutes after the run began"


def test_every_hint_has_an_audit_entry(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert [e.action for e in bench.audit()] == ["schedule.create", "schedule.hint", "schedule.clear_hints"]


def test_occurrences_due_before_an_interval_hint_are_decided_before_it(bench: LedgerHarness) -> None:
    job = bench.schedule(adaptive=True, catch_up=CatchUp.NONE)
    bench.move_to(3.5)
    changed = bench.hint(job, often(30))
    assert kinds(changed.facts)[:3] == ["RunSkipped", "RunSkipped", "RunAdmitted"]
    assert bench.outcomes_of(job) == [(1, "missed"), (2, "missed"), (3, "ready")]
    assert next_at(bench, job) == (at(4), "baseline-interval")


def test_at_its_expiry_a_hint_ends_and_the_trigger_decides_again(bench: LedgerHarness) -> None:
    job = adaptive(bench)
    bench.hint(job, often(600, expires=70))
    bench.move_to(60)
    bench.admit()
    bench.work()
    assert (bench.progress(job).next_at, bench.progress(job).wake_at) == (at(660), at(70))
    bench.move_to(70)
    bench.admit()
    assert next_at(bench, job) == (at(120), "baseline-interval")
    assert bench.progress(job).hints == NO_HINTS


def test_under_a_clamp_no_instant_of_a_pause_runs_after_a_hint_that_expired_in_it(
    bench: LedgerHarness,
) -> None:
    every = Every(10 * MINUTE, at(0))
    job = bench.schedule(trigger=every, adaptive=True, clamp=Clamp(min=2 * MINUTE))
    bench.move_to(5)
    bench.pause(job)
    bench.move_to(29)
    bench.hint(job, often(180, expires=31))
    bench.move_to(33)
    bench.resume(job)
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "paused"), (20, "paused")]
    assert next_at(bench, job) == (at(40), "baseline-interval")


def test_clearing_hints_in_a_hinted_pause_keeps_the_instants_before_the_interval_hint(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule(adaptive=True)
    bench.hint(job, PauseHint(until=at(20)))
    bench.move_to(3.5)
    bench.hint(job, often(30))
    bench.move_to(5.5)
    clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "paused"), (2, "paused"), (3, "paused")]
    assert next_at(bench, job) == (at(6), "baseline-interval")


def test_clearing_a_hint_while_its_instant_is_due_hides_no_later_instant(bench: LedgerHarness) -> None:
    job = bench.schedule(adaptive=True, catch_up=CatchUp.NONE)
    bench.hint(job, often(0.5))
    bench.move_to(3.5)
    clear_hints(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.move_to(5)
    bench.admit()
    assert [planned for planned, _ in bench.outcomes_of(job)] == [0.5, 4, 5]


def test_a_displacement_by_a_clamp_is_recorded_before_an_edit_and_before_a_skip(bench: LedgerHarness) -> None:
    job = bench.schedule(clamp=Clamp(min=3 * MINUTE))
    bench.move_to(2.5)
    bench.revise(replace(job, description="edited"))
    assert bench.outcomes_of(job) == [(1, "clampedx2")]
    skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    rows = bench.runs(job)
    assert [(row.reason, row.dropped) for row in rows] == [("clamped", 2), ("clamped", 3), ("by_hand", 0)]
    assert rows[-1].planned_at == at(5.5)
