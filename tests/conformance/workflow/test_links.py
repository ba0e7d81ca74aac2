"""Dependencies between schedules: links, ends that met them, and runs that wait."""

from __future__ import annotations

import re
from concurrent.futures import wait
from datetime import datetime
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    TICK,
    add,
    leased,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
)
from tests.conformance.support.concurrency import all_at_once, held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import LIVE_STATES, Run, RunState
from timewright.core.schedule.upstream import EndKind
from timewright.errors import Conflict
from timewright.ports import RunChange, Store
from timewright.ports.rows import FutureManualRuns, FutureManualRunsIn, RunsWithNeeds
from timewright.ports.workflow import DependencyWait, DownstreamLinks, Link, RunEndEffects, UpstreamLinks
from timewright.stores.statements import SQLITE, load_statements

MANY = 120


OVER_OR_HELD = [state for state in RunState if state not in LIVE_STATES]


def link(upstream: str, downstream: str, **fields: Any) -> Link:
    fields.setdefault("kind", "needs")
    fields.setdefault("on", EndKind.SUCCESS)
    return Link(upstream=upstream, downstream=downstream, **fields)


def ask_for(store: Store, downstream: str, *links: Link) -> None:
    store.write(lambda tx: tx.replace_links(downstream, links))


def asked_by(store: Store, *downstreams: str) -> list[Link]:
    return list(store.read(lambda tx: tx.select(UpstreamLinks(downstreams))))


def meet(store: Store, *links: Link) -> None:
    store.write(lambda tx: tx.mark_links_met(links))


def waiting(store: Store, *schedule_ids: str) -> list[str]:
    return [run.id for run in store.read(lambda tx: tx.select(RunsWithNeeds(schedule_ids)))]


def ahead(store: Store, *schedule_ids: str, limit: int = 1000) -> list[Run]:
    return list(store.read(lambda tx: tx.select(FutureManualRuns(schedule_ids, limit=limit))))


def by_hand(schedule_id: str, *, fire_at: datetime, **fields: Any) -> Run:
    """A manual run for a future instant."""
    fields.setdefault("dedupe_scope", f"by-hand-{fire_at.isoformat()}")
    return make_run(schedule_id, fire_at=fire_at, exclusive=False, **fields)


def over(run: Run) -> RunChange:
    return RunChange(replace(run, state=RunState.SKIPPED, finished_at=NOON), run.state, run.fence)


def test_links_are_found_from_both_ends(store: Store) -> None:
    kinds = [(kind, on) for kind in ("after", "needs") for on in sorted(EndKind)]
    links = [
        link("b", "x", delay=MINUTE + TICK, kind="after"),
        *(link("a", "x", kind=kind, on=on) for kind, on in kinds),
        link("a", "y", met_at=NOON + TICK, met_by="run_1"),
    ]
    in_order = sorted(links, key=lambda one: (one.upstream, one.downstream, one.kind, one.on))
    ask_for(store, "y", links[-1])
    ask_for(store, "x", *links[:-1])
    assert asked_by(store, "y", "x", "y", "nobody") == in_order
    assert asked_by(store, "y") == [links[-1]]
    assert store.read(lambda tx: tx.select(DownstreamLinks(["b", "a", "a", "nobody"]))) == in_order
    assert store.read(lambda tx: tx.select(DownstreamLinks(["b"]))) == [links[0]]
    assert store.write(lambda tx: tx.select(UpstreamLinks(["x", "y"], lock=True))) == in_order


def test_no_schedules_have_no_links(store: Store) -> None:
    ask_for(store, "x", link("a", "x"))
    assert asked_by(store) == asked_by(store, "a") == []
    assert store.write(lambda tx: tx.select(UpstreamLinks([], lock=True))) == []
    assert (
        store.read(lambda tx: tx.select(DownstreamLinks([])))
        == store.read(lambda tx: tx.select(DownstreamLinks(["x"])))
        == []
    )
    meet(store)
    assert asked_by(store, "x") == [link("a", "x")]


def test_replace_links_replaces_all_links_of_a_schedule(store: Store) -> None:
    ask_for(store, "x", link("a", "x"), link("b", "x", kind="after"))
    ask_for(store, "y", link("a", "y"))
    for _ in range(2):
        ask_for(store, "x", link("b", "x", on=EndKind.END, met_at=NOON, met_by="run_1"))
        assert asked_by(store, "x") == [link("b", "x", on=EndKind.END, met_at=NOON, met_by="run_1")]
    ask_for(store, "x")
    ask_for(store, "nobody")
    assert asked_by(store, "x", "y", "nobody") == [link("a", "y")]


def test_a_repeated_link_is_refused_and_the_old_links_stay(store: Store) -> None:
    ask_for(store, "x", link("a", "x"))
    with pytest.raises(Conflict):
        ask_for(store, "x", link("b", "x"), link("b", "x", delay=HOUR))
    assert asked_by(store, "x") == [link("a", "x")]


def test_a_link_keeps_its_latest_end(store: Store) -> None:
    one, other = link("a", "x"), link("a", "x", on=EndKind.FAILURE)
    ask_for(store, "x", one, other)
    for at, by, last in (
        (1, "run_1", "run_1"),
        (3, "run_3", "run_3"),
        (2, "run_2", "run_3"),
        (3, "run_4", "run_4"),
    ):
        meet(store, replace(one, met_at=NOON + at * TICK, met_by=by))
        found = asked_by(store, "x")
        assert [(row.on, row.met_by) for row in found] == [(EndKind.FAILURE, ""), (EndKind.SUCCESS, last)]
    assert found[1].met_at == NOON + 3 * TICK


def test_the_latest_of_several_ends_meets_the_link(store: Store) -> None:
    names = ["x", "y", "z", "u", "v", "w"]
    for name, order in zip(names, permutations((1, 2, 3)), strict=True):
        ask_for(store, name, link("a", name))
        meet(store, *(link("a", name, met_at=NOON + n * HOUR, met_by=f"run_{n}") for n in order))
    assert [(row.met_at, row.met_by) for row in asked_by(store, *names)] == [(NOON + 3 * HOUR, "run_3")] * 6


def test_marking_an_unknown_link_met_inserts_nothing(store: Store) -> None:
    meet(store, link("a", "x", met_at=NOON, met_by="run_1"))
    assert asked_by(store, "x") == []


def test_many_links_are_written_met_and_read_at_once(store: Store) -> None:
    links = [link(f"up_{n:03}", "x", delay=n * TICK) for n in range(MANY)]
    ask_for(store, "x", *reversed(links))
    met = [replace(one, met_at=NOON + n * TICK, met_by=f"run_{n}") for n, one in enumerate(links)]
    meet(store, *reversed(met))
    assert asked_by(store, "x") == met
    assert store.read(lambda tx: tx.select(DownstreamLinks([one.upstream for one in met]))) == met


def test_locked_links_let_the_second_writer_see_the_first(database: Database) -> None:
    stores = [database.open(), database.open()]

    def point(me: str, at: str) -> Any:
        def work(tx: Any) -> bool:
            tx.lock("links")
            if tx.select(UpstreamLinks([at])):
                return False
            tx.replace_links(me, [link(at, me)])
            return True

        return work

    with (
        held_open(stores[0], point("x", "y")) as held,
        meanwhile(lambda: stores[1].write(point("y", "x"))) as second,
    ):
        assert held.first is True
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() is False
    pairs = [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")]
    answers = all_at_once([partial(stores[n % 2].write, point(*pair)) for n, pair in enumerate(pairs)])
    assert {tuple(pairs[n]) for n, answer in enumerate(answers) if answer is True} in (
        {("a", "b")},
        {("b", "a")},
    )
    assert len(asked_by(stores[0], "a", "b")) == 1


def test_a_locked_link_read_misses_no_concurrent_end(database: Database) -> None:
    starter, bringer = database.open(), database.open()
    asked, met = link("a", "x"), link("a", "x", met_at=NOON, met_by="run_1")
    ask_for(starter, "x", asked)
    with (
        held_open(bringer, lambda tx: tx.mark_links_met([met])) as held,
        meanwhile(lambda: starter.write(lambda tx: tx.select(UpstreamLinks(["x"], lock=True)))) as second,
    ):
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() == [met]


def test_a_locked_link_is_met_after_the_lock_is_released(database: Database) -> None:
    starter, bringer = database.open(), database.open()
    ask_for(starter, "x", link("a", "x"))
    add(starter, make_run("x", id="run_9"))
    met = link("a", "x", met_at=NOON, met_by="run_1")

    def bring(tx: Any) -> list[str]:
        tx.mark_links_met([met])
        return [run.id for run in tx.select(RunsWithNeeds(["x"]))]

    with (
        held_open(
            starter,
            lambda tx: tx.select(UpstreamLinks(["x"], lock=True)),
            lambda tx, _: tx.put_run_rows([DependencyWait("run_9", "x")]),
        ) as held,
        meanwhile(lambda: bringer.write(bring)) as second,
    ):
        assert held.first == [link("a", "x")]
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() == ["run_9"]


def test_runs_that_wait_are_found_by_their_schedules_until_they_wait_no_more(store: Store) -> None:
    waits = [DependencyWait(f"run_{n:03}", f"sch_{n % 2}") for n in range(MANY)]
    add(store, *(make_run("", id=one.run_id, dedupe_scope=one.run_id) for one in waits))
    store.write(lambda tx: tx.put_run_rows(waits[::-1]))
    store.write(lambda tx: tx.put_run_rows([*waits[:2], *2 * [DependencyWait("run_000", "sch_1")]]))
    store.write(lambda tx: tx.put_run_rows([]))
    assert waiting(store, "sch_1", "sch_0", "sch_1", "nobody") == [one.run_id for one in waits]
    assert waiting(store, "sch_0") == [one.run_id for one in waits[::2]]
    assert waiting(store) == waiting(store, "nobody") == []
    for _ in range(2):
        ids = [*(one.run_id for one in waits[:-2]), "nobody"]
        store.write(lambda tx, ids=ids: tx.delete_run_rows(DependencyWait, ids))  # type: ignore[misc]
        store.write(lambda tx: tx.delete_run_rows(DependencyWait, []))
        assert waiting(store, "sch_0", "sch_1") == [one.run_id for one in waits[-2:]]


def test_run_end_effects_report_held_runs_links_and_failing_schedules(store: Store) -> None:
    def what() -> RunEndEffects:
        found: RunEndEffects = store.read(lambda tx: tx.read_run_end_effects())
        return found

    held = [make_run("sch_1", state=RunState.HELD, planned_at=NOON + n * HOUR) for n in range(3)]
    assert what() == RunEndEffects(has_held_runs=False, has_links=False)
    add(store, make_run("sch_1"), make_run("sch_2", state=RunState.PARKED))
    assert what() == RunEndEffects(has_held_runs=False, has_links=False)
    add(store, *held)
    assert what() == RunEndEffects(has_held_runs=True, has_links=False)
    ask_for(store, "x", link("a", "x"), link("b", "x"))
    assert what() == RunEndEffects(has_held_runs=True, has_links=True)
    store.write(lambda tx: tx.change_runs([over(run) for run in held]))
    assert what() == RunEndEffects(has_held_runs=False, has_links=True)
    ask_for(store, "x")
    assert what() == RunEndEffects(has_held_runs=False, has_links=False)
    put(store, schedule_write(make_schedule(), make_progress(failures=1)))
    assert what() == RunEndEffects(has_held_runs=False, has_links=False)


def test_future_manual_runs_come_earliest_first(store: Store) -> None:
    made = [by_hand(f"sch_{n % 2}", fire_at=NOON + n * MINUTE) for n in range(1, MANY)]
    alike = [by_hand("sch_0", fire_at=NOON + TICK, dedupe_scope=f"scope-{n}") for n in (2, 1)]
    add(store, *reversed(made), *reversed(alike))
    every = [*alike, *made]
    assert ahead(store, "sch_1", "sch_0", "sch_1", "nobody") == every
    assert ahead(store, "sch_1", "sch_0", limit=3) == every[:3]
    assert ahead(store, "sch_1") == made[::2]
    assert ahead(store, "sch_0", limit=0) == ahead(store) == ahead(store, "nobody") == []


def test_only_future_manual_runs_of_the_schedule_are_listed(store: Store) -> None:
    later = NOON + HOUR
    told = by_hand("sch_1", fire_at=later)
    now, started = by_hand("sch_1", fire_at=NOON), by_hand("sch_1", fire_at=NOON, dedupe_scope="started")
    add(store, told, now, started, make_run("sch_1", fire_at=later), make_run(fire_at=later))
    add(store, *(by_hand("sch_1", fire_at=later, dedupe_scope=s.value, state=s) for s in OVER_OR_HELD))
    assert len(leased(store, started)) == 1
    assert ahead(store, "sch_1") == [told]


def test_future_manual_runs_of_a_namespace_are_those_of_all_its_schedules(store: Store) -> None:
    def found(namespace: str = "default", *, until: datetime = NOON + HOUR, limit: int = 1000) -> list[Run]:
        which = FutureManualRunsIn(namespace=namespace, until=until, limit=limit)
        return list(store.read(lambda tx: tx.select(which)))

    made = [by_hand(f"sch_{n}", fire_at=NOON + n * MINUTE) for n in (1, 2, 3)]
    other = by_hand("sch_4", fire_at=NOON + MINUTE, namespace="other")
    queue_entry = make_run(fire_at=NOON + MINUTE, queue="mail")
    add(store, *reversed(made), other, queue_entry, make_run("sch_1", fire_at=NOON + HOUR))
    assert found() == made
    assert found(until=NOON + 2 * MINUTE) == found(limit=2) == made[:2]
    assert found("other") == [other]
    assert found("nobody") == found(limit=0) == []


def test_a_manual_run_whose_instant_has_come_is_not_listed_as_future(store: Store) -> None:
    first, second = (by_hand("sch_1", fire_at=NOON + n * HOUR) for n in (1, 2))
    add(store, first, second)
    assert store.write(lambda tx: tx.ready_runs(now=NOON + HOUR - TICK, limit=10)) == []
    assert ahead(store, "sch_1") == [first, second]
    assert store.write(lambda tx: tx.ready_runs(now=NOON + HOUR, limit=10)) == [first]
    assert ahead(store, "sch_1") == [second]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_each_query_uses_its_index(database: Database) -> None:
    database.open()
    made_for = {
        "future_manual_runs": ["runs_future_manual"],
        "future_manual_runs_of_namespace": ["runs_future_manual"],
        "run_end_effects": ["runs_held", "schedule_links_downstream", "schedules_failing"],
        "upstream_links": ["schedule_links_downstream"],
        "runs_with_needs": ["SEARCH runs USING PRIMARY KEY (id=?)", "dependency_waits_schedule"],
        "get_open_follow_ups": ["follow_ups_open"],
        "find_follow_ups": ["follow_ups_run", "follow_ups_upstream"],
        "child_runs": ["runs_parent"],
        "waiting_steps": ["runs_waiting"],
        "find_runs_by_dedupe_scope": ["runs_occurrence"],
        "find_occurrence": ["runs_occurrence"],
        "runs_beside_occurrence": ["runs_occurrence", "runs_manual"],
    }
    looks = re.compile(r"(SCAN|SEARCH) (runs|schedule_links|dependency_waits|follow_ups|schedules)\b")
    for statement, indexes in made_for.items():
        sql = re.sub(r":\w+|\?\d+", "'5'", load_statements(SQLITE)[statement].sql)
        steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
        walked = [step for step in steps if looks.match(step)]
        assert [re.sub(r".* INDEX (\w+).*", r"\1", step) for step in walked] == indexes, statement
