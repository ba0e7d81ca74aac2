"""Workflow runs: counts of steps that add up, the runs that steps became, leases that are passed on."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from tests.conformance.builders import (
    LEASE,
    NOON,
    TICK,
    add,
    ended,
    get,
    leased,
    make_run,
    settle,
)
from tests.conformance.databases import Database
from tests.conformance.together import all_at_once, held_open, meanwhile
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run import TERMINAL, Run, RunState
from timewright.ports import Prune, Store
from timewright.ports.steps import StepRow, TakeOver

MANY = 120
FREE = [state for state in RunState if state is not RunState.LEASED]


def step(name: str = "", parent: str = "run_1", **fields: Any) -> StepRow:
    return StepRow(parent=parent, step=name, **fields)


def count(store: Store, *rows: StepRow) -> list[StepRow]:
    return list(store.write(lambda tx: tx.add_to_steps(rows)))


def steps(store: Store, parent: str = "run_1", names: Iterable[str] | None = None) -> dict[str, StepRow]:
    return dict(store.read(lambda tx: tx.get_steps(parent, names)))


def whole(store: Store, *parents: str) -> dict[str, StepRow]:
    return dict(store.write(lambda tx: tx.hold_wholes(parents)))


def forget(store: Store, *parents: str) -> None:
    store.write(lambda tx: tx.delete_steps(parents))


def children(store: Store, parent: str, **which: Any) -> list[Run]:
    return list(store.read(lambda tx: tx.child_runs(parent, **which)))


def in_lanes(store: Store, first: str, last: str, *, at: datetime = NOON) -> list[Run]:
    return list(store.read(lambda tx: tx.lane_runs(at, first=first, last=last)))


def prolong(store: Store, run: Run, **terms: Any) -> bool:
    moved: bool = store.write(lambda tx: tx.prolong(run.id, **terms))
    return moved


def pass_on(store: Store, *rows: TakeOver) -> set[str]:
    return set(store.write(lambda tx: tx.take_over(rows)))


def one_leased(store: Store, **fields: Any) -> Run:
    run = make_run(**fields)
    add(store, run)
    return leased(store, run)[0]


def reclaimed(store: Store, *, now: datetime) -> list[str]:
    return [run.id for run in store.write(lambda tx: tx.expired_leases(now=now, limit=10))]


def whole_and_step(tx: Any) -> tuple[StepRow, dict[str, StepRow]]:
    """The whole once it is ours, and what its steps say from then on."""
    held = tx.hold_wholes(["run_1"])["run_1"]
    return held, tx.get_steps("run_1", ["a"])


def test_counts_of_a_step_rise_and_fall_and_what_comes_of_it_is_given_back(store: Store) -> None:
    first = step(
        "a", met=1, live=2, parked=3, failed=4, cancelled=5, round=6, state="started", run_id="run_2"
    )
    assert count(store, first) == [first]
    more = step("a", met=1, live=-2, parked=-1, failed=2, cancelled=3, round=1)
    after = replace(first, met=2, live=0, parked=2, failed=6, cancelled=8, round=7)
    assert count(store, more) == [after]
    assert steps(store) == {"a": after}


def test_a_state_and_a_run_are_set_where_they_are_named_and_stay_where_they_are_not(store: Store) -> None:
    count(store, step("a", state="started", run_id="run_2"))
    assert count(store, step("a", state="failed")) == [step("a", state="failed", run_id="run_2")]
    assert count(store, step("a", run_id="run_3")) == [step("a", state="failed", run_id="run_3")]
    assert count(store, step("a")) == [step("a", state="failed", run_id="run_3")]


def test_steps_of_many_runs_are_counted_at_once_in_the_order_they_are_told(store: Store) -> None:
    rows = [step(f"s{n:03}", f"run_{n % 2}", met=n) for n in reversed(range(MANY))]
    assert count(store, *rows) == rows
    assert count(store, *rows) == [replace(row, met=2 * row.met) for row in rows]
    assert steps(store, "run_1") == {row.step: replace(row, met=2 * row.met) for row in rows[::2]}
    assert count(store) == []


def test_a_step_that_is_told_of_twice_at_once_is_counted_twice_and_given_back_once(store: Store) -> None:
    told = [step("a", met=1, state="started"), step("b", met=1), step("a", met=2, run_id="run_2"), step("a")]
    expected = [step("a", met=3, state="started", run_id="run_2"), step("b", met=1)]
    assert count(store, *told) == expected
    assert count(store, *told[:1], step("a", state="failed")) == [
        replace(expected[0], met=4, state="failed"),
    ]
    assert list(steps(store).values())[1:] == expected[1:]


def test_of_many_who_count_at_once_each_is_given_another_sum(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    told = [step("a", met=1), step("b", live=2)]
    answers = all_at_once([partial(count, stores[n % 3], *told) for n in range(9)])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert sorted(rows[0].met for rows in answers) == list(range(1, 10))
    assert steps(stores[0]) == {"a": step("a", met=9), "b": step("b", live=18)}


def test_steps_are_read_by_name_or_all_and_the_whole_is_the_empty_name(store: Store) -> None:
    rows = {name: step(name, met=1) for name in ("", "a", "b")}
    count(store, *rows.values(), step("a", "run_2"))
    assert steps(store) == rows
    assert steps(store, names=["b", "", "b", "nobody"]) == {"": rows[""], "b": rows["b"]}
    assert steps(store, names=[]) == steps(store, "nobody") == steps(store, "nobody", ["a"]) == {}


def test_the_steps_of_some_runs_are_forgotten_and_those_of_others_stay(store: Store) -> None:
    count(store, *(step(name, f"run_{n}", met=1) for name in ("", "a") for n in range(MANY)))
    for _ in range(2):
        forget(store, *(f"run_{n}" for n in range(1, MANY)), "nobody")
        assert steps(store, "run_0") == {name: step(name, "run_0", met=1) for name in ("", "a")}
        assert steps(store, "run_1") == steps(store, f"run_{MANY - 1}") == {}
    forget(store)
    assert len(steps(store, "run_0")) == 2
    assert count(store, step("a", met=1)) == [step("a", met=1)]


def test_steps_go_with_the_run_they_are_of(store: Store) -> None:
    old = make_run(state=RunState.SUCCEEDED, finished_at=NOON)
    add(store, old)
    count(store, step("", old.id), step("a", old.id), step("a", "run_2"))
    assert store.write(lambda tx: tx.prune(Prune(keep_runs=0))) == 1
    assert steps(store, old.id) == {}
    assert steps(store, "run_2") == {"a": step("a", "run_2")}


def test_wholes_are_given_by_their_run_and_steps_are_not_among_them(store: Store) -> None:
    wholes = {f"run_{n}": step("", f"run_{n}", live=n) for n in range(MANY)}
    count(store, *wholes.values(), step("a", "run_0"), step("a", "run_x"))
    assert whole(store, *wholes, *wholes, "run_x", "nobody") == wholes
    assert whole(store, "run_7") == {"run_7": wholes["run_7"]}
    assert whole(store) == whole(store, "nobody") == {}


def test_whoever_holds_a_whole_is_waited_for_and_what_it_counted_is_seen(database: Database) -> None:
    one, two = database.open(), database.open()
    count(one, step(live=2), step(live=2, parent="run_2"))
    with (
        held_open(
            one,
            lambda tx: tx.hold_wholes(["run_1"]),
            lambda tx, _: tx.add_to_steps([step("a", met=1), step(live=-1)]),
        ) as held,
        meanwhile(lambda: two.write(whole_and_step)) as second,
    ):
        assert held.first == {"run_1": step(live=2)}
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() == (step(live=1), {"a": step("a", met=1)})


def test_wholes_in_any_order_are_no_deadlock(database: Database) -> None:
    one, two = database.open(), database.open()
    names = [f"run_{n:02}" for n in range(20)]
    count(one, *(step("", name) for name in names))
    for _ in range(3):
        with meanwhile(lambda: whole(one, *names)), meanwhile(lambda: whole(two, *reversed(names))):
            pass


def test_the_runs_of_steps_are_told_in_the_order_they_came(store: Store) -> None:
    runs = [
        make_run(parent="run_1", lane=f"run_1/{lane}", created_at=NOON + n * MINUTE)
        for n, lane in [(0, "b"), (0, "c[10]"), (0, "c[2]"), (1, "a"), (2, "a~2")]
    ]
    add(store, *reversed(runs), make_run(parent="run_2"), make_run())
    assert children(store, "run_1") == runs
    assert children(store, "nobody") == []


def test_those_that_are_not_over_are_told_alone_when_asked(store: Store) -> None:
    runs = [make_run(parent="run_1", lane=f"run_1/{state}", state=state) for state in sorted(FREE)]
    add(store, *runs)
    (held,) = leased(store, *(run for run in runs if run.state is RunState.READY))
    now = sorted([held, *(run for run in runs if run.state is not RunState.READY)], key=lambda run: run.lane)
    assert children(store, "run_1") == now
    assert children(store, "run_1", unfinished=True) == [run for run in now if run.state not in TERMINAL]


def test_a_run_without_a_parent_is_nobodys_child(store: Store) -> None:
    add(store, make_run(), make_run("sch_1"))
    assert children(store, "") == children(store, "", unfinished=True) == []


def test_runs_are_found_by_their_lanes_from_the_first_up_to_before_the_last(store: Store) -> None:
    lanes = ["B", "a[0]", "a[10]", "a[2]", "a\\", "b", "é"]
    runs = [make_run(lane=lane) for lane in lanes]
    other = make_run(lane="a[1]", planned_at=NOON + TICK)
    add(store, *reversed(runs), other, make_run("sch_1", lane="a[0]"))
    assert in_lanes(store, "A", "\U0010ffff") == runs
    assert in_lanes(store, "a[", "a\\") == runs[1:4]
    assert in_lanes(store, "a[0]", "a[2]") == runs[1:3]
    assert in_lanes(store, "b", "a") == in_lanes(store, "a[0]", "a[0]") == in_lanes(store, "c", "d") == []
    assert in_lanes(store, "a", "b", at=NOON + TICK) == [other]
    assert in_lanes(store, "a", "b", at=NOON - TICK) == []


def test_many_items_of_a_step_are_found_by_their_lanes_at_once(store: Store) -> None:
    runs = [make_run(lane=f"run_1/a[{n:03}]", parent="run_1") for n in range(MANY)]
    add(store, *reversed(runs))
    assert in_lanes(store, "run_1/a[", "run_1/a\\") == runs
    assert children(store, "run_1") == runs


def test_the_end_of_a_lease_is_moved_and_it_began_when_an_instant_says_so(store: Store) -> None:
    held = one_leased(store)
    for until in (NOON + HOUR, NOON + HOUR, NOON + MINUTE):
        assert prolong(store, held, until=until) is True
        assert get(store, held.id) == replace(held, lease_until=until)
    began = replace(held, lease_until=NOON + HOUR, started_at=NOON + TICK)
    assert prolong(store, held, until=NOON + HOUR, started_at=NOON + TICK) is True
    assert get(store, held.id) == began
    assert prolong(store, held, until=NOON + 2 * HOUR) is True
    assert get(store, held.id) == replace(began, lease_until=NOON + 2 * HOUR)


def test_a_lease_that_was_prolonged_is_not_taken_back_before_its_new_end(store: Store) -> None:
    held, other = one_leased(store), one_leased(store)
    prolong(store, held, until=NOON + HOUR)
    assert reclaimed(store, now=NOON + HOUR - TICK) == [other.id]
    assert held.id in reclaimed(store, now=NOON + HOUR)


def test_nothing_is_prolonged_that_is_not_leased(store: Store) -> None:
    runs = [make_run(state=state) for state in FREE]
    add(store, *runs)
    for run in [*runs, make_run()]:
        assert prolong(store, run, until=NOON + HOUR, started_at=NOON) is False, run.state
    assert store.read(lambda tx: tx.get_runs([run.id for run in runs])) == {run.id: run for run in runs}


def test_a_run_that_was_asked_to_stop_keeps_the_end_it_has(store: Store) -> None:
    held = one_leased(store)
    store.write(lambda tx: tx.ask_to_cancel([(held.id, NOON + HOUR)], at=NOON, reason="by_hand"))
    asked = get(store, held.id)
    assert prolong(store, held, until=NOON + 2 * HOUR, started_at=NOON) is False
    assert get(store, held.id) == asked


def test_a_lease_is_passed_on_with_its_fence_and_all_that_its_new_holder_says(store: Store) -> None:
    held = one_leased(store, missed=2)
    taken = replace(
        held,
        holder="workflow",
        started_at=NOON + TICK,
        lease_until=NOON + HOUR,
        payload={"pin": 1},
        made_by="ada",
        missed=0,
    )
    assert pass_on(store, TakeOver(run=taken, was=held.holder)) == {held.id}
    assert get(store, held.id) == taken
    assert reclaimed(store, now=NOON + LEASE) == []
    # Whoever launched it may still answer for it: the fence is the same.
    assert settle(store, ended(held)) == {held.id}


def test_a_lease_passes_from_one_holder_once(store: Store) -> None:
    held = one_leased(store)
    taken = replace(held, holder="workflow")
    assert pass_on(store, TakeOver(run=taken, was=held.holder)) == {held.id}
    assert pass_on(store, TakeOver(run=replace(held, holder="late"), was=held.holder)) == set()
    assert get(store, held.id) == taken


def test_a_lease_that_ended_is_not_passed_on(store: Store) -> None:
    for state in FREE:
        held = one_leased(store)
        settle(store, ended(held, state))
        after = get(store, held.id)
        for known in (held, after):
            assert pass_on(store, TakeOver(run=replace(known, holder="late"), was=known.holder)) == set()
        assert get(store, held.id) == after


def test_of_many_leases_those_that_are_still_held_so_are_passed_on(store: Store) -> None:
    runs = [make_run() for _ in range(MANY)]
    add(store, *runs)
    held = leased(store, *runs)
    rows = [TakeOver(run=replace(run, holder=f"w{n}"), was=run.holder) for n, run in enumerate(held)]
    wrong = [
        replace(rows[0], was="somebody"),
        replace(rows[1], run=replace(rows[1].run, fence=2)),
        TakeOver(run=replace(make_run(), holder="w", fence=1), was=held[0].holder),
    ]
    assert pass_on(store, *wrong, *rows[2:]) == {run.id for run in held[2:]}
    found = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert list(found.values()) == [*held[:2], *(row.run for row in rows[2:])]
    assert pass_on(store) == set()


def test_of_many_who_take_a_lease_over_one_gets_it(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    held = one_leased(stores[0])
    rows = [TakeOver(run=replace(held, holder=f"w{n}"), was=held.holder) for n in range(9)]
    answers = all_at_once([partial(pass_on, stores[n % 3], row) for n, row in enumerate(rows)])
    assert sorted(map(len, answers)) == [0] * 8 + [1]
    assert get(stores[0], held.id).holder == f"w{answers.index({held.id})}"
