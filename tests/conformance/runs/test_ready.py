"""Ready runs: deferred until their instant, then best first per bucket."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest

from tests.conformance.support.builders import (
    NOON,
    TICK,
    add,
    ended,
    get,
    grant,
    leased,
    make_run,
    queued,
    settle,
)
from tests.conformance.support.concurrency import held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.leasing import lease_order
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import queue_limit_key
from timewright.ports import Store
from timewright.ports.rows import QueuedRuns


def ready(store: Store, *, now: datetime = NOON, limit: int = 100, **which: Any) -> list[str]:
    found = store.write(lambda tx: tx.ready_runs(now=now, limit=limit, **which))
    return [run.id for run in found]


def test_only_ready_runs_may_start(store: Store) -> None:
    runs = [make_run(state=state) for state in RunState]
    add(store, *runs)
    assert ready(store) == [run.id for run in runs if run.state is RunState.READY]


@pytest.mark.parametrize(
    ("run", "waits"),
    [
        (make_run(), True),
        (make_run(handoff=True), False),
        (make_run(fire_at=NOON + HOUR), False),
        *((make_run(state=state), False) for state in RunState if state is not RunState.READY),
    ],
)
def test_pending_work_says_whether_a_run_is_ready(store: Store, run: Run, waits: bool) -> None:
    assert not store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs
    add(store, run)
    assert store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs is waits


def test_the_smaller_priority_comes_first_then_the_older_then_the_smaller_id(store: Store) -> None:
    rng = random.Random(7)
    runs = [
        make_run(
            planned_at=NOON - rng.randrange(4) * MINUTE,
            priority=rng.choice([0, 50, 100, 200]),
            created_at=NOON,
        )
        for _ in range(60)
    ]
    add(store, *runs)
    assert ready(store) == [run.id for run in sorted(runs, key=lease_order)]


def test_a_ready_run_is_read_back_unchanged(store: Store) -> None:
    run = queued(payload={"to": "ada"}, priority=3)
    add(store, run)
    assert store.write(lambda tx: tx.ready_runs(now=NOON, limit=1)) == [run]


@pytest.mark.parametrize(("limit", "many"), [(1, 1), (3, 3), (100, 7)])
def test_ready_runs_respect_the_limit_per_bucket(store: Store, limit: int, many: int) -> None:
    add(store, *(make_run() for _ in range(7)))
    assert len(ready(store, limit=limit)) == many


def test_a_full_ready_bucket_does_not_hide_another(store: Store) -> None:
    crowd = [queued("mail", priority=0) for _ in range(20)]
    patient = [queued("sync", priority=200), make_run(priority=200)]
    add(store, *crowd, *patient)
    found = ready(store, limit=3)
    assert set(found) == {crowd[0].id, crowd[1].id, crowd[2].id, patient[0].id, patient[1].id}


def test_runs_with_the_same_limits_share_a_bucket(store: Store) -> None:
    keys = ("limit:default/crm", "limit:default/erp")
    runs = [make_run(limit_keys=keys, priority=9 - n) for n in range(5)]
    alone = make_run(limit_keys=keys[:1])
    add(store, *runs, alone)
    assert set(ready(store, limit=2)) == {runs[4].id, runs[3].id, alone.id}


def test_ready_runs_can_be_filtered_by_limit_key(store: Store) -> None:
    key = queue_limit_key("default", "mail")
    mail, both = queued("mail"), make_run(queue="mail", limit_keys=(key, "limit:default/smtp"))
    add(store, mail, both, queued("sync"), make_run(), queued("mail", namespace="other"))
    assert set(ready(store, queue=key)) == {mail.id, both.id}


def test_handoff_runs_are_listed_separately(store: Store) -> None:
    ours, theirs = make_run(), make_run(handoff=True)
    add(store, ours, theirs)
    assert ready(store) == [ours.id]
    assert ready(store, handoff=True) == [theirs.id]


def test_a_run_sleeps_until_it_may_fire_and_not_a_microsecond_less(store: Store) -> None:
    run = make_run(fire_at=NOON + MINUTE)
    add(store, run)
    assert ready(store, now=NOON + MINUTE - TICK) == []
    assert ready(store, now=NOON + MINUTE) == [run.id]
    assert get(store, run.id) == run


def test_only_deferred_runs_that_are_due_wake(store: Store) -> None:
    early, late = make_run(fire_at=NOON + MINUTE), make_run(fire_at=NOON + HOUR)
    add(store, early, late)
    assert ready(store, now=NOON + HOUR - TICK) == [early.id]
    assert ready(store, now=NOON + HOUR) == [early.id, late.id]


def test_a_failed_run_is_ready_again_after_its_delay(store: Store) -> None:
    run = queued()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended(held, RunState.READY, fire_at=NOON + HOUR))
    assert ready(store, now=NOON + HOUR - TICK) == []
    assert ready(store, now=NOON + HOUR) == [run.id]


def test_a_woken_run_takes_the_place_that_its_priority_gives_it(store: Store) -> None:
    late = make_run(priority=0, fire_at=NOON + MINUTE)
    runs = [make_run(priority=5), late, make_run(priority=9)]
    add(store, *runs)
    assert ready(store, now=NOON) == [runs[0].id, runs[2].id]
    assert ready(store, now=NOON + MINUTE) == [late.id, runs[0].id, runs[2].id]


def test_many_sleepers_wake_at_once(store: Store) -> None:
    add(store, *(make_run(fire_at=NOON + MINUTE) for _ in range(1500)))
    found: set[str] = set()
    for _ in range(2):
        found |= set(ready(store, now=NOON + MINUTE, limit=1500))
    assert len(found) == 1500


def test_the_oldest_ready_runs_ignore_priority(store: Store) -> None:
    old, new = (
        queued(planned_at=NOON - HOUR, priority=200, created_at=NOON),
        queued(planned_at=NOON, priority=0),
    )
    add(store, old, new)
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=1, oldest_of=((), old.limit_keys)))
    assert [run.id for run in found] == [old.id]


def test_a_plan_sees_the_unfinished_and_parked_runs_of_a_queue_in_order(store: Store) -> None:
    runs = [queued(state=state, priority=n) for n, state in enumerate(RunState)]
    add(store, *runs, queued("other"), queued(namespace="elsewhere"))
    found = store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=100)))
    shown = {RunState.READY, RunState.LEASED, RunState.HELD, RunState.PARKED}
    assert [run.id for run in found] == [run.id for run in runs if run.state in shown]
    assert len(store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=2)))) == 2


def test_two_leasers_at_the_same_time_never_lease_the_same_run(database: Database) -> None:
    one, two = database.open(), database.open()
    runs = [make_run() for _ in range(10)]
    add(one, *runs)

    def take(tx: Any) -> list[Run]:
        found = tx.ready_runs(now=NOON, limit=5)
        return list(tx.lease_runs([grant(run) for run in found]))

    with held_open(one, take) as held, meanwhile(lambda: two.write(take)) as other:
        mine = [run.id for run in held.first]
        held.release()
        theirs = [run.id for run in other.result(60)]
    assert sorted(mine + theirs) == sorted(run.id for run in runs)
