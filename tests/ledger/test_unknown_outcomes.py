"""If the connection breaks at commit, applied or not, nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import pytest

from tests.ledger.ledger_kit import ADA, LedgerHarness, LossyStore, at, kinds
from timewright.core.moments import SECOND
from timewright.core.policies.policies import QueuePolicy, Retry
from timewright.core.run.run import Failed, RunState
from timewright.errors import OutcomeUnknown
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.manual_runs import enqueue
from timewright.ledger.queues.policies import set_queue_policy
from timewright.ports import Store, Transaction
from timewright.ports.rows import QueuedRuns

T = TypeVar("T")

applied = pytest.mark.parametrize("applied", [True, False])


@applied
def test_an_admission_with_unknown_outcome_is_found_or_repeated(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule()
    bench.move_to(1)
    store.break_next(applied)
    assert bench.admit().admit_again, "so the engine looks again"
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "ready")]


@applied
def test_a_run_inserted_leased_is_not_left_to_its_lease(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule()
    bench.move_to(1)
    store.break_next(applied)
    offer = LocalCapacity(holder="here", free_slots=5)
    started = [*bench.admit(local_capacity=offer).leased, *bench.admit(local_capacity=offer).leased]
    ((run, schedule),) = started
    assert schedule == job
    bench.settle(run)
    assert bench.outcomes_of(job) == [(1, "succeeded")]


@applied
def test_a_lease_with_unknown_outcome_is_found_by_its_id(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    policy = QueuePolicy(max_running=2)
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
def test_a_result_with_unknown_outcome_is_counted_once(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule(retry=Retry(max_attempts=1), disable_after=5)
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    store.break_next(applied)
    settled = bench.settle(run, outcome=Failed(error="no"))
    assert settled.stale == ()
    assert "RunFailed" in kinds(settled.facts)
    assert bench.run(run).state is RunState.FAILED
    assert bench.run(run).attempts == 1
    assert len(bench.attempts(run)) == 1
    assert bench.progress(job).failures == 1, "the streak is not counted twice"


@applied
def test_a_result_that_fails_twice_can_be_settled_later(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule(retry=Retry(max_attempts=1))
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    store.break_next(applied, False)
    with pytest.raises(OutcomeUnknown):
        bench.settle(run, outcome=Failed(error="no"))
    bench.advance(5)
    assert bench.settle(run, outcome=Failed(error="no")).stale == ()
    assert (bench.run(run).state, bench.progress(job).failures) == (RunState.FAILED, 1)


@applied
def test_a_retry_is_not_charged_twice(unsure: tuple[LedgerHarness, LossyStore], applied: bool) -> None:
    bench, store = unsure
    bench.schedule(retry=Retry(max_attempts=2))
    bench.move_to(1)
    bench.admit()
    (run,) = bench.lease()
    store.break_next(applied)
    bench.settle(run, outcome=Failed(error="no"))
    assert (bench.run(run).attempts, bench.run(run).fire_at) == (1, at(1) + SECOND)


@applied
def test_a_reclaim_charges_once(unsure: tuple[LedgerHarness, LossyStore], applied: bool) -> None:
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
def test_entries_are_put_into_a_queue_once(unsure: tuple[LedgerHarness, LossyStore], applied: bool) -> None:
    bench, store = unsure
    store.break_next(applied)
    made = enqueue(
        store, namespace="default", queue="mail", payloads=[1, 2], ids=bench.ids, by=ADA, now=bench.now
    )
    kept = bench.store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=9)))
    assert kept == list(made.runs)


@applied
def test_a_run_now_with_a_client_key_is_made_once(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    job = bench.schedule()
    store.break_next(applied)
    with pytest.raises(OutcomeUnknown):
        bench.run_now(job, client_key="k")
    bench.run_now(job, client_key="k")
    assert bench.outcomes_of(job) == [(0, "ready")]


class Late(LossyStore):
    """A store whose first commit is applied only after the check whether it was."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._under_way: list[Callable[[Transaction], Any]] = []
        self._has_broken = False

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        if self._has_broken:
            return super().write(work, commit_at=commit_at)
        self._has_broken = True
        self._under_way.append(work)
        raise OutcomeUnknown("the connection broke at commit")

    def read(self, work: Callable[[Transaction], T]) -> T:
        seen = super().read(work)
        while self._under_way:
            super().write(self._under_way.pop())
        return seen


def test_entries_whose_commit_arrives_late_are_inserted_once(
    unsure: tuple[LedgerHarness, LossyStore],
) -> None:
    bench, store = unsure
    made = enqueue(
        Late(store), namespace="default", queue="mail", payloads=[1, 2], ids=bench.ids, by=ADA, now=bench.now
    )
    waiting = store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=10)))
    assert waiting == list(made.runs)
