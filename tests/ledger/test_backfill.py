"""Backfills run past occurrences again, or for the first time, in order; existing rows stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.ledger_kit import ADA, LedgerHarness, at
from timewright.core.calendars import Calendar, CalendarRule, Span
from timewright.core.moments import HOUR, SECOND
from timewright.core.policies.policies import CatchUp, Overlap
from timewright.core.recurrence.triggers import After, Every, Manual
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.backfill import backfill
from timewright.ledger.queues.policies import put_calendar
from timewright.ledger.replan import archive


def again(bench: LedgerHarness, job: Schedule, since: float, until: float, **options: Any) -> list[Run]:
    made = backfill(
        bench.store, job.id, since=at(since), until=at(until), ids=bench.ids, by=ADA, now=bench.now, **options
    )
    return list(made.runs)


def test_a_backfill_over_a_skipped_row_makes_a_new_run_that_names_it(bench: LedgerHarness) -> None:
    job = bench.schedule(catch_up=CatchUp.NONE)
    bench.move_to(4)
    bench.admit()
    bench.work()
    skipped = bench.runs(job)[:3]
    runs = again(bench, job, 1, 3)
    assert [run.backfill_of for run in runs] == [run.id for run in skipped]
    assert [bench.run(run) for run in skipped] == skipped
    assert {run.source for run in runs} == {"backfill"}
    for expected in (1, 2, 3):
        (run,) = bench.work()
        assert run.planned_at == at(expected)
    assert [word for _, word in bench.outcomes_of(job)].count("succeeded") == 4


def test_a_backfill_over_a_row_that_counts_names_that_row(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(SECOND), catch_up=CatchUp.NONE)
    bench.clock.advance(minutes=30)
    bench.admit()
    counted = bench.runs(job)[0]
    assert counted.dropped == 1799
    assert {run.backfill_of for run in again(bench, job, 10, 10.2)} == {counted.id}


def test_a_backfill_reaches_back_before_the_schedule_was_made(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR, at(-600)))
    runs = again(bench, job, -180, -60)
    assert [run.planned_at for run in runs] == [at(-180), at(-120), at(-60)]
    assert {run.backfill_of for run in runs} == {""}


def test_undecided_occurrences_are_left_to_their_admission(bench: LedgerHarness) -> None:
    job = bench.schedule(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    bench.move_to(2)
    bench.admit()
    bench.move_to(5)
    assert [run.planned_at for run in again(bench, job, 0.5, 9)] == [at(1), at(2)]
    bench.admit()
    planned = [minute for minute, _ in bench.outcomes_of(job)]
    assert planned == [1, 1, 2, 2, 3, 4, 5]


def test_where_overlap_is_allowed_they_all_run_at_once_and_elsewhere_one_by_one(bench: LedgerHarness) -> None:
    together = bench.schedule("together", overlap=Overlap.ALLOW)
    in_turn = bench.schedule("in turn", overlap=Overlap.SKIP)
    bench.move_to(3)
    bench.admit()
    bench.work()
    assert {run.state.value for run in again(bench, together, 1, 3)} == {"ready"}
    assert [run.state.value for run in again(bench, in_turn, 1, 3)] == ["ready", "held", "held"]


def test_backfilled_runs_wait_for_a_live_run(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(3)
    bench.admit()
    (live,) = bench.lease()
    assert [run.state.value for run in again(bench, job, 1, 2)] == ["held", "held"]
    bench.settle(live)
    order = []
    while runs := bench.work():
        order += [run.planned_at for run in runs]
    assert order == [at(1), at(2)]


def test_excluded_instants_are_not_filled(bench: LedgerHarness) -> None:
    closed = Calendar(name="closed", spans=(Span(start=at(1.5), end=at(3.5)),))
    put_calendar(bench.store, closed, by=ADA, now=bench.now)
    job = bench.schedule(calendar=CalendarRule(except_=("closed",)))
    bench.move_to(5)
    bench.admit()
    assert [run.planned_at for run in again(bench, job, 0.5, 9)] == [at(1), at(4), at(5)]


def test_a_dry_run_writes_nothing(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(3)
    bench.admit()
    before = bench.runs(job)
    assert len(again(bench, job, 0.5, 9, dry_run=True)) == 3
    assert bench.runs(job) == before
    assert bench.audit()[-1].action == "schedule.create"
    again(bench, job, 0.5, 9)
    assert (bench.audit()[-1].action, bench.audit()[-1].after) == ("schedule.backfill", "3 runs")


def test_too_large_a_backfill_is_rejected_with_a_shorter_range(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(SECOND, at(-600)))
    with pytest.raises(InvalidInput, match="more than 10000") as refused:
        again(bench, job, -600, 0)
    assert refused.value.fix == "use until 2026-03-10T04:46:39Z, then continue from there"


@pytest.mark.parametrize("trigger", [Manual(), After(HOUR)])
def test_a_trigger_without_instants_has_no_past(bench: LedgerHarness, trigger: Manual | After) -> None:
    job = bench.schedule(trigger=trigger)
    with pytest.raises(InvalidInput, match="no past occurrences"):
        again(bench, job, -60, 0)


def test_an_archived_schedule_is_not_filled(bench: LedgerHarness) -> None:
    job = bench.schedule()
    archive(bench.store, job.id, by=ADA, now=bench.now)
    with pytest.raises(NotAllowed):
        again(bench, job, -60, 0)


def test_an_empty_past_makes_nothing(bench: LedgerHarness) -> None:
    job = bench.schedule()
    assert again(bench, job, 0.5, 9) == []
