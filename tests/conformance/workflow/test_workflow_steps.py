"""Workflow runs: step counters, child runs, and transferred leases."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
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
from tests.conformance.support.concurrency import all_at_once, held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.needs import needs_of_wait
from timewright.core.run.run import TERMINAL_STATES, Run, RunState
from timewright.ports import PruneRequest, Store
from timewright.ports.rows import RunsOfStep, StepRuns, WaitingSteps
from timewright.ports.workflow import LeaseTransfer, StepRow
from timewright.stores.postgres.connection import PLANNER_SETTINGS
from timewright.stores.statements import POSTGRES, load_statements

MANY = 120
FREE = [state for state in RunState if state is not RunState.LEASED]


def step(name: str = "", parent: str = "run_1", **fields: Any) -> StepRow:
    return StepRow(parent=parent, step=name, **fields)


def count(store: Store, *rows: StepRow) -> list[StepRow]:
    return list(store.write(lambda tx: tx.add_to_steps(rows)))


def steps(store: Store, parent: str = "run_1", names: Iterable[str] | None = None) -> dict[str, StepRow]:
    return dict(store.read(lambda tx: tx.get_steps(parent, names)))


def whole(store: Store, *parents: str) -> dict[str, StepRow]:
    return dict(store.write(lambda tx: tx.lock_parents(parents)))


def forget(store: Store, *parents: str) -> None:
    store.write(lambda tx: tx.delete_run_rows(StepRow, parents))


def children(store: Store, parent: str, **which: Any) -> list[Run]:
    return list(store.read(lambda tx: tx.select(StepRuns(parent, **which))))


def in_scopes(store: Store, first: str, last: str, *, at: datetime = NOON) -> list[Run]:
    return list(store.read(lambda tx: tx.select(RunsOfStep(planned_at=at, first=first, last=last))))


def extend_lease(store: Store, run: Run, **terms: Any) -> bool:
    moved: bool = store.write(lambda tx: tx.extend_lease(run.id, **terms))
    return moved


def transfer(store: Store, *rows: LeaseTransfer) -> set[str]:
    return set(store.write(lambda tx: tx.transfer_leases(rows)))


def one_leased(store: Store, **fields: Any) -> Run:
    run = make_run(**fields)
    add(store, run)
    return leased(store, run)[0]


def reclaimed(store: Store, *, now: datetime) -> list[str]:
    return [run.id for run in store.write(lambda tx: tx.expired_leases(now=now, limit=10))]


def whole_and_step(tx: Any) -> tuple[StepRow, dict[str, StepRow]]:
    """Lock the whole run and read its steps."""
    held = tx.lock_parents(["run_1"])["run_1"]
    return held, tx.get_steps("run_1", ["a"])


def test_step_counters_are_added_and_the_sums_returned(store: Store) -> None:
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


def test_steps_of_many_runs_are_counted_in_one_call(store: Store) -> None:
    rows = [step(f"s{n:03}", f"run_{n % 2}", met=n) for n in reversed(range(MANY))]
    assert count(store, *rows) == rows
    assert count(store, *rows) == [replace(row, met=2 * row.met) for row in rows]
    assert steps(store, "run_1") == {row.step: replace(row, met=2 * row.met) for row in rows[::2]}
    assert count(store) == []


def test_a_step_given_twice_in_a_batch_is_added_twice_and_returned_once(store: Store) -> None:
    told = [step("a", met=1, state="started"), step("b", met=1), step("a", met=2, run_id="run_2"), step("a")]
    expected = [step("a", met=3, state="started", run_id="run_2"), step("b", met=1)]
    assert count(store, *told) == expected
    assert count(store, *told[:1], step("a", state="failed")) == [
        replace(expected[0], met=4, state="failed"),
    ]
    assert list(steps(store).values())[1:] == expected[1:]


def test_concurrent_step_counts_return_distinct_sums(database: Database) -> None:
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


def test_deleting_steps_affects_only_the_given_runs(store: Store) -> None:
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
    assert store.write(lambda tx: tx.prune(PruneRequest(keep_runs=0))) == 1
    assert steps(store, old.id) == {}
    assert steps(store, "run_2") == {"a": step("a", "run_2")}


def test_lock_parents_returns_only_whole_runs(store: Store) -> None:
    wholes = {f"run_{n}": step("", f"run_{n}", live=n) for n in range(MANY)}
    count(store, *wholes.values(), step("a", "run_0"), step("a", "run_x"))
    assert whole(store, *wholes, *wholes, "run_x", "nobody") == wholes
    assert whole(store, "run_7") == {"run_7": wholes["run_7"]}
    assert whole(store) == whole(store, "nobody") == {}


def test_a_locked_parent_blocks_others_which_then_see_its_counts(database: Database) -> None:
    one, two = database.open(), database.open()
    count(one, step(live=2), step(live=2, parent="run_2"))
    with (
        held_open(
            one,
            lambda tx: tx.lock_parents(["run_1"]),
            lambda tx, _: tx.add_to_steps([step("a", met=1), step(live=-1)]),
        ) as held,
        meanwhile(lambda: two.write(whole_and_step)) as second,
    ):
        assert held.first == {"run_1": step(live=2)}
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() == (step(live=1), {"a": step("a", met=1)})


def test_locking_parents_in_any_order_does_not_deadlock(database: Database) -> None:
    one, two = database.open(), database.open()
    names = [f"run_{n:02}" for n in range(20)]
    count(one, *(step("", name) for name in names))
    for _ in range(3):
        with meanwhile(lambda: whole(one, *names)), meanwhile(lambda: whole(two, *reversed(names))):
            pass


def test_child_runs_come_in_creation_order(store: Store) -> None:
    runs = [
        make_run(parent="run_1", dedupe_scope=f"run_1/{scope}", created_at=NOON + n * MINUTE)
        for n, scope in [(0, "b"), (0, "c[10]"), (0, "c[2]"), (1, "a"), (2, "a~2")]
    ]
    add(store, *reversed(runs), make_run(parent="run_2"), make_run())
    assert children(store, "run_1") == runs
    assert children(store, "nobody") == []


def test_unfinished_child_runs_can_be_listed_alone(store: Store) -> None:
    runs = [make_run(parent="run_1", dedupe_scope=f"run_1/{state}", state=state) for state in sorted(FREE)]
    add(store, *runs)
    (held,) = leased(store, *(run for run in runs if run.state is RunState.READY))
    now = sorted(
        [held, *(run for run in runs if run.state is not RunState.READY)], key=lambda run: run.dedupe_scope
    )
    assert children(store, "run_1") == now
    assert children(store, "run_1", unfinished=True) == [
        run for run in now if run.state not in TERMINAL_STATES
    ]


def test_runs_without_a_parent_are_no_children(store: Store) -> None:
    add(store, make_run(), make_run("sch_1"))
    assert children(store, "") == children(store, "", unfinished=True) == []


def test_runs_are_found_by_a_range_of_dedupe_scopes(store: Store) -> None:
    scopes = ["B", "a[0]", "a[10]", "a[2]", "a\\", "b", "é"]
    runs = [make_run(dedupe_scope=scope) for scope in scopes]
    other = make_run(dedupe_scope="a[1]", planned_at=NOON + TICK)
    add(store, *reversed(runs), other, make_run("sch_1", dedupe_scope="a[0]"))
    assert in_scopes(store, "A", "\U0010ffff") == runs
    assert in_scopes(store, "a[", "a\\") == runs[1:4]
    assert in_scopes(store, "a[0]", "a[2]") == runs[1:3]
    assert in_scopes(store, "b", "a") == in_scopes(store, "a[0]", "a[0]") == in_scopes(store, "c", "d") == []
    assert in_scopes(store, "a", "b", at=NOON + TICK) == [other]
    assert in_scopes(store, "a", "b", at=NOON - TICK) == []


def test_many_items_of_a_step_are_found_by_dedupe_scope(store: Store) -> None:
    runs = [make_run(dedupe_scope=f"run_1/a[{n:03}]", parent="run_1") for n in range(MANY)]
    add(store, *reversed(runs))
    assert in_scopes(store, "run_1/a[", "run_1/a\\") == runs
    assert children(store, "run_1") == runs


def test_extend_lease_sets_the_end_and_the_start(store: Store) -> None:
    held = one_leased(store)
    for until in (NOON + HOUR, NOON + HOUR, NOON + MINUTE):
        assert extend_lease(store, held, until=until) is True
        assert get(store, held.id) == replace(held, lease_until=until)
    began = replace(held, lease_until=NOON + HOUR, started_at=NOON + TICK)
    assert extend_lease(store, held, until=NOON + HOUR, started_at=NOON + TICK) is True
    assert get(store, held.id) == began
    assert extend_lease(store, held, until=NOON + 2 * HOUR) is True
    assert get(store, held.id) == replace(began, lease_until=NOON + 2 * HOUR)


def test_a_lease_that_was_prolonged_is_not_taken_back_before_its_new_end(store: Store) -> None:
    held, other = one_leased(store), one_leased(store)
    extend_lease(store, held, until=NOON + HOUR)
    assert reclaimed(store, now=NOON + HOUR - TICK) == [other.id]
    assert held.id in reclaimed(store, now=NOON + HOUR)


def test_nothing_is_prolonged_that_is_not_leased(store: Store) -> None:
    runs = [make_run(state=state) for state in FREE]
    add(store, *runs)
    for run in [*runs, make_run()]:
        assert extend_lease(store, run, until=NOON + HOUR, started_at=NOON) is False, run.state
    assert store.read(lambda tx: tx.get_runs([run.id for run in runs])) == {run.id: run for run in runs}


def test_a_cancelled_lease_is_not_extended(store: Store) -> None:
    held = one_leased(store)
    store.write(lambda tx: tx.request_cancel([(held.id, NOON + HOUR)], at=NOON, reason="by_hand"))
    asked = get(store, held.id)
    assert extend_lease(store, held, until=NOON + 2 * HOUR, started_at=NOON) is False
    assert get(store, held.id) == asked


def test_a_transferred_lease_keeps_its_fence_and_takes_the_new_fields(store: Store) -> None:
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
    assert transfer(store, LeaseTransfer(run=taken, previous_holder=held.holder)) == {held.id}
    assert get(store, held.id) == taken
    assert reclaimed(store, now=NOON + LEASE) == []
    # The fence is the same, so the result of the launched run is still accepted.
    assert settle(store, ended(held)) == {held.id}


def test_a_lease_is_transferred_once_from_the_same_holder(store: Store) -> None:
    held = one_leased(store)
    taken = replace(held, holder="workflow")
    assert transfer(store, LeaseTransfer(run=taken, previous_holder=held.holder)) == {held.id}
    assert (
        transfer(store, LeaseTransfer(run=replace(held, holder="late"), previous_holder=held.holder)) == set()
    )
    assert get(store, held.id) == taken


def test_an_ended_lease_is_not_transferred(store: Store) -> None:
    for state in FREE:
        held = one_leased(store)
        settle(store, ended(held, state))
        after = get(store, held.id)
        for known in (held, after):
            assert (
                transfer(
                    store, LeaseTransfer(run=replace(known, holder="late"), previous_holder=known.holder)
                )
                == set()
            )
        assert get(store, held.id) == after


def test_only_leases_of_the_expected_holder_are_transferred(store: Store) -> None:
    runs = [make_run() for _ in range(MANY)]
    add(store, *runs)
    held = leased(store, *runs)
    rows = [
        LeaseTransfer(run=replace(run, holder=f"w{n}"), previous_holder=run.holder)
        for n, run in enumerate(held)
    ]
    wrong = [
        replace(rows[0], previous_holder="somebody"),
        replace(rows[1], run=replace(rows[1].run, fence=2)),
        LeaseTransfer(run=replace(make_run(), holder="w", fence=1), previous_holder=held[0].holder),
    ]
    assert transfer(store, *wrong, *rows[2:]) == {run.id for run in held[2:]}
    found = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert list(found.values()) == [*held[:2], *(row.run for row in rows[2:])]
    assert transfer(store) == set()


def test_a_lease_is_transferred_once_by_concurrent_callers(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    held = one_leased(stores[0])
    rows = [LeaseTransfer(run=replace(held, holder=f"w{n}"), previous_holder=held.holder) for n in range(9)]
    answers = all_at_once([partial(transfer, stores[n % 3], row) for n, row in enumerate(rows)])
    assert sorted(map(len, answers)) == [0] * 8 + [1]
    assert get(stores[0], held.id).holder == f"w{answers.index({held.id})}"


def waiting(name: str, **fields: Any) -> Run:
    """A step that waits; `needs_of_wait` says for what."""
    needs = needs_of_wait(answer=fields.pop("answer", False), event=fields.pop("event", None))
    return make_run(
        id=name,
        state=RunState.LEASED,
        holder="wait",
        fence=1,
        leased_at=NOON,
        lease_until=NOON + HOUR,
        needs=needs,
        **fields,
    )


def test_steps_that_wait_are_found_by_what_they_wait_for(store: Store) -> None:
    add(
        store,
        waiting("run_5", event="paid"),
        waiting("run_4", event="paid", answer=True),
        waiting("run_3", event="paid twice"),
        waiting("run_2", answer=True),
        waiting("run_1"),
        waiting("run_0", event="paid", namespace="other"),
        other := make_run(id="run_9"),
    )
    leased(store, other)

    def found(event: str | None) -> list[str]:
        return [run.id for run in store.read(lambda tx: tx.select(WaitingSteps("default", event=event)))]

    assert found("paid") == ["run_4", "run_5"]
    assert found("refund") == []
    assert found(None) == ["run_2", "run_4"]
    settle(store, ended(store.read(lambda tx: tx.get_runs(["run_4"]))["run_4"]))
    assert (found("paid"), found(None)) == (["run_5"], ["run_2"])


def test_a_wait_adds_no_bucket_that_instances_look_into(database: Database) -> None:
    add(database.open(), waiting("run_5", event="paid"), waiting("run_2", answer=True))
    assert database.sql("SELECT bucket FROM ready_buckets") == []


@pytest.mark.parametrize("kind", ["postgres"])
def test_waiting_steps_are_read_by_their_index(database: Database) -> None:
    add(database.open(), *(waiting(f"run_{n}", event=f"event {n}") for n in range(50)))
    sql = load_statements(POSTGRES)["waiting_steps"].sql
    given = {"namespace": "default", "first": "event:event 7", "last": "event:event 7"}
    with psycopg.connect(database.place, autocommit=True) as connection:
        connection.execute("ANALYZE runs")
        for plan in PLANNER_SETTINGS:
            connection.execute(f"SET {plan}".encode())
        steps = connection.execute(f"EXPLAIN {sql}", given).fetchall()
    assert "Index Scan using runs_waiting" in steps[0][0]
