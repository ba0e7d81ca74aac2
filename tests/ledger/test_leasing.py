"""Ready runs are leased best first, within limits and deadlines, with a rising fence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.conformance.support.concurrency import all_at_once
from tests.conformance.support.databases import Database
from tests.ledger.ledger_kit import ADA, LedgerHarness, at, kinds
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.limits import Limit
from timewright.core.policies.policies import CatchUp, LeaseTerms, Overlap, QueuePolicy, Retry
from timewright.core.recurrence.triggers import After, Once
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Failed, Released, RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import Handoff
from timewright.errors import UnreadableRow
from timewright.ledger.lease import lease_ready, plan_queue, renew_leases
from timewright.ledger.queues.limits import set_limit
from timewright.ledger.queues.policies import set_queue_policy
from timewright.ports import Renewal, StoredObject
from timewright.ports.rows import LeasedRuns, QueuedRuns


def ceiling(
    bench: LedgerHarness, most: int, *, queue: str = "mail", namespace: str = "default", **rest: Any
) -> None:
    policy = QueuePolicy(max_running=most, **rest)
    set_queue_policy(bench.store, namespace=namespace, queue=queue, policy=policy, by=ADA, now=bench.now)


def limit(bench: LedgerHarness, most: int, *, name: str = "api") -> None:
    set_limit(bench.store, Limit(name=name, max_running=most), namespace="default", by=ADA, now=bench.now)


def drain(bench: LedgerHarness, **options: Any) -> list[Any]:
    """The payloads of runs that are leased and settled one by one until none is left."""
    order = []
    while runs := bench.lease(1, handoff=True, **options):
        order += [run.payload for run in runs]
        bench.settle(*runs)
    return order


def test_a_lease_says_who_holds_the_run_and_until_when(bench: LedgerHarness) -> None:
    job = bench.schedule(lease=LeaseTerms(length=90 * SECOND))
    bench.move_to(1)
    bench.admit()
    leased = bench.leased(holder="somebody")
    (lease,) = leased.leases
    assert (lease.schedule, lease.terms.target, lease.terms.retry) == (job, job.target, job.retry)
    assert (lease.run.holder, lease.run.lease_until) == ("somebody", at(1) + 90 * SECOND)
    assert lease.run.lease_id.startswith("lease_")
    assert bench.run(lease.run) == lease.run
    assert kinds(leased.facts) == ["RunLeased"]


def test_every_lease_of_a_run_has_a_higher_fence(bench: LedgerHarness) -> None:
    bench.schedule(retry=Retry(max_attempts=2))
    bench.move_to(1)
    bench.admit()
    fences = []
    for outcome in (Failed(error="no"), Released(reason="stopping"), None):
        (run,) = bench.lease()
        fences.append(run.fence)
        bench.settle(run, outcome=outcome)
        bench.advance(5)
    assert fences == [1, 2, 3]


def test_smaller_priorities_go_first_then_the_older_then_the_first_made(bench: LedgerHarness) -> None:
    bench.enqueue("late", "later")
    bench.enqueue("urgent", priority=1)
    bench.enqueue("low", priority=500)
    bench.clock.step(at(-5))
    bench.enqueue("early")
    bench.clock.step(at(1))
    assert drain(bench) == ["urgent", "early", "late", "later", "low"]


def test_an_engine_does_not_lease_runs_for_external_workers(bench: LedgerHarness) -> None:
    bench.schedule(target=Handoff())
    bench.enqueue("entry")
    bench.move_to(1)
    bench.admit()
    assert bench.lease() == []
    assert len(bench.lease(handoff=True)) == 2


def test_one_queue_can_be_leased_from_alone(bench: LedgerHarness) -> None:
    bench.enqueue("letter")
    bench.enqueue("report", queue="reports")
    bench.enqueue("stranger", namespace="other")
    (run,) = bench.lease(handoff=True, queue=("default", "mail"))
    assert run.payload == "letter"
    (run,) = bench.lease(handoff=True, queue=("other", "mail"))
    assert run.payload == "stranger"


def test_a_queue_without_a_policy_has_one_lease_at_a_time(bench: LedgerHarness) -> None:
    bench.enqueue(1, 2, 3)
    (run,) = bench.lease(handoff=True)
    assert bench.lease(handoff=True) == []
    bench.settle(run)
    assert len(bench.lease(handoff=True)) == 1


def test_the_limit_of_a_queue_also_applies_to_runs_of_schedules(bench: LedgerHarness) -> None:
    ceiling(bench, 2)
    for i in range(3):
        bench.schedule(f"job-{i}", queue="mail")
    bench.enqueue("entry")
    bench.move_to(1)
    bench.admit()
    assert len(bench.lease()) == 2
    assert bench.lease(handoff=True) == []


def test_a_named_limit_spans_schedules_and_queues(bench: LedgerHarness) -> None:
    limit(bench, 3)
    ceiling(bench, 2)
    for i in range(3):
        bench.schedule(f"queued-{i}", queue="mail", limits=("api",))
        bench.schedule(f"plain-{i}", limits=("api",))
        bench.schedule(f"free-{i}")
    bench.move_to(1)
    bench.admit()
    leased = bench.lease(100)
    assert sum("limit:default/api" in run.limit_keys for run in leased) == 3
    assert sum(run.queue == "mail" for run in leased) <= 2
    assert sum(not run.limit_keys for run in leased) == 3
    bench.settle(*leased)
    assert len(bench.lease(100)) == 3


def test_after_a_limit_was_lowered_nothing_is_leased_until_slots_are_free(bench: LedgerHarness) -> None:
    ceiling(bench, 3)
    bench.enqueue(*range(6))
    leased = bench.lease(handoff=True)
    assert len(leased) == 3
    ceiling(bench, 1)
    for run in leased[:2]:
        bench.settle(run)
        assert bench.lease(handoff=True) == []
    bench.settle(leased[2])
    assert len(bench.lease(handoff=True)) == 1


def test_racing_instances_never_exceed_a_limit(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    ceiling(bench, 5)
    bench.enqueue(*range(40))
    workers = [another(f"worker-{i}") for i in range(3)]
    for round_ in range(3):
        answers = all_at_once([partial(one.lease, 4, handoff=True) for one in workers])
        leased = [run for answer in answers for run in answer]
        assert len({run.id for run in leased}) == len(leased)
        live = bench.store.read(lambda tx: tx.select(LeasedRuns()))
        assert len(live) == len(leased) == 5, round_
        bench.settle(*leased)


def test_one_that_stood_still_dates_its_lease_when_the_place_was_free(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    bench.enqueue(1, 2)
    (held,) = bench.lease(handoff=True)
    slow, read_before = another("slow"), bench.now
    bench.advance(10)
    bench.settle(held)
    bench.advance(1)
    late = lease_ready(slow.store, ids=slow.ids, holder="slow", capacity=1, handoff=True, now=read_before)
    (lease,) = late.leases
    assert lease.run.leased_at == bench.now
    assert lease.run.lease_until == bench.now + lease.terms.lease.length


def test_every_way_back_to_ready_frees_the_limit(bench: LedgerHarness) -> None:
    """Released, failed and lost runs wait for a free slot like all others."""
    bench.enqueue(1, 2)
    (first,) = bench.lease(handoff=True)
    bench.settle(first, outcome=Released(reason="later"))
    (first,) = bench.lease(handoff=True)
    assert bench.lease(handoff=True) == []
    bench.clock.advance(301 * SECOND)
    bench.reclaim()
    (second,) = bench.lease(handoff=True)
    assert second.payload == 2, "the lost one stays away for its backoff"
    assert bench.lease(handoff=True) == []


def test_a_run_that_is_too_late_to_start_is_skipped_and_its_schedule_goes_on(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=After(5 * MINUTE), deadline=2 * MINUTE)
    bench.move_to(5)
    bench.admit()
    bench.move_to(7)
    bench.clock.advance(SECOND)
    leased = bench.leased()
    assert leased.leases == ()
    assert kinds(leased.facts) == ["RunSkipped", "ScheduleMoved"]
    assert bench.outcomes_of(job) == [(5, "deadline")]
    assert bench.progress(job).next_at == bench.now + 5 * MINUTE


def test_once_that_came_too_late_to_start_is_finished(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Once(at(1)), deadline=MINUTE)
    bench.move_to(1)
    bench.admit()
    bench.move_to(3)
    assert bench.lease() == []
    assert bench.progress(job).state is ScheduleState.FINISHED


def test_a_retry_is_not_started_after_the_deadline_either(bench: LedgerHarness) -> None:
    job = bench.schedule(deadline=30 * SECOND, overlap=Overlap.QUEUE, retry=Retry(max_attempts=2))
    bench.move_to(1)
    bench.admit()
    bench.work(Failed(error="no"))
    bench.move_to(2)
    bench.admit()
    assert bench.lease() == []
    assert bench.outcomes_of(job) == [(1, "deadline"), (2, "ready")]


def test_a_deadline_that_passes_while_the_lock_is_awaited_holds_too(bench: LedgerHarness) -> None:
    """Dense seed 120000125: under a limit, a lease begins when the lock is granted."""
    limit(bench, 1)
    job = bench.schedule(trigger=Once(at(1)), deadline=MINUTE, limits=("api",))
    bench.move_to(1)
    bench.admit()
    bench.move_to(3)
    late = lease_ready(bench.store, ids=bench.ids, holder="h", capacity=10, now=at(1))
    assert (late.leases, late.more) == ((), True)
    assert bench.lease() == []
    assert bench.outcomes_of(job) == [(1, "deadline")]


def test_ageing_applies_only_to_queues_that_set_it(bench: LedgerHarness) -> None:
    ceiling(bench, 1, ageing=MINUTE)
    ceiling(bench, 1, namespace="other")
    for namespace in ("default", "other"):
        bench.enqueue("old", priority=200, namespace=namespace)
    bench.clock.advance(hours=2)
    for namespace in ("default", "other"):
        bench.enqueue(*["new"] * 4, priority=100, namespace=namespace)
    assert drain(bench, queue=("default", "mail")) == ["old", *["new"] * 4], "however many are before it"
    assert drain(bench, queue=("other", "mail")) == [*["new"] * 4, "old"]


def test_more_is_set_if_runs_wait_only_for_capacity(bench: LedgerHarness) -> None:
    bench.enqueue(1, 2, 3)
    assert bench.leased(5, handoff=True).more is False, "they wait for the ceiling"
    ceiling(bench, 9)
    assert bench.leased(1, handoff=True).more is True
    assert bench.leased(5, handoff=True).more is False
    assert bench.leased(0).leases == ()


def test_a_plan_writes_nothing_and_names_waiting_runs_with_reasons(bench: LedgerHarness) -> None:
    bench.enqueue("first", "second")
    bench.enqueue("later", not_before=at(30))
    (lost,) = bench.lease(handoff=True)
    before = bench.store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=10)))
    plan, policy = plan_queue(bench.store, namespace="default", queue="mail", now=bench.now)
    assert policy == QueuePolicy()
    assert plan.leases == ()
    assert {waiting.reason for waiting in plan.waiting} == {
        WaitReason.LEASED,
        WaitReason.LIMIT,
        WaitReason.BACKOFF,
    }
    bench.clock.advance(301 * SECOND)
    plan, _ = plan_queue(bench.store, namespace="default", queue="mail", now=bench.now)
    assert [run.payload for run in plan.leases] == ["second"], "a lease that is over frees its place"
    assert [w.reason for w in plan.waiting if w.run_id == lost.id] == [WaitReason.LEASED]
    assert bench.store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=10))) == before


def test_a_renewed_lease_lasts_and_a_lost_one_is_said_to_be_lost(bench: LedgerHarness) -> None:
    bench.enqueue(1)
    (run,) = bench.lease(handoff=True)
    bench.clock.advance(200 * SECOND)
    longer = Renewal(run.id, run.fence, bench.now + 300 * SECOND)
    (kept,), lost = renew_leases(bench.store, [longer])
    assert (kept.run_id, lost) == (run.id, [])
    bench.clock.advance(200 * SECOND)
    assert bench.reclaim().ended == ()
    bench.clock.advance(200 * SECOND)
    bench.reclaim()
    kept_none, gone = renew_leases(bench.store, [longer])
    assert (kept_none, gone) == ([], [longer])


def test_a_policy_that_cannot_be_read_leases_nothing_of_its_queue_and_stops_no_other(
    bench: LedgerHarness,
) -> None:
    torn = StoredObject(kind="queue", namespace="default", name="mail", body=b'{"max_running": -4}', at=at(0))
    bench.store.write(lambda tx: tx.put_objects([torn]))
    bench.enqueue("letter")
    bench.enqueue("report", queue="reports")
    assert [run.payload for run in bench.lease(handoff=True)] == ["report"]
    with pytest.raises(UnreadableRow, match="queue mail cannot be read"):
        bench.lease(handoff=True, queue=("default", "mail"))
    with pytest.raises(UnreadableRow, match="queue mail cannot be read"):
        plan_queue(bench.store, namespace="default", queue="mail", now=bench.now)


def test_an_answer_is_written_also_when_the_policy_became_unreadable_meanwhile(bench: LedgerHarness) -> None:
    bench.enqueue("letter")
    (run,) = bench.lease(handoff=True)
    torn = StoredObject(kind="queue", namespace="default", name="mail", body=b"[]", at=at(0))
    bench.store.write(lambda tx: tx.put_objects([torn]))
    bench.settle(run)
    assert bench.run(run).state is RunState.SUCCEEDED


def test_a_run_of_an_unreadable_schedule_is_parked_and_others_continue(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness], database: Database
) -> None:
    bad, good = bench.schedule("bad", catch_up=CatchUp.ALL), bench.schedule("good")
    bench.move_to(1)
    bench.admit()
    database.sql("UPDATE revisions SET body = '{}' WHERE schedule_id = ?", [bad.id])
    leased = another("one who did not read them before").leased()
    assert [lease.schedule for lease in leased.leases] == [good]
    assert "RunParked" in kinds(leased.facts)
    rows = database.sql("SELECT state, reason FROM runs WHERE schedule_id = ?", [bad.id])
    assert rows == [("parked", "unreadable")]
    bench.settle(*[lease.run for lease in leased.leases])
    assert bench.outcomes_of(good) == [(1, "succeeded")]


def test_a_lease_can_be_asked_for_with_a_length_of_its_own(bench: LedgerHarness) -> None:
    bench.enqueue(1)
    (run,) = bench.lease(handoff=True, length=HOUR)
    assert run.lease_until == bench.now + HOUR
