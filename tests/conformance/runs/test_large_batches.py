"""Large batches: every row takes effect, and exactly the changed rows are returned."""

from __future__ import annotations

from msgspec.structs import replace

from tests.conformance.support.builders import (
    LEASE,
    NOON,
    add,
    ended,
    get,
    grant,
    leased,
    make_run,
    make_schedule,
    put,
    schedule_write,
    settle,
)
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.run.run import Attempt, Run, RunState
from timewright.ports import Store

MANY = 60


def entries(many: int = MANY) -> list[Run]:
    return [make_run(queue=f"q{number % 2}", priority=number % 3) for number in range(many)]


def test_runs_of_many_kinds_are_read_as_they_were_added(store: Store) -> None:
    runs = [
        replace(run, fire_at=run.planned_at + (number % 4) * SECOND, missed=number % 5, payload={"n": number})
        for number, run in enumerate(entries())
    ]
    assert add(store, *runs) == {run.id for run in runs}
    assert [get(store, run.id) for run in runs] == runs


def test_of_a_large_batch_only_new_occurrences_are_added(store: Store) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule))
    planned = [NOON + number * HOUR for number in range(MANY)]
    there = [make_run(schedule.id, planned_at=at, exclusive=False) for at in planned[::3]]
    add(store, *there)
    batch = [make_run(schedule.id, planned_at=at, exclusive=False) for at in planned]
    assert add(store, *batch) == {run.id for number, run in enumerate(batch) if number % 3}
    assert [get(store, run.id) for run in there] == there


def test_a_large_batch_leases_only_runs_with_a_matching_fence(store: Store) -> None:
    runs = entries()
    add(store, *runs)
    leased(store, *runs[::4])
    grants = [grant(run, holder=f"w{number % 3}") for number, run in enumerate(runs)]
    granted = store.write(lambda tx: tx.lease_runs(grants))
    assert [run.id for run in granted] == [run.id for number, run in enumerate(runs) if number % 4]
    assert [get(store, run.id) for run in granted] == granted


def test_a_large_batch_grants_each_run_once(store: Store) -> None:
    runs = entries()
    add(store, *runs)
    grants = [grant(run) for run in (*runs, *runs)]
    store.write(lambda tx: tx.lease_runs(grants))
    found = [get(store, run.id) for run in runs]
    assert {run.fence for run in found} == {1}
    either = zip(grants[:MANY], grants[MANY:], strict=True)
    assert all(
        run.lease_id in {one.lease_id for one in pair} for run, pair in zip(found, either, strict=True)
    )


def test_a_large_batch_settles_only_runs_with_a_matching_fence(store: Store) -> None:
    runs = entries()
    add(store, *runs)
    held = leased(store, *runs)
    ends = [replace(run, started_at=NOON + number * SECOND) for number, run in enumerate(held)]
    answers = [ended(run, at=NOON + MINUTE) for run in ends]
    settle(store, *answers[::4])
    # Results that were settled already, repeated among new ones at the same instant.
    assert settle(store, *answers) == {run.id for number, run in enumerate(runs) if number % 4}
    after = [get(store, run.id) for run in runs]
    assert {run.state for run in after} == {RunState.SUCCEEDED}
    assert [run.started_at for run in after] == [run.started_at for run in ends]
    told = store.read(lambda tx: tx.get_run_rows(Attempt, [run.id for run in runs]))
    assert [told[run.id] for run in runs] == [(attempt,) for _, attempt in answers]


def test_a_large_batch_may_settle_in_different_states(store: Store) -> None:
    runs = entries()
    add(store, *runs)
    ways = (RunState.SUCCEEDED, RunState.READY, RunState.FAILED, RunState.PARKED)
    answers = [
        ended(
            replace(run, fire_at=NOON + LEASE + number * SECOND),
            ways[number % 4],
            error=f"error {number % 7}",
            reason="'; \\ \" \N{SNOWMAN}",
        )
        for number, run in enumerate(leased(store, *runs))
    ]
    assert settle(store, *answers) == {run.id for run in runs}
    for number, run in enumerate(runs):
        found, (said, _) = get(store, run.id), answers[number]
        waits = said.fire_at if said.state is RunState.READY else run.fire_at
        assert (found.state, found.error, found.reason) == (said.state, said.error, said.reason)
        assert (found.fire_at, found.attempts, found.finished_at) == (waits, 1, said.finished_at)
