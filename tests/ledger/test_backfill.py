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
from timewright.ledger.backfills.records import BackfillState, get_backfill
from timewright.ledger.backfills.start import BackfillTerms, StartedBackfill, change_backfill, start_backfill
from timewright.ledger.queues.policies import put_calendar
from timewright.ledger.replan import archive


def start(bench: LedgerHarness, job: Schedule, since: float, until: float, **terms: Any) -> StartedBackfill:
    dry_run = terms.pop("dry_run", False)
    return start_backfill(
        bench.store,
        job.id,
        BackfillTerms(since=at(since), until=at(until), **terms),
        ids=bench.ids,
        by=ADA,
        now=bench.now,
        dry_run=dry_run,
    )


def again(bench: LedgerHarness, job: Schedule, since: float, until: float, **terms: Any) -> list[Run]:
    return list(start(bench, job, since, until, **terms).runs)


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


def fill(bench: LedgerHarness, job: Schedule) -> list[float]:
    """Work until nothing is left; return the minutes of the runs in the order in which they ran."""
    order: list[float] = []
    while runs := bench.work():
        order += [(run.planned_at - at(0)).total_seconds() / 60 for run in runs]
    return order


def missed(bench: LedgerHarness, **policies: Any) -> Schedule:
    """A schedule that missed the minutes 1 to 5 and ran at 6."""
    job = bench.schedule(catch_up=CatchUp.NONE, **policies)
    bench.move_to(6)
    bench.admit()
    bench.work()
    return job


def test_only_the_next_run_of_a_backfill_exists_at_a_time(bench: LedgerHarness) -> None:
    job = missed(bench)
    backfill = start(bench, job, 1, 5).backfill
    assert backfill is not None
    assert (backfill.total, backfill.handed_out, len(backfill.open)) == (5, 1, 1)
    assert sum(run.source == "backfill" for run in bench.runs(job)) == 1
    assert fill(bench, job) == [1, 2, 3, 4, 5]
    done = bench.store.read(lambda tx: get_backfill(tx, "default", backfill.id))
    assert done is not None
    assert (done.state, done.ended) == (BackfillState.FINISHED, 5)


def test_the_newest_occurrence_runs_first_where_that_is_asked(bench: LedgerHarness) -> None:
    job = missed(bench)
    start(bench, job, 1, 5, newest_first=True)
    assert fill(bench, job) == [5, 4, 3, 2, 1]


def test_at_most_max_running_run_at_the_same_time(bench: LedgerHarness) -> None:
    job = missed(bench, overlap=Overlap.ALLOW)
    start(bench, job, 1, 5, max_running=2)
    first = bench.lease()
    assert len(first) == 2
    bench.settle(*first)
    assert len(bench.lease()) == 2
    with pytest.raises(InvalidInput, match="needs overlap: allow"):
        start(bench, bench.schedule("exclusive", trigger=Every(HOUR, at(-600))), -120, 0, max_running=2)


def test_a_rate_spaces_the_starts(bench: LedgerHarness) -> None:
    job = missed(bench, overlap=Overlap.ALLOW)
    planned = again(bench, job, 1, 5, every=10 * SECOND, dry_run=True)
    assert [run.fire_at - bench.now for run in planned] == [10 * SECOND * k for k in range(5)]
    start(bench, job, 1, 5, every=10 * SECOND, max_running=1)
    assert len(bench.work()) == 1
    assert bench.work() == []
    bench.clock.advance(seconds=10)
    assert len(bench.work()) == 1


def test_a_paused_backfill_hands_out_nothing_until_it_is_resumed(bench: LedgerHarness) -> None:
    job = missed(bench)
    backfill = start(bench, job, 1, 5).backfill
    assert backfill is not None

    def change(to: BackfillState) -> BackfillState:
        changed, _ = change_backfill(bench.store, "default", backfill.id, to, by=ADA, now=bench.now)
        return changed.state

    assert change(BackfillState.PAUSED) is BackfillState.PAUSED
    assert fill(bench, job) == [1]
    bench.move_to(7)
    bench.admit()
    assert [run.planned_at for run in bench.work()] == [at(7)]
    assert change(BackfillState.RUNNING) is BackfillState.RUNNING
    assert fill(bench, job) == [2, 3, 4, 5]
    with pytest.raises(NotAllowed, match="is finished"):
        change(BackfillState.PAUSED)


def test_a_cancelled_backfill_cancels_what_has_not_started(bench: LedgerHarness) -> None:
    job = missed(bench)
    backfill = start(bench, job, 1, 5).backfill
    assert backfill is not None
    change_backfill(bench.store, "default", backfill.id, BackfillState.CANCELLED, by=ADA, now=bench.now)
    assert fill(bench, job) == []
    assert [run.state for run in bench.runs(job) if run.source == "backfill"] == ["cancelled"]


def test_archiving_a_schedule_ends_its_backfill(bench: LedgerHarness) -> None:
    job = missed(bench)
    backfill = start(bench, job, 1, 5).backfill
    assert backfill is not None
    archive(bench.store, job.id, by=ADA, now=bench.now)
    found = bench.store.read(lambda tx: get_backfill(tx, "default", backfill.id))
    assert found is not None
    assert found.state is BackfillState.CANCELLED
    assert bench.work() == []


def test_a_backfill_of_what_never_ran_leaves_out_what_ran_and_what_a_backfill_runs(
    bench: LedgerHarness,
) -> None:
    job = missed(bench)
    assert [run.planned_at for run in again(bench, job, 1, 6, only="never", dry_run=True)] == [
        at(minute) for minute in (1, 2, 3, 4, 5)
    ]
    again(bench, job, 2, 3)
    fill(bench, job)
    assert [run.planned_at for run in again(bench, job, 1, 6, only="missed", dry_run=True)] == [
        at(minute) for minute in (1, 4, 5)
    ]
    assert again(bench, job, 1, 6, only="failed", dry_run=True) == []
