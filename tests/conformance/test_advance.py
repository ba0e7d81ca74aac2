"""The ordinary step of many schedules at once: a run each where they stood, and on to the next instant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.builders import (
    NOON,
    add,
    get,
    get_due,
    make_run,
    make_schedule,
    make_standing,
    new_id,
    put,
    revised,
)
from timewright.core.decision import Source
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.policies import Overlap
from timewright.core.run import Run, RunState
from timewright.core.target import Handoff
from timewright.errors import Conflict
from timewright.ports import Advance, Due, Store
from timewright.stores.sqlite_together import FEW

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


def standing_at_noon(store: Store, many: int = 1, **fields: Any) -> list[Due]:
    """So many schedules that are due at noon, as the store has them."""
    rows = [
        revised(
            make_schedule(f"s{n}-{fields}", **fields),
            make_standing(
                cursor=NOON - HOUR, next_at=NOON, source=Source.BASELINE_INTERVAL, runs=4, failures=2
            ),
        )
        for n in range(many)
    ]
    put(store, *rows)
    return [get_due(store, row.schedule.id) for row in rows]


def step(due: Due) -> Advance:
    return Advance(due, new_id(), NOON + DAY)


def started(due: Due) -> Advance:
    """A step whose run starts at once."""
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
        alone=schedule.overlap is not Overlap.ALLOW,
        created_at=LATER,
        previous=due.last_run,
        fence=1,
        lease_id=f"lease-{run_id}",
        holder="me",
        leased_at=LATER,
        lease_until=LATER + MINUTE,
    )
    return Advance(due, run_id, NOON + DAY, run)


def advance(store: Store, *rows: Advance) -> set[str]:
    return store.write(lambda tx: tx.advance(rows, now=LATER))


@pytest.mark.parametrize("many", [1, FEW, 3 * FEW])
def test_each_becomes_a_ready_run_and_its_schedule_moves_on(store: Store, many: int) -> None:
    steps = [step(due) for fields in KINDS for due in standing_at_noon(store, many, **fields)]
    assert advance(store, *steps) == {row.run_id for row in steps}
    for row in steps:
        schedule, stood = row.due.schedule, row.due.standing
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
            gates=schedule.gates,
            priority=schedule.priority,
            alone=schedule.overlap is not Overlap.ALLOW,
            handoff=isinstance(schedule.target, Handoff),
            created_at=LATER,
        )
        after = get_due(store, schedule.id)
        assert (after.standing.cursor, after.standing.next_at, after.standing.wake_at) == (
            NOON,
            NOON + DAY,
            NOON + DAY,
        )
        assert (after.standing.runs, after.standing.failures) == (stood.runs + 1, 2)
        assert after.last_run == row.run_id


@pytest.mark.parametrize("many", [1, FEW, 3 * FEW])
def test_one_that_starts_at_once_has_its_first_lease_beside_others_that_wait(store: Store, many: int) -> None:
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"namespace": "elsewhere"},
        {"priority": 7, "overlap": Overlap.ALLOW},
    )
    steps = [started(due) for fields in kinds for due in standing_at_noon(store, many, **fields)]
    waits = [step(due) for due in standing_at_noon(store, many, priority=3)]
    assert advance(store, *steps, *waits) == {row.run_id for row in (*steps, *waits)}
    for row in steps:
        assert get(store, row.run_id) == row.started
        after = get_due(store, row.due.schedule.id)
        assert (after.standing.cursor, after.standing.next_at) == (NOON, NOON + DAY)
        assert after.last_run == row.run_id
    assert {get(store, row.run_id).state for row in waits} == {RunState.READY}
    held = store.read(lambda tx: tx.leased_runs(holder="me"))
    assert {run.id for run in held} == {row.run_id for row in steps}


@pytest.mark.parametrize("taken", [step, started])
@pytest.mark.parametrize("many", [2, 2 * FEW])
def test_an_occurrence_that_is_there_already_stays_and_its_schedule_moves_on(
    store: Store, many: int, taken: Callable[[Due], Advance]
) -> None:
    there, *others = standing_at_noon(store, many)
    before = make_run(there.schedule.id, planned_at=NOON, state=RunState.SUCCEEDED)
    add(store, before)
    steps = [taken(due) for due in (there, *others)]
    assert advance(store, *steps) == {row.run_id for row in steps[1:]}
    assert get(store, before.id) == before
    after = get_due(store, there.schedule.id)
    assert (after.standing.next_at, after.last_run) == (NOON + DAY, there.last_run)


def test_a_run_names_the_one_before_it(store: Store) -> None:
    (due,) = standing_at_noon(store, overlap=Overlap.ALLOW)
    first = step(due)
    advance(store, first)
    second = step(get_due(store, due.schedule.id))
    advance(store, second)
    assert get(store, second.run_id).previous == first.run_id
    assert get(store, second.run_id).planned_at == NOON + DAY


def test_whoever_has_one_in_flight_is_refused_and_nobody_moves(store: Store) -> None:
    busy, idle = standing_at_noon(store, 2)
    add(store, make_run(busy.schedule.id, planned_at=NOON - HOUR))
    with pytest.raises(Conflict):
        advance(store, step(idle), step(busy))
    assert [get_due(store, due.schedule.id).standing for due in (busy, idle)] == [
        busy.standing,
        idle.standing,
    ]


def test_nobody_to_advance_is_nothing_to_write(store: Store) -> None:
    assert advance(store) == set()
