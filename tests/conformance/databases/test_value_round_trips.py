"""Every value that is written is read back unchanged."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.conformance.support.builders import (
    LEASE,
    NOON,
    TICK,
    add,
    ended,
    entry,
    get,
    get_record,
    grant,
    leased,
    make_progress,
    make_run,
    make_schedule,
    new_id,
    put,
    schedule_write,
    settle,
    stored,
)
from tests.conformance.support.strategies import (
    endings,
    instants,
    json_values,
    new_runs,
    schedules,
    standings,
    texts,
)
from timewright.core.moments import MAX_STORED_INSTANT, MIN_STORED_INSTANT
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.ports import ProgressUpdate, RunChange, Store
from timewright.ports.rows import AuditFilter

# All examples share the store; each writes its own rows.
examples = settings(
    max_examples=1000 if os.environ.get("TIMEWRIGHT_FULL") else 60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@examples
@given(schedule=schedules(), progress=standings)
def test_every_field_of_a_schedule_and_its_progress_is_stored(
    store: Store, schedule: Schedule, progress: ScheduleProgress
) -> None:
    put(store, schedule_write(schedule, progress))
    due = get_record(store, schedule.id)
    assert due.schedule == schedule
    assert due.progress == progress


@examples
@given(progress=standings)
def test_every_field_of_progress_can_be_rewritten(store: Store, progress: ScheduleProgress) -> None:
    schedule = make_schedule(new_id("schedule"))
    put(store, schedule_write(schedule))
    store.write(lambda tx: tx.save_progress([ProgressUpdate(schedule.id, progress)]))
    assert get_record(store, schedule.id).progress == progress


@examples
@given(run=new_runs())
def test_every_field_of_a_new_run_comes_back(store: Store, run: Run) -> None:
    assert add(store, run) == {run.id}
    assert get(store, run.id) == run


@examples
@given(data=st.data())
def test_every_field_of_a_run_and_its_attempt_after_the_end_comes_back(
    store: Store, data: st.DataObject
) -> None:
    run = replace(data.draw(new_runs()), state=RunState.READY, fence=0, holder="", lease_id="")
    add(store, replace(run, leased_at=None, lease_until=None))
    lease = grant(run, at=data.draw(instants))
    (held,) = store.write(lambda tx: tx.lease_runs([lease]))
    after, attempt = data.draw(endings(held))
    assert settle(store, (after, attempt)) == {run.id}
    bare = replace(after, lease_id="", holder="", leased_at=None, lease_until=None, cancel_at=None)
    assert get(store, run.id) == bare
    assert store.read(lambda tx: tx.get_run_rows(Attempt, [run.id])) == {run.id: (attempt,)}


@examples
@given(planned_at=instants)
def test_every_instant_of_the_range_comes_back_to_the_microsecond(store: Store, planned_at: datetime) -> None:
    run = make_run(new_id("schedule"), planned_at=planned_at)
    add(store, run)
    found = get(store, run.id)
    assert (found.planned_at, found.fire_at, found.created_at) == (planned_at, planned_at, planned_at)
    assert found.planned_at.utcoffset() == timedelta(0)
    assert store.read(lambda tx: tx.find_occurrence(run.schedule_id, planned_at)) == run


@pytest.mark.parametrize("edge", [MIN_STORED_INSTANT, MAX_STORED_INSTANT])
def test_the_ends_of_the_range_work_in_every_question(store: Store, edge: datetime) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule, make_progress(cursor=edge, next_at=edge)))
    assert store.read(lambda tx: tx.read_pending_work().wake_at) == edge
    assert len(store.write(lambda tx: tx.due_schedules(until=edge, limit=5))) == 1
    assert store.write(lambda tx: tx.due_schedules(until=edge - TICK, limit=5)) == []
    run = make_run(planned_at=edge)
    add(store, run)
    (ready,) = store.write(lambda tx: tx.ready_runs(now=edge, limit=5))
    assert ready == run


def test_an_instant_with_another_offset_is_the_same_instant(store: Store) -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))
    run = make_run(planned_at=there)
    add(store, run)
    assert get(store, run.id).planned_at == NOON


@examples
@given(text=texts)
def test_every_character_comes_back_in_plain_columns(store: Store, text: str) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended(held, RunState.FAILED, error=text, reason=text))
    found = get(store, run.id)
    assert (found.error, found.reason) == (text, text)


def test_a_nul_in_a_result_does_not_prevent_settling(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    after, attempt = ended(held, RunState.FAILED, error="before\0after")
    assert settle(store, (after, replace(attempt, error="before\0after", result={"out": "a\0b"}))) == {run.id}
    assert get(store, run.id).error == "before\ufffdafter"
    (kept,) = store.read(lambda tx: tx.get_run_rows(Attempt, [run.id]))[run.id]
    assert (kept.error, kept.result) == ("before\ufffdafter", {"out": "a\0b"})


def test_a_lone_surrogate_in_a_result_does_not_prevent_settling(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    after, attempt = ended(held, RunState.FAILED, error="bad \ud800 byte")
    assert settle(store, (after, replace(attempt, error="bad \ud800 byte"))) == {run.id}
    assert get(store, run.id).error == "bad \ufffd byte"


@examples
@given(payload=json_values)
def test_every_payload_comes_back(store: Store, payload: Any) -> None:
    run = make_run(payload=payload)
    add(store, run)
    assert get(store, run.id).payload == payload


@examples
@given(body=texts)
def test_the_body_of_an_object_comes_back_byte_for_byte(store: Store, body: str) -> None:
    row = stored(new_id("key"), body.encode())
    store.write(lambda tx: tx.put_objects([row]))
    assert store.read(lambda tx: tx.get_objects("calendar", names=[row.name])) == [row]


@examples
@given(text=texts, at=instants)
def test_every_field_of_an_audit_entry_is_stored(store: Store, text: str, at: datetime) -> None:
    line = entry(text, at=at, actor=text, origin=text, subject=text, before=text, after=text, reason=text)
    store.write(lambda tx: tx.add_audit([line]))
    assert store.read(lambda tx: tx.find(AuditFilter(limit=1))).rows == (line,)


def test_a_row_of_many_kilobytes_comes_back(store: Store) -> None:
    run = make_run(payload={"text": "ö" * 500_000})
    add(store, run)
    assert get(store, run.id).payload == run.payload


def test_a_rewritten_run_keeps_every_field_that_was_not_rewritten(store: Store) -> None:
    run = make_run(state=RunState.PARKED, reason="exhausted", queue="mail", payload={"a": 1}, priority=3)
    add(store, run)
    ready = replace(run, state=RunState.READY, reason="", fire_at=NOON + LEASE)
    assert store.write(lambda tx: tx.change_runs([RunChange(ready, RunState.PARKED, 0)])) == {run.id}
    assert get(store, run.id) == ready
