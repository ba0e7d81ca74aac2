"""Overlap policies: what happens to an occurrence while another run of its schedule is live."""

from __future__ import annotations

import pytest

from tests.ledger.ledger_kit import LedgerHarness, at, kinds
from timewright.core.moments import SECOND
from timewright.core.policies.policies import CatchUp, LeaseTerms, Overlap, Retry
from timewright.core.recurrence.triggers import After
from timewright.core.run.lifecycle import settle_outcome
from timewright.core.run.run import Cancelled, Failed, Released, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.ledger.settle import cancel

EACH = (CatchUp.ALL, CatchUp.SPREAD)


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("overlap", Overlap)
def test_after_an_outage_every_occurrence_has_a_row(
    bench: LedgerHarness, catch_up: CatchUp, overlap: Overlap
) -> None:
    """One run is live when five more occurrences are due; the sixth is on time."""
    job = bench.schedule(
        catch_up=catch_up, overlap=overlap, catch_up_limit=3, queue_limit=3, spread_over=2 * SECOND
    )
    bench.move_to(1)
    bench.admit()
    (first,) = bench.lease()
    bench.move_to(6)
    while bench.admit().admit_again:
        pass
    in_line = catch_up in EACH and overlap is not Overlap.ALLOW
    assert [planned for planned, _ in bench.outcomes_of(job)] == (
        [1, 2, 3, 4] if in_line else [1, 2, 3, 4, 5, 6]
    )
    bench.settle(first)
    for _ in range(8):
        bench.work()
        bench.admit()
        bench.advance(1)
    assert [planned for planned, _ in bench.outcomes_of(job)] == [1, 2, 3, 4, 5, 6]
    ran = [planned for planned, word in bench.outcomes_of(job) if word == "succeeded"]
    assert ran == those_that_run(catch_up, overlap)


def those_that_run(catch_up: CatchUp, overlap: Overlap) -> list[float]:
    """All run, in order or at once; otherwise only the first, and the newest unless it is skipped."""
    if catch_up in EACH:
        return [1, 2, 3, 4, 5, 6]
    return [1] if overlap is Overlap.SKIP else [1, 6]


def test_skip_records_the_one_that_came_too_soon(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    bench.move_to(2)
    assert kinds(bench.admit().facts) == ["RunSkipped"]
    bench.settle(run)
    bench.move_to(3)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "overlap"), (3, "ready")]


def test_a_run_that_waits_for_its_next_attempt_is_still_in_the_way(bench: LedgerHarness) -> None:
    job = bench.schedule(retry=Retry(max_attempts=2))
    bench.move_to(1)
    bench.admit()
    bench.work(Failed(error="no"))
    bench.move_to(2)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "ready"), (2, "overlap")]


def test_all_under_skip_runs_them_in_sequence_one_by_one(bench: LedgerHarness) -> None:
    job = bench.schedule(catch_up=CatchUp.ALL)
    bench.move_to(4)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "ready"), (2, "held"), (3, "held"), (4, "held")]
    for expected in (1, 2, 3, 4):
        (run,) = bench.lease()
        assert run.planned_at == at(expected)
        bench.settle(run)
    assert {word for _, word in bench.outcomes_of(job)} == {"succeeded"}


def test_queued_runs_keep_the_planned_order_and_extra_ones_are_skipped(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE, queue_limit=2)
    order = []
    for minute in (1, 2, 3, 4):
        bench.move_to(minute)
        bench.admit()
        order += bench.lease()
    assert bench.outcomes_of(job) == [(1, "leased"), (2, "held"), (3, "held"), (4, "queue_full")]
    for _ in range(2):
        bench.settle(order[-1])
        order += bench.lease()
    assert [run.planned_at for run in order] == [at(1), at(2), at(3)]


def test_a_run_that_was_held_is_not_late_when_it_is_released(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    bench.move_to(2)
    bench.admit()
    bench.move_to(2.8)
    bench.settle(run)
    assert bench.runs(job)[-1].fire_at == bench.now
    assert bench.store.read(lambda tx: tx.read_pending_work().wake_at) == bench.now


def test_a_failed_predecessor_lets_the_next_one_go_only_when_it_is_out_of_attempts(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE, retry=Retry(max_attempts=2))
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    bench.work(Failed(error="once"))
    assert bench.outcomes_of(job) == [(1, "ready"), (2, "held")]
    bench.advance(1)
    bench.work(Failed(error="twice"))
    assert bench.outcomes_of(job) == [(1, "failed"), (2, "ready")]


def test_allow_lets_both_run(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    assert len(bench.lease()) == 2
    assert bench.outcomes_of(job) == [(1, "leased"), (2, "leased")]


def replaced(bench: LedgerHarness) -> tuple[Schedule, Run]:
    """A leased run with a requested cancel, because the next occurrence replaces it."""
    job = bench.schedule(overlap=Overlap.REPLACE, lease=LeaseTerms(length=300 * SECOND, grace=10 * SECOND))
    bench.move_to(1)
    bench.admit()
    (old,) = bench.lease()
    bench.move_to(2)
    told = bench.admit().facts
    assert kinds(told) == ["CancelRequested", "RunAdmitted"]
    assert bench.outcomes_of(job) == [(1, "leased"), (2, "held")]
    return job, old


def test_replace_asks_the_old_one_to_stop_and_shortens_its_lease_to_the_grace(bench: LedgerHarness) -> None:
    _, old = replaced(bench)
    now = bench.run(old)
    assert (now.cancel_at, now.reason) == (at(2), "replaced")
    assert now.lease_until == at(2) + 10 * SECOND
    assert bench.lease() == []


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Cancelled(reason="replaced"), "cancelled"),
        (Failed(error="killed"), "cancelled"),
        (Released(reason="stopping"), "cancelled"),
        (None, "succeeded"),
    ],
)
def test_the_new_one_starts_when_the_old_one_is_settled(
    bench: LedgerHarness, outcome: Cancelled | Failed | Released | None, word: str
) -> None:
    """After a requested cancel any failure counts as cancelled; a success stays a success."""
    job, old = replaced(bench)
    settled = bench.settle(old, outcome=outcome)
    assert "RunFreed" in kinds(settled.facts)
    assert bench.outcomes_of(job) == [(1, word), (2, "ready")]
    assert [run.planned_at for run in bench.lease()] == [at(2)]


def test_the_replacement_starts_after_the_grace_without_an_answer(bench: LedgerHarness) -> None:
    job, old = replaced(bench)
    bench.advance(9)
    assert bench.reclaim().ended == ()
    bench.advance(1)
    assert [run.state for run in bench.reclaim().ended] == [RunState.CANCELLED]
    assert bench.run(old).attempts == 0
    assert bench.outcomes_of(job) == [(1, "cancelled"), (2, "ready")]


def test_a_predecessor_that_has_not_started_is_cancelled_at_once(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.REPLACE)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    assert bench.outcomes_of(job) == [(1, "cancelled"), (2, "ready")]
    assert bench.runs(job)[0].reason == "replaced"


def test_a_third_one_passes_over_the_second_that_was_still_held(bench: LedgerHarness) -> None:
    job, _ = replaced(bench)
    bench.move_to(3)
    told = bench.admit().facts
    assert kinds(told) == ["RunSkipped", "RunAdmitted"]
    assert bench.outcomes_of(job) == [(1, "leased"), (2, "superseded"), (3, "held")]


def test_a_held_run_is_released_when_its_predecessor_is_cancelled(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    waiting = bench.runs(job)[0]
    told = cancel(bench.store, waiting.id, actor="ada", reason="", now=bench.now)
    assert kinds(told) == ["RunCancelled", "RunFreed"]
    assert bench.outcomes_of(job) == [(1, "cancelled"), (2, "ready")]


def test_a_delay_goes_on_after_its_run_was_cancelled_before_it_started(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=After(5 * 60 * SECOND))
    bench.move_to(5)
    bench.admit()
    cancel(bench.store, bench.runs(job)[0].id, actor="ada", reason="", now=bench.move_to(6))
    assert bench.progress(job).next_at == at(11)


def test_an_overlooked_held_run_is_released_by_the_next_check(bench: LedgerHarness) -> None:
    """Like a race of two instances: one settles the last run while the other still sees it and holds."""
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    (run,) = bench.lease()
    end = settle_outcome(run, Succeeded(), retry=job.retry, now=bench.now)
    bench.store.write(lambda tx: tx.settle_runs([(end.run, end.attempt)]))
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "held")]
    assert kinds(bench.free()) == ["RunFreed"]
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "ready")]


@pytest.mark.parametrize("catch_up_limit", [100, 3])
def test_a_live_occurrence_waits_behind_missed_ones_and_replaces_only_newer_ones(
    bench: LedgerHarness, catch_up_limit: int
) -> None:
    """Runs take two minutes, so each live occurrence comes while missed ones are caught up."""
    job = bench.schedule(catch_up=CatchUp.ALL, overlap=Overlap.REPLACE, catch_up_limit=catch_up_limit)
    bench.move_to(5.5)
    for minute in range(6, 40, 2):
        while bench.admit().admit_again:
            pass
        runs = bench.lease()
        bench.move_to(minute)
        bench.settle(*runs)
    ran = [planned for planned, word in bench.outcomes_of(job) if word == "succeeded"]
    assert ran[:5] == [1, 2, 3, 4, 5]
