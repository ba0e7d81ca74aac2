"""Which ready runs start now, and a reason for everyone who waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import NOON
from timewright.core.leasing import Gate, Waits, order, plan_leases
from timewright.core.moments import MINUTE, SECOND
from timewright.core.run import Run, RunState


def run(key: str = "run_1", **fields: Any) -> Run:
    given = {
        "id": key,
        "planned_at": NOON,
        "fire_at": NOON,
        "state": RunState.READY,
        "created_at": NOON,
        **fields,
    }
    return Run(**given)


def test_smaller_priority_first_then_the_older_then_by_id() -> None:
    runs = [
        run("d", priority=200),
        run("c", priority=50, planned_at=NOON + SECOND),
        run("b", priority=50),
        run("a", priority=50),
        run("e", priority=0, planned_at=NOON + MINUTE),
    ]
    plan = plan_leases(runs, gates={}, now=NOON + MINUTE)
    assert [one.id for one in plan.leases] == ["e", "a", "b", "c", "d"]


def test_waiting_raises_a_run_step_by_step_where_a_queue_says_so() -> None:
    old = run("old", priority=200, queue="q")
    new = run("new", priority=100, queue="q", planned_at=NOON + 200 * MINUTE)
    now = NOON + 200 * MINUTE
    plain = plan_leases([old, new], gates={}, now=now)
    aged = plan_leases([old, new], gates={}, ageing={("default", "q"): MINUTE}, now=now)
    assert [one.id for one in plain.leases] == ["new", "old"]
    assert [one.id for one in aged.leases] == ["old", "new"]
    assert order(old, ageing=MINUTE, now=NOON - MINUTE) == order(old)


def test_everyone_who_waits_has_a_reason() -> None:
    runs = [
        run("live", state=RunState.LEASED, lease_until=NOON + MINUTE),
        run("parked", state=RunState.PARKED),
        run("held", state=RunState.HELD),
        run("later", fire_at=NOON + SECOND),
        run("over", state=RunState.SUCCEEDED),
        run("full", gates=("limit:default/api",)),
        run("first"),
        run("second"),
    ]
    plan = plan_leases(runs, gates={"limit:default/api": Gate(2, held=2)}, capacity=1, now=NOON)
    assert [one.id for one in plan.leases] == ["first"]
    assert {one.run_id: (one.reason, one.gate, one.until) for one in plan.waiting} == {
        "live": (Waits.LEASED, "", NOON + MINUTE),
        "parked": (Waits.PARKED, "", None),
        "held": (Waits.HELD, "", None),
        "later": (Waits.BACKOFF, "", NOON + SECOND),
        "over": (Waits.TERMINAL, "", None),
        "full": (Waits.CEILING, "limit:default/api", None),
        "second": (Waits.CAPACITY, "", None),
    }


def test_a_ceiling_nobody_can_read_is_a_closed_one() -> None:
    (waiting,) = plan_leases([run(gates=("limit:default/gone",))], gates={}, now=NOON).waiting
    assert (waiting.reason, waiting.gate) == (Waits.CEILING, "limit:default/gone")


def test_a_run_blocked_by_one_gate_takes_nothing_from_another() -> None:
    gates = {"a": Gate(1), "b": Gate(0)}
    plan = plan_leases([run("both", gates=("a", "b")), run("one", gates=("a",))], gates=gates, now=NOON)
    assert [one.id for one in plan.leases] == ["one"]


def test_a_gate_named_twice_counts_once() -> None:
    plan = plan_leases([run("x", gates=("a", "a")), run("y", gates=("a",))], gates={"a": Gate(2)}, now=NOON)
    assert len(plan.leases) == 2


def test_a_limit_that_was_lowered_is_never_negative() -> None:
    assert Gate(1, held=5).free == 0
    assert plan_leases([run()], gates={}, capacity=-3, now=NOON).leases == ()


gate_names = st.sampled_from(["a", "b", "c"])
some_runs = st.lists(
    st.builds(
        run,
        st.uuids().map(str),
        priority=st.integers(0, 300),
        gates=st.lists(gate_names, max_size=3, unique=True).map(tuple),
        state=st.sampled_from(RunState),
        planned_at=st.integers(-100, 100).map(lambda n: NOON + n * SECOND),
        fire_at=st.integers(-5, 5).map(lambda n: NOON + n * SECOND),
        lease_until=st.none() | st.just(NOON),
    ),
    max_size=30,
    unique_by=lambda one: one.id,
)
some_gates = st.dictionaries(gate_names, st.builds(Gate, st.integers(0, 6), st.integers(0, 6)))


@given(runs=some_runs, gates=some_gates, capacity=st.none() | st.integers(-1, 10), aged=st.booleans())
def test_no_plan_passes_a_gate_or_the_capacity_and_nobody_is_forgotten(
    runs: list[Run], gates: dict[str, Gate], capacity: int | None, aged: bool
) -> None:
    ageing = {("default", ""): timedelta(seconds=7)} if aged else None
    plan = plan_leases(runs, gates=gates, capacity=capacity, ageing=ageing, now=NOON)
    assert plan == plan_leases(list(reversed(runs)), gates=gates, capacity=capacity, ageing=ageing, now=NOON)
    for name in ("a", "b", "c"):
        granted = sum(name in one.gates for one in plan.leases)
        assert granted <= gates.get(name, Gate(0)).free
    assert capacity is None or len(plan.leases) <= max(capacity, 0)
    assert all(one.state is RunState.READY and one.fire_at <= NOON for one in plan.leases)
    named = [one.id for one in plan.leases] + [one.run_id for one in plan.waiting]
    assert sorted(named) == sorted(one.id for one in runs)
    step = None if ageing is None else ageing["default", ""]
    ranks = [order(one, ageing=step, now=NOON) for one in plan.leases]
    assert ranks == sorted(ranks)


@given(runs=some_runs, gates=some_gates)
def test_nobody_waits_at_a_ceiling_that_still_has_room(runs: list[Run], gates: dict[str, Gate]) -> None:
    plan = plan_leases(runs, gates=gates, now=NOON)
    left = {name: gate.free - sum(name in one.gates for one in plan.leases) for name, gate in gates.items()}
    by_id = {one.id: one for one in runs}
    for waiting in plan.waiting:
        if waiting.reason is Waits.CEILING:
            assert any(left.get(name, 0) < 1 for name in by_id[waiting.run_id].gates)
