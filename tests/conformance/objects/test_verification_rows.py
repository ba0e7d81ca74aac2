"""Raw rows for `timewright verify`: in pages, of one namespace or all."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    add,
    ended,
    entry,
    leased,
    make_run,
    make_schedule,
    put,
    queued,
    schedule_write,
    settle,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE, to_micros
from timewright.core.run.run import Run, RunState
from timewright.errors import InvalidInput
from timewright.ports import PruneRequest, StoredObject
from timewright.verification.rows import (
    AttemptRow,
    AuditRow,
    LimitHoldRow,
    LimitRow,
    MetaRow,
    ObjectRow,
    RevisionRow,
    RunRow,
    ScheduleRow,
)


def pages(store: Any, kind: type, *, limit: int, **which: Any) -> list[Any]:
    """Return every row of a kind, read in pages."""
    found: list[Any] = []
    last: Any = None
    for _ in range(100):
        page = store.read(lambda tx, last=last: tx.list_rows(kind, after=last, limit=limit, **which))
        found += page
        if len(page) < limit:
            return found
        last = page[-1]
    raise AssertionError("pages without end")


def held(store: Any, run: Run) -> Run:
    """Add and lease a run."""
    add(store, run)
    (taken,) = leased(store, run)
    return taken


def test_runs_come_newest_first_and_pages_leave_nothing_out(store: Any) -> None:
    runs = [make_run(planned_at=NOON + n * MINUTE) for n in range(7)]
    add(store, *runs)
    found = pages(store, RunRow, limit=3)
    assert [row.id for row in found] == [run.id for run in reversed(runs)]
    assert [row.planned_at for row in found] == [to_micros(run.planned_at) for run in reversed(runs)]


def test_verification_rows_begin_at_since(store: Any) -> None:
    old, new = make_run(planned_at=NOON), make_run(planned_at=NOON + HOUR)
    add(store, old, new)
    found = store.read(lambda tx: tx.list_rows(RunRow, since=NOON + MINUTE))
    assert [row.id for row in found] == [new.id]
    assert store.read(lambda tx: tx.list_rows(RunRow, since=NOON, namespace="other")) == []


def test_unfinished_runs_are_listed_however_old(store: Any) -> None:
    states = (RunState.READY, RunState.HELD, RunState.PARKED, RunState.SUCCEEDED, RunState.SKIPPED)
    runs = [make_run(planned_at=NOON + n * MINUTE, state=state) for n, state in enumerate(states)]
    asleep = make_run(planned_at=NOON, fire_at=NOON + HOUR)
    add(store, *runs, asleep, make_run(planned_at=NOON + 2 * HOUR))
    taken = held(store, make_run(planned_at=NOON))
    found = store.read(lambda tx: tx.list_rows(RunRow, unfinished_before=NOON + HOUR))
    rest = store.read(lambda tx: tx.list_rows(RunRow, unfinished_before=NOON + HOUR, after=found[1], limit=2))
    assert [row.id for row in found] == sorted(row.id for row in found)
    assert [row.id for row in rest] == [row.id for row in found[2:4]]
    assert {row.id for row in found} == {*(run.id for run in runs[:3]), asleep.id, taken.id}
    assert store.read(lambda tx: tx.list_rows(RunRow, unfinished_before=NOON + HOUR, namespace="other")) == []


def test_attempt_rows_leave_out_results(store: Any) -> None:
    run = held(store, make_run(planned_at=NOON))
    after, attempt = ended(run)
    settle(store, (after, replace(attempt, result={"large": "x" * 100})))
    (row,) = store.read(lambda tx: tx.list_rows(AttemptRow, run_ids=[run.id]))
    assert (row.run_id, row.fence, row.outcome, row.charged) == (run.id, 1, "succeeded", True)
    assert row.ended_at == to_micros(NOON + MINUTE)
    assert row.size > 100
    assert store.read(lambda tx: tx.list_rows(AttemptRow, run_ids=[])) == []


def test_schedules_are_listed_with_every_revision(store: Any) -> None:
    mine, other = make_schedule("mine"), make_schedule("other", namespace="elsewhere")
    put(store, schedule_write(mine))
    put(store, schedule_write(other))
    everyone = pages(store, ScheduleRow, limit=1)
    assert {(row.name, row.namespace) for row in everyone} == {("mine", "default"), ("other", "elsewhere")}
    (row,) = store.read(lambda tx: tx.list_rows(ScheduleRow, namespace="default"))
    assert (row.id, row.state, row.cursor) == (mine.id, "active", to_micros(NOON))
    (said,) = store.read(lambda tx: tx.list_rows(RevisionRow, namespace="default"))
    assert (said.schedule_id, said.revision) == (mine.id, 1)
    assert said.body["trigger"] == {"kind": "every", "interval": "PT3600S", "anchor": "2026-03-10T12:00:00Z"}


def test_unreadable_json_becomes_an_empty_object(database: Database) -> None:
    store = database.open()
    put(store, schedule_write(make_schedule("mine")))
    database.sql("UPDATE revisions SET body = '{'")
    (said,) = store.read(lambda tx: tx.list_rows(RevisionRow))
    assert said.body == {}


def test_limits_and_their_holds_are_listed(store: Any) -> None:
    store.write(lambda tx: tx.set_limits({"queue:default/mail": 2, "limit:default/api": 5}))
    run = held(store, queued())
    assert [(row.limit_key, row.capacity) for row in pages(store, LimitRow, limit=1)] == [
        ("limit:default/api", 5),
        ("queue:default/mail", 2),
    ]
    (hold,) = pages(store, LimitHoldRow, limit=1)
    assert (hold.limit_key, hold.run_id, hold.fence) == ("queue:default/mail", run.id, 1)


def test_only_queues_limits_and_calendars_are_listed_for_verification(store: Any) -> None:
    kinds = ("limit", "queue", "calendar", "secret", "workflow")
    rows = [
        StoredObject(kind=kind, namespace="default", name="x", body=b'{"most": 1}', at=NOON) for kind in kinds
    ]
    store.write(lambda tx: tx.put_objects(rows))
    found = pages(store, ObjectRow, limit=1)
    assert [(row.kind, row.body) for row in found] == [
        (k, {"most": 1}) for k in ("calendar", "limit", "queue")
    ]
    assert store.read(lambda tx: tx.list_rows(ObjectRow, namespace="other")) == []


def test_audit_rows_come_newest_first(store: Any) -> None:
    store.write(lambda tx: tx.add_audit([entry(action=f"schedule.{n}") for n in range(5)]))
    assert [row.action for row in pages(store, AuditRow, limit=2)] == [
        f"schedule.{n}" for n in (4, 3, 2, 1, 0)
    ]


def test_values_of_the_store_are_read_in_pages_by_name(store: Any) -> None:
    for name in ("client:b", "client:a"):
        store.write(lambda tx, name=name: tx.put_meta(name, name[-1]))
    found = [(row.name, row.value) for row in pages(store, MetaRow, limit=2)]
    assert found == sorted(found)
    assert {("client:a", "a"), ("client:b", "b")} <= set(found)


def test_pruning_records_the_last_pruned_id(store: Any) -> None:
    runs = [
        make_run(planned_at=NOON + n * MINUTE, state=RunState.SKIPPED, finished_at=NOON) for n in range(4)
    ]
    add(store, *runs)
    assert store.read(lambda tx: tx.get_meta("pruned_to")) is None
    store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + 2 * MINUTE)))
    assert store.read(lambda tx: tx.get_meta("pruned_to")) == runs[1].id


def test_a_page_is_bounded(store: Any) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        store.read(lambda tx: tx.list_rows(RunRow, limit=1001))
