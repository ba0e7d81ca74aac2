"""Overview queries: failed runs, inactive schedules and counts, found by index."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from tests.conformance.support.builders import (
    NOON,
    make_progress,
    make_run,
    make_schedule,
    schedule_write,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.ports import RunFilter, ScheduleFilter, Store
from timewright.ports.overview import GroupCounts, RunsByState, ScheduleGroups, TextSearch
from timewright.ports.schedules import OrderedSchedules
from timewright.stores.statements import SQLITE, load_statements


def test_failed_runs_are_listed_newest_first_with_every_filter(store: Store) -> None:
    failed = [
        make_run(f"sch_{n}", state=RunState.FAILED, planned_at=NOON + n * MINUTE, fire_at=NOON)
        for n in range(5)
    ]
    others = [
        make_run("sch_8", state=RunState.SUCCEEDED, planned_at=NOON),
        make_run("sch_9", state=RunState.FAILED, planned_at=NOON, namespace="other"),
        make_run("", state=RunState.FAILED, planned_at=NOON, queue="mail"),
    ]
    store.write(lambda tx: tx.add_runs([*failed, *others]))

    def found(**which: object) -> list[str]:
        asked = RunFilter(namespace="default", state=RunState.FAILED, **which)  # type: ignore[arg-type]
        return [run.id for run in store.read(lambda tx: tx.find(asked)).rows]

    newest = sorted((run.id for run in [*failed, others[2]]), reverse=True)
    assert found() == newest
    assert found(queue="mail") == [others[2].id]
    assert sorted(found(since=NOON + 3 * MINUTE)) == sorted(run.id for run in failed[3:])
    assert sorted(found(until=NOON - HOUR)) == []
    page = store.read(lambda tx: tx.find(RunFilter(namespace="default", state=RunState.FAILED, limit=2)))
    assert [run.id for run in page.rows] == newest[:2]
    assert found(cursor=page.cursor) == newest[2:]


def test_runs_by_state_are_counted_up_to_a_maximum(store: Store) -> None:
    states = [RunState.LEASED, RunState.READY, RunState.PARKED, RunState.FAILED, RunState.SUCCEEDED]
    runs = [
        make_run(f"sch_{n}_{state}", state=state, planned_at=NOON + n * MINUTE, fire_at=NOON)
        for n in range(3)
        for state in states
    ]
    asleep = make_run("sch_a", planned_at=NOON, fire_at=NOON + HOUR)
    foreign = [make_run("sch_f", state=state, planned_at=NOON, namespace="other") for state in states[:1]]
    store.write(lambda tx: tx.add_runs([*runs, asleep, *foreign]))

    def counted(namespace: str, *, since: datetime, most: int) -> tuple[int, int, int, int]:
        found = store.read(
            lambda tx: tx.count(RunsByState(namespace=namespace, failed_since=since, max_count=most))
        )
        return found["leased"], found["ready"], found["parked"], found["failed"]

    assert counted("default", since=NOON, most=9) == (3, 4, 3, 3)
    assert counted("default", since=NOON + MINUTE, most=9) == (3, 4, 3, 2)
    assert counted("default", since=NOON, most=2) == (2, 2, 2, 2)
    assert counted("other", since=NOON, most=9) == (1, 0, 0, 0)


def test_inactive_schedules_are_listed_by_name_in_pages(store: Store) -> None:
    states = [ScheduleState.PAUSED, ScheduleState.ACTIVE, ScheduleState.PARKED] * 3
    made = [make_schedule(f"job-{n}", group="a" if n % 2 else None) for n in range(len(states))]
    stood = [make_progress(state=state) for state in states]
    store.write(lambda tx: tx.put_schedules([schedule_write(a, b) for a, b in zip(made, stood, strict=True)]))

    def names(**which: object) -> tuple[list[str], str]:
        asked = ScheduleFilter(namespace="default", **which)  # type: ignore[arg-type]
        page = store.read(lambda tx: tx.find(asked))
        return [due.schedule.name for due in page.rows], page.cursor

    assert names(state=ScheduleState.PAUSED) == (["job-0", "job-3", "job-6"], "")
    assert names(state=ScheduleState.ACTIVE) == (["job-1", "job-4", "job-7"], "")
    assert names(state=ScheduleState.PARKED, group="a") == (["job-5"], "")
    assert names(state=ScheduleState.PAUSED, name_prefix="job-3") == (["job-3"], "")
    first, cursor = names(state=ScheduleState.PARKED, limit=2)
    assert first == ["job-2", "job-5"]
    assert names(state=ScheduleState.PARKED, limit=2, cursor=cursor) == (["job-8"], "")


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("list_failed_runs", "runs_failed"),
        ("list_leased_runs", "runs_leased"),
        ("list_held_runs", "runs_held"),
        ("list_parked_runs", "runs_parked"),
        ("find_inactive_schedules", "schedules_inactive"),
    ],
)
def test_a_page_of_one_state_uses_the_index_of_that_state(
    database: Database, statement: str, index: str
) -> None:
    database.open()
    sql = re.sub(r":\w+", "'5'", load_statements(SQLITE)[statement].sql)
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    # Subqueries per row of the page must not scan.
    of_one = re.compile(r"\((id|schedule_id)=\?\)")
    walked = [step for step in steps if re.match(r"(SCAN|SEARCH) ", step) and not of_one.search(step)]
    assert len(walked) == 1
    assert index in walked[0]


def test_groups_are_counted_by_name_without_archived_schedules_and_other_namespaces(store: Store) -> None:
    states = [ScheduleState.PAUSED, ScheduleState.ACTIVE, ScheduleState.PARKED, ScheduleState.ARCHIVED]
    made = [
        *(make_schedule(f"job-{n}", group="b" if n else "a") for n in range(len(states))),
        make_schedule("alone"),
        make_schedule("foreign", group="c", namespace="other"),
    ]
    stood = [make_progress(state=state) for state in [*states, ScheduleState.ACTIVE, ScheduleState.ACTIVE]]
    store.write(lambda tx: tx.put_schedules([schedule_write(a, b) for a, b in zip(made, stood, strict=True)]))

    def found(after: str = "", limit: int = 9) -> list[GroupCounts]:
        return store.read(lambda tx: tx.select(ScheduleGroups(namespace="default", after=after, limit=limit)))

    a = GroupCounts(name="a", schedules=1, active=0, paused=1, parked=0)
    b = GroupCounts(name="b", schedules=2, active=1, paused=0, parked=1)
    assert found() == [a, b]
    assert found(limit=1) == [a]
    assert found(after="a") == [b]


def test_schedules_are_found_and_ordered_by_parts_of_their_names(store: Store) -> None:
    made = [
        make_schedule(name, tags=tags) for name, tags in (("load-b", ()), ("a%b", ("Money",)), ("LOAD-A", ()))
    ]
    stood = [make_progress(next_at=NOON + HOUR * n, failures=int(n == 2)) for n in range(len(made))]
    store.write(lambda tx: tx.put_schedules([schedule_write(a, b) for a, b in zip(made, stood, strict=True)]))
    ids = {one.id: one.name for one in made}

    def names(**which: object) -> tuple[list[str], int]:
        asked = ScheduleFilter(namespace="default", **which)  # type: ignore[arg-type]
        found = store.read(lambda tx: tx.select(OrderedSchedules(asked)))
        return [ids[one.id] for one in found], store.read(lambda tx: tx.count(asked))["schedules"]

    assert names(order="failing") == (["LOAD-A", "a%b", "load-b"], 3)
    assert names(order="next", limit=2) == (["load-b", "a%b"], 3)
    assert names(order="next", limit=2, offset=2) == (["LOAD-A"], 3)
    assert names(name_contains="load") == (["LOAD-A", "load-b"], 2)
    assert names(name_contains="%") == (["a%b"], 1)

    def found(text: str) -> list[tuple[str, str]]:
        hits = store.read(
            lambda tx: tx.select(TextSearch(namespace="default", text=text, limit=5, max_rows=100))
        )
        return [(hit.kind, hit.name) for hit in hits]

    assert found("load-") == [("schedule", "LOAD-A"), ("schedule", "load-b")]
    assert found("money") == [("tagged", "a%b")]
    run = make_run(made[0].id, state=RunState.FAILED, planned_at=NOON, error="")
    store.write(lambda tx: tx.add_runs([run]))
    assert found(run.id[-8:].lower()) == [("run", made[0].id)]
