"""Leases: granted by fence, renewed, ended once; a lost lease changes nothing."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    LEASE,
    NOON,
    TICK,
    add,
    ended,
    get,
    grant,
    leased,
    make_run,
    make_schedule,
    new_id,
    put,
    queued,
    schedule_write,
    settle,
)
from tests.conformance.support.concurrency import all_at_once, held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import Attempt, RunState
from timewright.ports import Renewal, RunChange, Store
from timewright.ports.rows import LeasedRuns

FREE = [state for state in RunState if state is not RunState.LEASED]


def reclaim(store: Store, *, now: Any, limit: int = 100) -> list[str]:
    return [run.id for run in store.write(lambda tx: tx.expired_leases(now=now, limit=limit))]


def renew(store: Store, *renewals: Renewal) -> list[Any]:
    return list(store.write(lambda tx: tx.renew_leases(renewals)))


def ask(store: Store, *asked: tuple[str, datetime], at: datetime, reason: str = "by_hand") -> set[str]:
    return set(store.write(lambda tx: tx.request_cancel(asked, at=at, reason=reason)))


def change(store: Store, *changes: RunChange) -> set[str]:
    return set(store.write(lambda tx: tx.change_runs(changes)))


@pytest.mark.parametrize("many", [0, 1, 200])
def test_ready_runs_are_leased_many_at_a_time(store: Store, many: int) -> None:
    runs = [make_run() for _ in range(many)]
    add(store, *runs)
    held = leased(store, *runs)
    assert [run.id for run in held] == [run.id for run in runs]
    assert store.read(lambda tx: tx.get_runs([run.id for run in runs])) == {run.id: run for run in held}


def test_a_lease_has_holder_start_end_and_fence(store: Store) -> None:
    run = make_run()
    add(store, run)
    given = grant(run, holder="worker-7")
    (held,) = store.write(lambda tx: tx.lease_runs([given]))
    assert (held.state, held.fence, held.holder) == (RunState.LEASED, 1, "worker-7")
    assert (held.lease_id, held.leased_at, held.lease_until) == (given.lease_id, NOON, NOON + LEASE)
    assert get(store, run.id) == held


def test_the_fence_rises_by_one_with_every_lease_and_never_falls(store: Store) -> None:
    run = make_run()
    add(store, run)
    fences = []
    for _ in range(4):
        (held,) = leased(store, run)
        fences.append(held.fence)
        settle(store, ended(held, RunState.READY))
        run = get(store, run.id)
        assert run.fence == held.fence
    assert fences == [1, 2, 3, 4]


def test_a_run_is_leased_once_however_many_have_read_it(store: Store) -> None:
    run = make_run()
    add(store, run)
    assert len(leased(store, run)) == 1
    assert leased(store, run) == []


def test_a_run_is_leased_once_by_concurrent_callers(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    run = make_run()
    add(stores[0], run)
    answers = all_at_once([partial(leased, stores[n % 3], run) for n in range(12)])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert sorted(len(answer) for answer in answers) == [0] * 11 + [1]
    assert get(stores[0], run.id).fence == 1


def test_a_lease_read_under_an_older_fence_is_not_granted(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended(held, RunState.READY))
    assert leased(store, run) == []
    assert len(leased(store, get(store, run.id))) == 1


@pytest.mark.parametrize("state", [s for s in RunState if s is not RunState.READY])
def test_a_run_that_is_not_ready_is_not_leased(store: Store, state: RunState) -> None:
    run = make_run(state=state)
    add(store, run)
    assert leased(store, run) == []
    assert get(store, run.id).state is state


def test_only_those_that_could_be_leased_are_given_back(store: Store) -> None:
    runs = [make_run(state=RunState.PARKED if n % 2 else RunState.READY) for n in range(6)]
    add(store, *runs)
    assert [run.id for run in leased(store, *runs)] == [runs[0].id, runs[2].id, runs[4].id]


def test_a_run_may_be_admitted_and_leased_at_once(store: Store) -> None:
    run = make_run(
        state=RunState.LEASED,
        fence=1,
        lease_id=new_id("lease"),
        holder="w",
        leased_at=NOON,
        lease_until=NOON + LEASE,
    )
    add(store, run)
    assert get(store, run.id) == run
    assert reclaim(store, now=NOON + LEASE) == [run.id]
    assert settle(store, ended(run)) == {run.id}


def test_a_renewal_prolongs_the_lease(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    (renewed,) = renew(store, Renewal(run.id, held.fence, NOON + HOUR))
    assert (renewed.run_id, renewed.fence, renewed.cancel_at) == (run.id, 1, None)
    assert get(store, run.id) == replace(held, lease_until=NOON + HOUR)


def test_only_renewals_with_a_matching_fence_are_returned(store: Store) -> None:
    runs = [make_run() for _ in range(4)]
    add(store, *runs)
    one, two, three = leased(store, *runs[:3])
    settle(store, ended(three))
    answers = renew(
        store,
        Renewal(one.id, one.fence, NOON + HOUR),
        Renewal(two.id, two.fence + 1, NOON + HOUR),
        Renewal(three.id, three.fence, NOON + HOUR),
        Renewal(runs[3].id, 0, NOON + HOUR),
        Renewal(new_id(), 1, NOON + HOUR),
    )
    assert [each.run_id for each in answers] == [one.id]
    assert get(store, two.id).lease_until == NOON + LEASE
    assert renew(store) == []


def test_a_renewal_reports_the_cancel_request_and_extends_nothing(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    ask(store, (run.id, NOON + 2 * MINUTE), at=NOON + MINUTE)
    (renewed,) = renew(store, Renewal(run.id, held.fence, NOON + HOUR))
    assert renewed.cancel_at == NOON + MINUTE
    assert get(store, run.id).lease_until == NOON + 2 * MINUTE


@pytest.mark.parametrize("lease_id", ["ours", "theirs", "lease_", "", "lease_!é"])
def test_a_lease_is_found_by_its_id(store: Store, lease_id: str) -> None:
    run, other = make_run(), make_run()
    add(store, run, other)
    asked = grant(run)
    asked = asked if lease_id == "ours" else replace(asked, lease_id=lease_id)
    (held,) = store.write(lambda tx: tx.lease_runs([asked]))
    leased(store, other)
    assert store.read(lambda tx: tx.select(LeasedRuns(lease_id=asked.lease_id))) == [held]
    assert store.read(lambda tx: tx.select(LeasedRuns(lease_id=f"{asked.lease_id}-2"))) == []
    settle(store, ended(held))
    assert store.read(lambda tx: tx.select(LeasedRuns(lease_id=asked.lease_id))) == []


def test_a_lease_is_over_at_its_very_end_and_not_a_microsecond_before(store: Store) -> None:
    run = make_run()
    add(store, run)
    leased(store, run)
    assert reclaim(store, now=NOON + LEASE - TICK) == []
    assert reclaim(store, now=NOON + LEASE) == [run.id]


def test_expired_leases_come_oldest_first_up_to_the_limit(store: Store) -> None:
    runs = [make_run() for _ in range(5)]
    add(store, *runs)
    for n, run in enumerate(runs):
        leased(store, run, length=(5 - n) * MINUTE)
    assert reclaim(store, now=NOON + HOUR) == [run.id for run in reversed(runs)]
    assert reclaim(store, now=NOON + HOUR, limit=2) == [runs[4].id, runs[3].id]
    assert reclaim(store, now=NOON + HOUR, limit=0) == []


def test_a_renewed_lease_is_not_over(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    renew(store, Renewal(run.id, held.fence, NOON + HOUR))
    assert reclaim(store, now=NOON + LEASE) == []


def test_two_reclaimers_at_the_same_time_never_settle_the_same_lease(database: Database) -> None:
    one, two = database.open(), database.open()
    runs = [make_run() for _ in range(6)]
    add(one, *runs)
    leased(one, *runs)

    def take_back(tx: Any) -> set[str]:
        lost = tx.expired_leases(now=NOON + HOUR, limit=3)
        return set(tx.settle_runs([ended(run, RunState.READY) for run in lost]))

    with held_open(one, take_back) as held, meanwhile(lambda: two.write(take_back)) as other:
        mine = held.first
        held.release()
        theirs = other.result(60)
    assert mine | theirs == {run.id for run in runs}
    assert mine & theirs == set()


@pytest.mark.parametrize("state", FREE)
def test_a_lease_ends_in_any_state_and_frees_its_holder(store: Store, state: RunState) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    assert settle(store, ended(held, state, reason="because", error="said", outcome_label="noop")) == {run.id}
    after = get(store, run.id)
    assert (after.state, after.reason, after.error, after.outcome_label) == (state, "because", "said", "noop")
    assert (after.lease_id, after.holder, after.leased_at, after.lease_until) == ("", "", None, None)
    assert (after.fence, after.attempts) == (1, 1)


@pytest.mark.parametrize("many", [0, 1, 200])
def test_leases_are_settled_many_at_a_time(store: Store, many: int) -> None:
    runs = [make_run() for _ in range(many)]
    add(store, *runs)
    held = leased(store, *runs)
    assert settle(store, *(ended(run) for run in held)) == {run.id for run in runs}
    assert len(store.read(lambda tx: tx.get_run_rows(Attempt, [run.id for run in runs]))) == many


def test_a_result_of_a_lost_lease_changes_nothing(store: Store) -> None:
    run = make_run()
    add(store, run)
    (first,) = leased(store, run)
    settle(store, ended(first, RunState.READY))
    (second,) = leased(store, get(store, run.id))
    assert settle(store, ended(first, RunState.SUCCEEDED, outcome_label="late")) == set()
    assert get(store, run.id) == replace(second, attempts=1)
    assert settle(store, ended(second)) == {run.id}
    fences = [attempt.fence for attempt in store.read(lambda tx: tx.get_run_rows(Attempt, [run.id]))[run.id]]
    assert fences == [1, 2]


def test_a_lease_ends_once_however_many_answers_it_gets(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    run = make_run()
    add(stores[0], run)
    (held,) = leased(stores[0], run)
    answers = all_at_once(
        [partial(settle, stores[n % 3], ended(held, outcome_label=f"answer-{n}")) for n in range(12)]
    )
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert sorted(len(answer) for answer in answers) == [0] * 11 + [1]
    assert len(stores[0].read(lambda tx: tx.get_run_rows(Attempt, [run.id]))[run.id]) == 1


def test_settling_a_batch_skips_only_the_stale_results(store: Store) -> None:
    runs = [make_run() for _ in range(3)]
    add(store, *runs)
    one, two, three = leased(store, *runs)
    settle(store, ended(two, RunState.READY))
    assert settle(store, ended(one), ended(two), ended(three)) == {one.id, three.id}


def test_attempts_are_kept_oldest_first_for_each_run(store: Store) -> None:
    runs = [make_run(), make_run()]
    add(store, *runs)
    for n in range(3):
        now = NOON + n * HOUR
        for run in runs:
            (held,) = leased(store, get(store, run.id), at=now)
            settle(store, ended(held, RunState.READY, at=now + MINUTE))
    found = store.read(lambda tx: tx.get_run_rows(Attempt, [run.id for run in runs]))
    for run in runs:
        assert [a.fence for a in found[run.id]] == [1, 2, 3]
        assert [a.ended_at for a in found[run.id]] == [NOON + n * HOUR + MINUTE for n in range(3)]
    assert store.read(lambda tx: tx.get_run_rows(Attempt, [new_id()])) == {}
    assert store.read(lambda tx: tx.get_run_rows(Attempt, [])) == {}


@pytest.mark.parametrize("was", FREE)
def test_an_unleased_run_can_be_rewritten(store: Store, was: RunState) -> None:
    run = make_run(state=was)
    add(store, run)
    after = replace(run, state=RunState.CANCELLED, reason="by_hand", finished_at=NOON + HOUR)
    assert change(store, RunChange(after, was, 0)) == {run.id}
    assert get(store, run.id) == after


def test_a_change_needs_the_same_state_and_fence(store: Store) -> None:
    run = make_run()
    add(store, run)
    after = replace(run, state=RunState.CANCELLED)
    assert change(store, RunChange(after, RunState.HELD, 0)) == set()
    assert change(store, RunChange(after, RunState.READY, 1)) == set()
    assert change(store, RunChange(replace(after, id=new_id()), RunState.READY, 0)) == set()
    assert change(store) == set()
    assert get(store, run.id) == run


def test_a_leased_run_is_never_rewritten(store: Store) -> None:
    run = queued()
    add(store, run)
    (held,) = leased(store, run)
    changed = RunChange(replace(held, state=RunState.CANCELLED), RunState.LEASED, held.fence)
    assert change(store, changed) == set()
    assert get(store, run.id) == held


def test_a_run_is_not_leased_and_cancelled_at_the_same_time(database: Database) -> None:
    one, two = database.open(), database.open()
    for _ in range(10):
        run = make_run()
        add(one, run)
        cancel = RunChange(replace(run, state=RunState.CANCELLED), RunState.READY, 0)
        taken, cancelled = all_at_once([partial(leased, one, run), partial(change, two, cancel)])
        assert (len(taken), len(cancelled)) in {(1, 0), (0, 1)}


def test_a_reset_run_keeps_its_fence_and_clears_its_attempts(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended(held, RunState.PARKED, reason="exhausted"))
    parked = get(store, run.id)
    reset = replace(parked, state=RunState.READY, attempts=0, refunds=0, reason="", finished_at=None)
    assert change(store, RunChange(reset, RunState.PARKED, parked.fence)) == {run.id}
    assert get(store, run.id) == reset
    store.write(lambda tx: tx.ready_runs(now=NOON, limit=1))
    (again,) = leased(store, get(store, run.id))
    assert again.fence == 2


def test_the_next_occurrence_may_be_in_flight_as_soon_as_the_lease_has_ended(store: Store) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule))
    run = make_run(schedule.id)
    add(store, run)
    (held,) = leased(store, run)
    following = make_run(schedule.id, planned_at=NOON + HOUR)

    def settle_and_admit(tx: Any) -> set[str]:
        assert tx.settle_runs([ended(held)]) == {run.id}
        return set(tx.add_runs([following]))

    assert store.write(settle_and_admit) == {following.id}


def test_leases_of_a_wrong_clock_are_shortened_and_others_stay(store: Store) -> None:
    ordinary, far = make_run(), make_run()
    add(store, ordinary, far)
    leased(store, ordinary)
    leased(store, far, length=1000 * HOUR)
    store.write(lambda tx: tx.shorten_leases(now=NOON, until=NOON + MINUTE, latest=NOON + HOUR))
    assert get(store, ordinary.id).lease_until == NOON + LEASE
    assert get(store, far.id).lease_until == NOON + MINUTE


def test_only_finished_runs_are_deleted(store: Store) -> None:
    skipped, ready = make_run(state=RunState.SKIPPED, finished_at=NOON), make_run()
    add(store, skipped, ready)
    store.write(lambda tx: tx.repair_history(delete=[skipped.id, ready.id]))
    assert set(store.read(lambda tx: tx.get_runs([skipped.id, ready.id]))) == {ready.id}
