"""What becomes of an occurrence while another run of its schedule is unfinished, to the very end."""

from __future__ import annotations

import pytest

from tests.ledger.bench import Bench, at, kinds
from timewright.core.lifecycle import settle
from timewright.core.moments import SECOND
from timewright.core.policies import CatchUp, LeaseTerms, Overlap, Retry
from timewright.core.run import Cancelled, Failed, Released, Run, RunState, Succeeded
from timewright.core.schedule import Schedule
from timewright.core.triggers import After
from timewright.ledger.settle import cancel

EACH = (CatchUp.ALL, CatchUp.SPREAD)


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("overlap", Overlap)
def test_after_an_outage_every_occurrence_has_its_fate(
    bench: Bench, catch_up: CatchUp, overlap: Overlap
) -> None:
    """One is under way when five more come due; the sixth is on time."""
    job = bench.schedule(
        catch_up=catch_up, overlap=overlap, catch_up_limit=3, queue_limit=3, spread_over=2 * SECOND
    )
    bench.go(1)
    bench.admit()
    (first,) = bench.lease()
    bench.go(6)
    while bench.admit().full:
        pass
    in_line = catch_up in EACH and overlap in (Overlap.SKIP, Overlap.QUEUE)
    assert [planned for planned, _ in bench.fates(job)] == ([1, 2, 3, 4] if in_line else [1, 2, 3, 4, 5, 6])
    bench.settle(first)
    for _ in range(8):
        bench.work()
        bench.admit()
        bench.rest(1)
    assert [planned for planned, _ in bench.fates(job)] == [1, 2, 3, 4, 5, 6]
    ran = [planned for planned, word in bench.fates(job) if word == "succeeded"]
    assert ran == those_that_run(catch_up, overlap)


def those_that_run(catch_up: CatchUp, overlap: Overlap) -> list[float]:
    """All of them, one by one or at once; otherwise the first, and the newest unless it is skipped."""
    if catch_up in EACH and overlap is not Overlap.REPLACE:
        return [1, 2, 3, 4, 5, 6]
    return [1] if overlap is Overlap.SKIP else [1, 6]


def test_skip_records_the_one_that_came_too_soon(bench: Bench) -> None:
    job = bench.schedule()
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    bench.go(2)
    assert kinds(bench.admit().facts) == ["RunSkipped"]
    bench.settle(run)
    bench.go(3)
    bench.admit()
    assert bench.fates(job) == [(1, "succeeded"), (2, "overlap"), (3, "ready")]


def test_a_run_that_waits_for_its_next_attempt_is_still_in_the_way(bench: Bench) -> None:
    job = bench.schedule()
    bench.go(1)
    bench.admit()
    bench.work(Failed(error="no"))
    bench.go(2)
    bench.admit()
    assert bench.fates(job) == [(1, "ready"), (2, "overlap")]


def test_all_under_skip_runs_them_in_sequence_one_by_one(bench: Bench) -> None:
    job = bench.schedule(catch_up=CatchUp.ALL)
    bench.go(4)
    bench.admit()
    assert bench.fates(job) == [(1, "ready"), (2, "held"), (3, "held"), (4, "held")]
    for expected in (1, 2, 3, 4):
        (run,) = bench.lease()
        assert run.planned_at == at(expected)
        bench.settle(run)
    assert {word for _, word in bench.fates(job)} == {"succeeded"}


def test_queue_runs_in_the_order_of_the_plan_and_turns_away_what_does_not_fit(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE, queue_limit=2)
    order = []
    for minute in (1, 2, 3, 4):
        bench.go(minute)
        bench.admit()
        order += bench.lease()
    assert bench.fates(job) == [(1, "leased"), (2, "held"), (3, "held"), (4, "queue_full")]
    for _ in range(2):
        bench.settle(order[-1])
        order += bench.lease()
    assert [run.planned_at for run in order] == [at(1), at(2), at(3)]


def test_one_that_waited_its_turn_is_not_called_late_when_it_comes(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    bench.go(2)
    bench.admit()
    bench.go(2.8)
    bench.settle(run)
    assert bench.runs(job)[-1].fire_at == bench.now
    assert bench.store.read(lambda tx: tx.next_wake()) == bench.now


def test_a_failed_predecessor_lets_the_next_one_go_only_when_it_is_out_of_attempts(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE, retry=Retry(max_attempts=2))
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    bench.work(Failed(error="once"))
    assert bench.fates(job) == [(1, "ready"), (2, "held")]
    bench.rest(1)
    bench.work(Failed(error="twice"))
    assert bench.fates(job) == [(1, "failed"), (2, "ready")]


def test_allow_lets_both_run(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    assert len(bench.lease()) == 2
    assert bench.fates(job) == [(1, "leased"), (2, "leased")]


def replaced(bench: Bench) -> tuple[Schedule, Run]:
    """A leased run that was asked to stop because the next one came."""
    job = bench.schedule(overlap=Overlap.REPLACE, lease=LeaseTerms(grace=10 * SECOND))
    bench.go(1)
    bench.admit()
    (old,) = bench.lease()
    bench.go(2)
    told = bench.admit().facts
    assert kinds(told) == ["CancelRequested", "RunAdmitted"]
    assert bench.fates(job) == [(1, "leased"), (2, "held")]
    return job, old


def test_replace_asks_the_old_one_to_stop_and_shortens_its_lease_to_the_grace(bench: Bench) -> None:
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
    bench: Bench, outcome: Cancelled | Failed | Released | None, word: str
) -> None:
    """Asked to stop, whatever it died of is a cancel and is not tried again; unless it was done before."""
    job, old = replaced(bench)
    settled = bench.settle(old, outcome=outcome)
    assert "RunFreed" in kinds(settled.facts)
    assert bench.fates(job) == [(1, word), (2, "ready")]
    assert [run.planned_at for run in bench.lease()] == [at(2)]


def test_the_new_one_starts_when_the_grace_is_over_though_nobody_answered(bench: Bench) -> None:
    job, old = replaced(bench)
    bench.rest(9)
    assert bench.reclaim().ended == ()
    bench.rest(1)
    assert [run.state for run in bench.reclaim().ended] == [RunState.CANCELLED]
    assert bench.run(old).attempts == 0
    assert bench.fates(job) == [(1, "cancelled"), (2, "ready")]


def test_a_predecessor_that_nobody_started_is_cancelled_at_once(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.REPLACE)
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    assert bench.fates(job) == [(1, "cancelled"), (2, "ready")]
    assert bench.runs(job)[0].reason == "replaced"


def test_a_third_one_passes_over_the_second_that_was_still_held(bench: Bench) -> None:
    job, _ = replaced(bench)
    bench.go(3)
    told = bench.admit().facts
    assert kinds(told) == ["RunSkipped", "RunAdmitted"]
    assert bench.fates(job) == [(1, "leased"), (2, "superseded"), (3, "held")]


def test_a_held_run_whose_predecessor_is_cancelled_by_hand_is_let_go(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    waiting = bench.runs(job)[0]
    told = cancel(bench.store, waiting.id, actor="ada", reason="", now=bench.now)
    assert kinds(told) == ["RunCancelled", "RunFreed"]
    assert bench.fates(job) == [(1, "cancelled"), (2, "ready")]


def test_a_delay_goes_on_after_its_run_was_cancelled_before_it_started(bench: Bench) -> None:
    job = bench.schedule(trigger=After(5 * 60 * SECOND))
    bench.go(5)
    bench.admit()
    cancel(bench.store, bench.runs(job)[0].id, actor="ada", reason="", now=bench.go(6))
    assert bench.standing(job).next_at == at(11)


def test_what_was_held_behind_a_run_that_ended_unseen_is_let_go_by_the_next_look(bench: Bench) -> None:
    """As when two instances cross: one settles the last run while the other still sees it, and holds."""
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    (run,) = bench.lease()
    end = settle(run, Succeeded(), retry=job.retry, now=bench.now)
    bench.store.write(lambda tx: tx.settle_runs([(end.run, end.attempt)]))
    assert bench.fates(job) == [(1, "succeeded"), (2, "held")]
    assert kinds(bench.free()) == ["RunFreed"]
    assert bench.fates(job) == [(1, "succeeded"), (2, "ready")]
