"""On-time admission of many schedules: one run each, then the next instant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.support.builders import (
    NOON,
    add,
    get,
    get_record,
    make_progress,
    make_run,
    make_schedule,
    new_id,
    put,
    schedule_write,
)
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.policies.policies import Overlap
from timewright.core.run.needs import needs_of_schedule
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.decision import Source
from timewright.core.target import Handoff
from timewright.errors import Conflict
from timewright.ports import OnTimeStep, ScheduleRecord, Store
from timewright.ports.rows import LeasedRuns
from timewright.stores.sqlite.executor import MIN_BATCH_ROWS

LATER = NOON + MINUTE
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"namespace": "elsewhere"},
    {"queue": "mail"},
    {"queue": "mail", "limits": ("b", "a")},
    {"priority": 7},
    {"overlap": Overlap.ALLOW},
    {"target": Handoff()},
)


def schedules_due_at_noon(store: Store, many: int = 1, **fields: Any) -> list[ScheduleRecord]:
    """Add schedules that are due at noon and return their records."""
    rows = [
        schedule_write(
            make_schedule(f"s{n}-{fields}", **fields),
            make_progress(
                cursor=NOON - HOUR, next_at=NOON, source=Source.BASELINE_INTERVAL, runs=4, failures=2
            ),
        )
        for n in range(many)
    ]
    put(store, *rows)
    return [get_record(store, row.schedule.id) for row in rows]


def step(due: ScheduleRecord) -> OnTimeStep:
    return OnTimeStep(due, new_id(), NOON + DAY)


def started(due: ScheduleRecord) -> OnTimeStep:
    """A step whose run is leased at once."""
    schedule, run_id = due.schedule, new_id()
    run = Run(
        id=run_id,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        planned_at=NOON,
        fire_at=NOON,
        state=RunState.LEASED,
        source=Source.BASELINE_INTERVAL,
        revision=1,
        priority=schedule.priority,
        exclusive=schedule.overlap is not Overlap.ALLOW,
        created_at=LATER,
        previous=due.last_run,
        fence=1,
        lease_id=f"lease-{run_id}",
        holder="me",
        leased_at=LATER,
        lease_until=LATER + MINUTE,
    )
    return OnTimeStep(due, run_id, NOON + DAY, run)


def advance(store: Store, *rows: OnTimeStep) -> set[str]:
    return store.write(lambda tx: tx.advance_schedules(rows, now=LATER))


@pytest.mark.parametrize("many", [1, MIN_BATCH_ROWS, 3 * MIN_BATCH_ROWS])
def test_each_on_time_schedule_gets_a_ready_run_and_moves_on(store: Store, many: int) -> None:
    steps = [step(due) for fields in KINDS for due in schedules_due_at_noon(store, many, **fields)]
    assert advance(store, *steps) == {row.run_id for row in steps}
    for row in steps:
        schedule, stood = row.record.schedule, row.record.progress
        assert get(store, row.run_id) == Run(
            id=row.run_id,
            namespace=schedule.namespace,
            schedule_id=schedule.id,
            planned_at=NOON,
            fire_at=NOON,
            state=RunState.READY,
            source=Source.BASELINE_INTERVAL,
            revision=1,
            queue=schedule.queue or "",
            limit_keys=schedule.limit_keys,
            needs=needs_of_schedule(schedule),
            priority=schedule.priority,
            exclusive=schedule.overlap is not Overlap.ALLOW,
            handoff=isinstance(schedule.target, Handoff),
            created_at=LATER,
        )
        after = get_record(store, schedule.id)
        assert (after.progress.cursor, after.progress.next_at, after.progress.wake_at) == (
            NOON,
            NOON + DAY,
            NOON + DAY,
        )
        assert (after.progress.runs, after.progress.failures) == (stood.runs + 1, 2)
        assert after.last_run == row.run_id


@pytest.mark.parametrize("many", [1, MIN_BATCH_ROWS, 3 * MIN_BATCH_ROWS])
def test_leased_and_ready_runs_are_inserted_together(store: Store, many: int) -> None:
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"namespace": "elsewhere"},
        {"priority": 7, "overlap": Overlap.ALLOW},
    )
    steps = [started(due) for fields in kinds for due in schedules_due_at_noon(store, many, **fields)]
    waits = [step(due) for due in schedules_due_at_noon(store, many, priority=3)]
    assert advance(store, *steps, *waits) == {row.run_id for row in (*steps, *waits)}
    for row in steps:
        assert get(store, row.run_id) == row.started_run
        after = get_record(store, row.record.schedule.id)
        assert (after.progress.cursor, after.progress.next_at) == (NOON, NOON + DAY)
        assert after.last_run == row.run_id
    assert {get(store, row.run_id).state for row in waits} == {RunState.READY}
    held = store.read(lambda tx: tx.select(LeasedRuns(holder="me")))
    assert {run.id for run in held} == {row.run_id for row in steps}


@pytest.mark.parametrize("taken", [step, started])
@pytest.mark.parametrize("many", [2, 2 * MIN_BATCH_ROWS])
def test_an_occurrence_that_is_there_already_stays_and_its_schedule_moves_on(
    store: Store, many: int, taken: Callable[[ScheduleRecord], OnTimeStep]
) -> None:
    there, *others = schedules_due_at_noon(store, many)
    before = make_run(there.schedule.id, planned_at=NOON, state=RunState.SUCCEEDED)
    add(store, before)
    steps = [taken(due) for due in (there, *others)]
    assert advance(store, *steps) == {row.run_id for row in steps[1:]}
    assert get(store, before.id) == before
    after = get_record(store, there.schedule.id)
    assert (after.progress.next_at, after.last_run) == (NOON + DAY, there.last_run)


def test_a_run_stores_its_previous_run(store: Store) -> None:
    (due,) = schedules_due_at_noon(store, overlap=Overlap.ALLOW)
    first = step(due)
    advance(store, first)
    second = step(get_record(store, due.schedule.id))
    advance(store, second)
    assert get(store, second.run_id).previous == first.run_id
    assert get(store, second.run_id).planned_at == NOON + DAY


def test_a_second_run_in_flight_is_refused_and_no_schedule_moves(store: Store) -> None:
    busy, idle = schedules_due_at_noon(store, 2)
    add(store, make_run(busy.schedule.id, planned_at=NOON - HOUR))
    with pytest.raises(Conflict):
        advance(store, step(idle), step(busy))
    assert [get_record(store, due.schedule.id).progress for due in (busy, idle)] == [
        busy.progress,
        idle.progress,
    ]


def test_advancing_no_schedules_writes_nothing(store: Store) -> None:
    assert advance(store) == set()
