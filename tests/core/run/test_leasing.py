"""Lease planning: which ready runs start now, and a reason for each that waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.schedule_simulation import NOON
from timewright.core.moments import MINUTE, SECOND
from timewright.core.run.leasing import LimitUsage, WaitReason, lease_order, plan_leases
from timewright.core.run.run import Run, RunState


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
    plan = plan_leases(runs, limits={}, now=NOON + MINUTE)
    assert [one.id for one in plan.leases] == ["e", "a", "b", "c", "d"]


def test_ageing_raises_the_priority_of_a_waiting_run() -> None:
    old = run("old", priority=200, queue="q")
    new = run("new", priority=100, queue="q", planned_at=NOON + 200 * MINUTE)
    now = NOON + 200 * MINUTE
    plain = plan_leases([old, new], limits={}, now=now)
    aged = plan_leases([old, new], limits={}, ageing={("default", "q"): MINUTE}, now=now)
    assert [one.id for one in plain.leases] == ["new", "old"]
    assert [one.id for one in aged.leases] == ["old", "new"]
    assert lease_order(old, ageing=MINUTE, now=NOON - MINUTE) == lease_order(old)


def test_every_waiting_run_has_a_reason() -> None:
    runs = [
        run("live", state=RunState.LEASED, lease_until=NOON + MINUTE),
        run("parked", state=RunState.PARKED),
        run("held", state=RunState.HELD),
        run("later", fire_at=NOON + SECOND),
        run("over", state=RunState.SUCCEEDED),
        run("full", limit_keys=("limit:default/api",)),
        run("first"),
        run("second"),
    ]
    plan = plan_leases(runs, limits={"limit:default/api": LimitUsage(2, held=2)}, capacity=1, now=NOON)
    assert [one.id for one in plan.leases] == ["first"]
    assert {one.run_id: (one.reason, one.blocked_by, one.until) for one in plan.waiting} == {
        "live": (WaitReason.LEASED, "", NOON + MINUTE),
        "parked": (WaitReason.PARKED, "", None),
        "held": (WaitReason.HELD, "", None),
        "later": (WaitReason.BACKOFF, "", NOON + SECOND),
        "over": (WaitReason.TERMINAL, "", None),
        "full": (WaitReason.LIMIT, "limit:default/api", None),
        "second": (WaitReason.CAPACITY, "", None),
    }


def test_an_unreadable_limit_counts_as_full() -> None:
    (waiting,) = plan_leases([run(limit_keys=("limit:default/gone",))], limits={}, now=NOON).waiting
    assert (waiting.reason, waiting.blocked_by) == (WaitReason.LIMIT, "limit:default/gone")


def test_a_run_blocked_by_one_limit_takes_nothing_from_another() -> None:
    limits = {"a": LimitUsage(1), "b": LimitUsage(0)}
    plan = plan_leases(
        [run("both", limit_keys=("a", "b")), run("one", limit_keys=("a",))], limits=limits, now=NOON
    )
    assert [one.id for one in plan.leases] == ["one"]


def test_a_limit_named_twice_counts_once() -> None:
    plan = plan_leases(
        [run("x", limit_keys=("a", "a")), run("y", limit_keys=("a",))], limits={"a": LimitUsage(2)}, now=NOON
    )
    assert len(plan.leases) == 2


def test_a_limit_that_was_lowered_is_never_negative() -> None:
    assert LimitUsage(1, held=5).free == 0
    assert plan_leases([run()], limits={}, capacity=-3, now=NOON).leases == ()


limit_names = st.sampled_from(["a", "b", "c"])
some_runs = st.lists(
    st.builds(
        run,
        st.uuids().map(str),
        priority=st.integers(0, 300),
        limit_keys=st.lists(limit_names, max_size=3, unique=True).map(tuple),
        state=st.sampled_from(RunState),
        planned_at=st.integers(-100, 100).map(lambda n: NOON + n * SECOND),
        fire_at=st.integers(-5, 5).map(lambda n: NOON + n * SECOND),
        lease_until=st.none() | st.just(NOON),
    ),
    max_size=30,
    unique_by=lambda one: one.id,
)
some_limits = st.dictionaries(limit_names, st.builds(LimitUsage, st.integers(0, 6), st.integers(0, 6)))


@given(runs=some_runs, limits=some_limits, capacity=st.none() | st.integers(-1, 10), aged=st.booleans())
def test_no_plan_exceeds_a_limit_or_the_capacity_and_every_run_is_in_it(
    runs: list[Run], limits: dict[str, LimitUsage], capacity: int | None, aged: bool
) -> None:
    ageing = {("default", ""): timedelta(seconds=7)} if aged else None
    plan = plan_leases(runs, limits=limits, capacity=capacity, ageing=ageing, now=NOON)
    assert plan == plan_leases(
        list(reversed(runs)), limits=limits, capacity=capacity, ageing=ageing, now=NOON
    )
    for name in ("a", "b", "c"):
        granted = sum(name in one.limit_keys for one in plan.leases)
        assert granted <= limits.get(name, LimitUsage(0)).free
    assert capacity is None or len(plan.leases) <= max(capacity, 0)
    assert all(one.state is RunState.READY and one.fire_at <= NOON for one in plan.leases)
    named = [one.id for one in plan.leases] + [one.run_id for one in plan.waiting]
    assert sorted(named) == sorted(one.id for one in runs)
    step = None if ageing is None else ageing["default", ""]
    ranks = [lease_order(one, ageing=step, now=NOON) for one in plan.leases]
    assert ranks == sorted(ranks)


@given(runs=some_runs, limits=some_limits)
def test_no_run_waits_for_a_limit_with_free_capacity(runs: list[Run], limits: dict[str, LimitUsage]) -> None:
    plan = plan_leases(runs, limits=limits, now=NOON)
    left = {
        name: limit.free - sum(name in one.limit_keys for one in plan.leases)
        for name, limit in limits.items()
    }
    by_id = {one.id: one for one in runs}
    for waiting in plan.waiting:
        if waiting.reason is WaitReason.LIMIT:
            assert any(left.get(name, 0) < 1 for name in by_id[waiting.run_id].limit_keys)
