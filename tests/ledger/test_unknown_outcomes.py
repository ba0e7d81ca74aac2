"""The connection breaks at commit: whether it was applied or not, nothing is lost and nothing doubled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.ledger.bench import ADA, Bench, Unsure, at, kinds
from timewright.core.moments import SECOND
from timewright.core.policies import QueuePolicy, Retry
from timewright.core.run import Failed, RunState
from timewright.errors import OutcomeUnknown
from timewright.ledger.admission_pass import Offer
from timewright.ledger.by_hand import enqueue
from timewright.ledger.policy import set_queue_policy
from timewright.ports import Store, Transaction

T = TypeVar("T")

applied = pytest.mark.parametrize("applied", [True, False])


@applied
def test_an_admission_is_found_again_or_made_by_the_next_pass(
    unsure: tuple[Bench, Unsure], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule()
    bench.go(1)
    store.break_next(applied)
    assert bench.admit().full, "so the engine looks again"
    bench.admit()
    assert bench.fates(job) == [(1, "ready")]


@applied
def test_a_run_inserted_leased_is_not_left_to_its_lease(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    job = bench.schedule()
    bench.go(1)
    store.break_next(applied)
    offer = Offer(holder="here", capacity=5)
    started = [*bench.admit(offer=offer).leased, *bench.admit(offer=offer).leased]
    ((run, schedule),) = started
    assert schedule == job
    bench.settle(run)
    assert bench.fates(job) == [(1, "succeeded")]


@applied
def test_a_lease_is_found_again_by_its_id(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    policy = QueuePolicy(max_concurrent=2)
    set_queue_policy(store, namespace="default", queue="mail", policy=policy, by=ADA, now=bench.now)
    bench.enqueue(1, 2, 3)
    store.break_next(applied)
    runs = bench.lease(handoff=True)
    assert [run.payload for run in runs] == ([1, 2] if applied else [])
    runs += bench.lease(handoff=True)
    assert [(run.payload, run.fence) for run in runs] == [(1, 1), (2, 1)]
    bench.settle(*runs)
    assert [run.payload for run in bench.lease(handoff=True)] == [3]


@applied
def test_an_answer_is_counted_once(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    job = bench.schedule(retry=Retry(max_attempts=1), disable_after=5)
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    store.break_next(applied)
    settled = bench.settle(run, outcome=Failed(error="no"))
    assert settled.stale == ()
    assert "RunFailed" in kinds(settled.facts)
    assert bench.run(run).state is RunState.FAILED
    assert bench.run(run).attempts == 1
    assert len(bench.attempts(run)) == 1
    assert bench.standing(job).failures == 1, "the streak is not counted twice"


@applied
def test_an_answer_that_breaks_twice_can_be_given_again_later(
    unsure: tuple[Bench, Unsure], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule(retry=Retry(max_attempts=1))
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    store.break_next(applied, False)
    with pytest.raises(OutcomeUnknown):
        bench.settle(run, outcome=Failed(error="no"))
    bench.rest(5)
    assert bench.settle(run, outcome=Failed(error="no")).stale == ()
    assert (bench.run(run).state, bench.standing(job).failures) == (RunState.FAILED, 1)


@applied
def test_a_retry_is_not_charged_twice(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    bench.schedule()
    bench.go(1)
    bench.admit()
    (run,) = bench.lease()
    store.break_next(applied)
    bench.settle(run, outcome=Failed(error="no"))
    assert (bench.run(run).attempts, bench.run(run).fire_at) == (1, at(1) + SECOND)


@applied
def test_a_reclaim_charges_once(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    bench.enqueue(1)
    (run,) = bench.lease(handoff=True)
    bench.clock.advance(301 * SECOND)
    store.break_next(applied)
    with pytest.raises(OutcomeUnknown):
        bench.reclaim()
    bench.reclaim()
    assert (bench.run(run).state, bench.run(run).attempts) == (RunState.READY, 1)


@applied
def test_entries_are_put_into_a_queue_once(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    store.break_next(applied)
    made = enqueue(
        store, namespace="default", queue="mail", payloads=[1, 2], ids=bench.ids, by=ADA, now=bench.now
    )
    kept = bench.store.read(lambda tx: tx.queue_runs("default", "mail", limit=9))
    assert kept == list(made.runs)


@applied
def test_a_run_now_with_a_client_key_is_made_once(unsure: tuple[Bench, Unsure], applied: bool) -> None:
    bench, store = unsure
    job = bench.schedule()
    store.break_next(applied)
    with pytest.raises(OutcomeUnknown):
        bench.run_now(job, client_key="k")
    bench.run_now(job, client_key="k")
    assert bench.fates(job) == [(0, "ready")]


class Late(Unsure):
    """A store whose first commit is applied only after somebody has looked whether it was."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._under_way: list[Callable[[Transaction], Any]] = []
        self._has_broken = False

    def write(self, work: Callable[[Transaction], T]) -> T:
        if self._has_broken:
            return super().write(work)
        self._has_broken = True
        self._under_way.append(work)
        raise OutcomeUnknown("the connection broke at commit")

    def read(self, work: Callable[[Transaction], T]) -> T:
        seen = super().read(work)
        while self._under_way:
            super().write(self._under_way.pop())
        return seen


def test_entries_whose_commit_came_through_while_it_was_looked_for_are_there_once(
    unsure: tuple[Bench, Unsure],
) -> None:
    bench, store = unsure
    made = enqueue(
        Late(store), namespace="default", queue="mail", payloads=[1, 2], ids=bench.ids, by=ADA, now=bench.now
    )
    waiting = store.read(lambda tx: tx.queue_runs("default", "mail", limit=10))
    assert waiting == list(made.runs)
