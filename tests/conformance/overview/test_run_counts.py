"""Counts by minute equal a full count of the run rows, on both databases and however often they are made."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import islice

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import NOON, add, ended, get, leased, make_run, settle
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE, SECOND, ZERO
from timewright.core.run.run import Run, RunState
from timewright.ledger.records import run_counts
from timewright.ledger.records.run_counts import KEEP_COUNTS, count_runs, floor_minute
from timewright.ledger.settle import reopen
from timewright.ports import PruneRequest, RunFilter, Store
from timewright.ports.overview import FinishedRunCounts, FinishInstant, StoredRunCounts
from timewright.stores.queries.overview import COUNTED
from timewright.stores.statements import SQLITE, load_statements

Counts = dict[tuple[str, datetime, str], int]
NAMESPACES = ("default", "other")


def stored_counts(store: Store) -> Counts:
    """The stored counts by namespace, planned minute and result; `started` among them."""
    found = Counter[tuple[str, datetime, str]]()
    for namespace in NAMESPACES:
        for one in store.read(
            lambda tx, name=namespace: tx.select(
                StoredRunCounts(namespace=name, since=NOON - 9 * 24 * HOUR, until=NOON + 9 * HOUR)
            )  # type: ignore[misc]
        ):
            for result in (*COUNTED, "started"):
                found[namespace, one.planned_minute, result] += getattr(one, result)
    return {key: count for key, count in found.items() if count}


def full_count(store: Store, *, until: datetime) -> Counts:
    """The same, counted from every run row that ended before an instant."""
    found = Counter[tuple[str, datetime, str]]()
    for namespace in NAMESPACES:
        rows = store.read(lambda tx, n=namespace: tx.find(RunFilter(namespace=n, limit=1000))).rows  # type: ignore[misc]
        for run in rows:
            if run.finished_at is not None and run.finished_at < until:
                missed = run.state is RunState.SKIPPED and run.reason in ("missed", "deadline")
                found[namespace, floor_minute(run.planned_at), "missed" if missed else run.state.value] += 1
                found[namespace, floor_minute(run.planned_at), "started"] += run.started_at is not None
    return {key: count for key, count in found.items() if count}


def run_at(planned: datetime, n: int, **fields: object) -> Run:
    return make_run(f"sch_{n}", planned_at=planned, namespace=NAMESPACES[n % 5 == 0], **fields)


def end(store: Store, run: Run, state: RunState, *, started: datetime, at: datetime) -> None:
    (taken,) = leased(store, run, at=started)
    settle(store, ended(taken, state, at=at, started_at=started))


def test_counts_equal_a_full_count_at_every_minute_of_an_hour(store: Store) -> None:
    rng = random.Random(28)
    waiting: list[tuple[datetime, Run, RunState, datetime]] = []
    states = [RunState.SUCCEEDED] * 5 + [RunState.FAILED, RunState.PARKED]
    failed: list[Run] = []
    for n in range(60):
        now = NOON + n * MINUTE
        due = [run_at(now + rng.random() * MINUTE, n * 10 + i) for i in range(rng.randint(0, 5))]
        skipped = run_at(now, n * 10 + 9, state=RunState.SKIPPED, reason=rng.choice(["missed", "overlap"]))
        add(store, *due, replace(skipped, finished_at=now + SECOND))
        for run in due:
            started = run.planned_at + rng.random() * 20 * SECOND
            # Most end within the minute, some half an hour later.
            took = rng.choice([SECOND, SECOND, 40 * SECOND, 30 * MINUTE])
            waiting.append((started + took, run, rng.choice(states), started))
        over = [one for one in waiting if one[0] < now + MINUTE]
        waiting = [one for one in waiting if one[0] >= now + MINUTE]
        # A settlement may commit after its minute was counted.
        late = [one for one in over if rng.random() < 0.2]
        for ends_at, run, state, started in over:
            if (ends_at, run, state, started) not in late:
                end(store, run, state, started=started, at=ends_at)
                failed += [run] if state is RunState.FAILED else []
        if failed and rng.random() < 0.3:
            reopen(store, failed.pop(0).id, actor="ada", now=now + MINUTE)
        count_runs(store, now=now + MINUTE)
        for ends_at, run, state, started in late:
            end(store, run, state, started=started, at=ends_at)
        count_runs(store, now=now + 2 * MINUTE)
        assert stored_counts(store) == full_count(store, until=now + 2 * MINUTE), n


def test_a_reopened_run_leaves_the_counts_of_the_minute_in_which_it_failed(store: Store) -> None:
    run = run_at(NOON, 1)
    add(store, run)
    end(store, run, RunState.FAILED, started=NOON, at=NOON + SECOND)
    count_runs(store, now=NOON + HOUR)
    assert stored_counts(store) == {("default", NOON, "failed"): 1, ("default", NOON, "started"): 1}
    reopen(store, run.id, actor="ada", now=NOON + HOUR)
    count_runs(store, now=NOON + HOUR + MINUTE)
    assert stored_counts(store) == {}
    end(store, get(store, run.id), RunState.SUCCEEDED, started=NOON + HOUR, at=NOON + HOUR + MINUTE)
    count_runs(store, now=NOON + HOUR + 2 * MINUTE)
    assert stored_counts(store) == {("default", NOON, "succeeded"): 1, ("default", NOON, "started"): 1}


def test_two_instances_that_count_at_once_store_the_counts_once(store: Store) -> None:
    run = run_at(NOON, 1)
    add(store, run)
    end(store, run, RunState.SUCCEEDED, started=NOON, at=NOON + SECOND)
    first = store.read(lambda tx: run_counts._count(tx, now=NOON + MINUTE))
    late = run_at(NOON, 2)
    add(store, late)
    end(store, late, RunState.FAILED, started=NOON, at=NOON + 2 * SECOND)
    second = store.read(lambda tx: run_counts._count(tx, now=NOON + MINUTE))
    assert store.write(lambda tx: tx.save_run_counts(second))
    assert not store.write(lambda tx: tx.save_run_counts(first))
    assert stored_counts(store) == full_count(store, until=NOON + MINUTE)
    assert count_runs(store, now=NOON + MINUTE) == NOON + MINUTE


def test_a_run_reopened_between_counting_and_storing_is_counted_again(store: Store) -> None:
    run = run_at(NOON, 1)
    add(store, run)
    end(store, run, RunState.FAILED, started=NOON, at=NOON + SECOND)
    count_runs(store, now=NOON + MINUTE)
    change = store.read(lambda tx: run_counts._count(tx, now=NOON + 4 * MINUTE))
    reopen(store, run.id, actor="ada", now=NOON + 4 * MINUTE)
    assert store.write(lambda tx: tx.save_run_counts(change))
    count_runs(store, now=NOON + 5 * MINUTE)
    assert stored_counts(store) == {}


def test_the_end_of_what_is_counted_and_the_minutes_to_count_again_are_read(store: Store) -> None:
    assert store.read(lambda tx: tx.read_counted_until()) == (None, {})
    run, later = run_at(NOON, 1), run_at(NOON, 2)
    add(store, run, later)
    end(store, run, RunState.FAILED, started=NOON, at=NOON + MINUTE + SECOND)
    count_runs(store, now=NOON + HOUR + SECOND)
    assert store.read(lambda tx: tx.read_counted_until()) == (NOON + HOUR, {})
    end(store, later, RunState.FAILED, started=NOON, at=NOON + HOUR + SECOND)
    reopen(store, run.id, actor="ada", now=NOON + HOUR)
    reopen(store, later.id, actor="ada", now=NOON + HOUR + 2 * SECOND)
    counted, again = store.read(lambda tx: tx.read_counted_until())
    assert (counted, list(again.values())) == (NOON + HOUR, [NOON + MINUTE]), (
        "the later one is not counted yet"
    )
    count_runs(store, now=NOON + HOUR + MINUTE)
    assert store.read(lambda tx: tx.read_counted_until()) == (NOON + HOUR + MINUTE, {})


def test_the_instant_of_an_end_is_found_by_its_place_among_the_ends(store: Store) -> None:
    assert store.read(lambda tx: tx.select(FinishInstant(since=NOON, offset=0))) == []
    ends = [NOON + n * SECOND for n in (4, 0, 2, 2)]
    runs = [
        replace(run_at(NOON, n, state=RunState.SKIPPED), finished_at=at) for n, at in enumerate(ends, start=1)
    ]
    add(store, *runs, run_at(NOON, 9))

    def found(since: datetime, offset: int) -> list[datetime]:
        return store.read(lambda tx: tx.select(FinishInstant(since=since, offset=offset)))

    assert [found(NOON, offset) for offset in range(5)] == [*([at] for at in sorted(ends)), []]
    assert found(NOON + SECOND, 0) == [NOON + 2 * SECOND]
    assert found(NOON + 2 * SECOND, 2) == [NOON + 4 * SECOND]
    assert found(NOON + 5 * SECOND, 0) == []


def test_pruned_runs_stay_counted_until_the_counts_are_old(store: Store) -> None:
    run = run_at(NOON, 1)
    add(store, run)
    end(store, run, RunState.SUCCEEDED, started=NOON, at=NOON + SECOND)
    count_runs(store, now=NOON + HOUR)
    store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + HOUR)))
    count_runs(store, now=NOON + 2 * HOUR)
    assert len(stored_counts(store)) == 2
    count_runs(store, now=NOON + KEEP_COUNTS + 2 * MINUTE)
    assert stored_counts(store) == {}


def test_a_large_backlog_is_counted_in_several_passes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_counts, "MAX_ROWS_PER_PASS", 7)
    runs = [
        replace(run_at(NOON + n * 10 * SECOND, n, state=RunState.SKIPPED), finished_at=NOON + n * 10 * SECOND)
        for n in range(100)
    ]
    add(store, *runs)
    now, passes = NOON + HOUR, 0
    while count_runs(store, now=now) != now:
        passes += 1
        assert passes < 30
    assert passes > 2
    assert stored_counts(store) == full_count(store, until=now)


def test_delays_are_those_of_the_first_start_rounded_up_to_a_bound(store: Store) -> None:
    waits = [0.004, 0.004, 0.09, 3.0, 400_000.0]
    for n, seconds in enumerate(waits):
        run = run_at(NOON, n + 1)
        add(store, run)
        started = NOON + seconds * SECOND
        end(store, run, RunState.SUCCEEDED, started=started, at=started + SECOND)
    found = store.read(lambda tx: tx.select(FinishedRunCounts(since=NOON, until=NOON + timedelta(days=9))))
    delays = Counter[int]()
    for one in found:
        delays.update(one.delays)
    assert delays == {5_000: 2, 100_000: 1, 3_000_000: 1, 400_000_000_000: 1}
    assert max(one.delay_max for one in found) == 400_000 * SECOND
    assert min(one.delay_max for one in found) > ZERO


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("count_finished_runs", "runs_finished"),
        ("nth_finished_run", "runs_finished"),
        ("delete_run_counts", "run_counts_finished"),
        ("read_run_counts", "PRIMARY KEY"),
    ],
)
def test_counting_reads_ranges_of_an_index(database: Database, statement: str, index: str) -> None:
    database.open()
    sql = re.sub(r":\w+", "5", load_statements(SQLITE)[statement].sql)
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    assert [step for step in steps if step.startswith("SCAN ") and "ended" not in step] == []
    assert any(index in step for step in islice(steps, 4)), steps
