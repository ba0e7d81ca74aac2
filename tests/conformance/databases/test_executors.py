"""Executors: caching, prepared statements, batches, plans and the writer lock."""

from __future__ import annotations

import re
import threading
from functools import partial
from time import monotonic
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    add,
    get,
    get_record,
    leased,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.schedule.decision import Source
from timewright.core.schedule.hints import Hints, IntervalHint
from timewright.core.schedule.schedule import Schedule, ScheduleState, only_advances
from timewright.errors import NotAllowed
from timewright.ports import ProgressUpdate, Store, Transaction
from timewright.stores.cache import CACHE_TTL_S, MAX_CACHED_REVISIONS, RowCache
from timewright.stores.postgres.connection import PLANNER_SETTINGS
from timewright.stores.postgres.executor import bigint_array, number_parameters, text_array
from timewright.stores.statements import POSTGRES, SQLITE, load_statements


class Stop(Exception):
    """Raised by a test to roll back a transaction."""


def told(schedule: Schedule, text: str) -> Schedule:
    return replace(schedule, description=text, revision=schedule.revision + 1)


def test_a_rolled_back_revision_is_not_cached(store: Store) -> None:
    first = make_schedule()
    put(store, schedule_write(first))

    def draft(tx: Transaction) -> None:
        tx.put_schedules([schedule_write(told(first, "undone"), replaces=1)])
        assert tx.get_revisions([(first.id, 2)])[first.id, 2].description == "undone"
        raise Stop

    with pytest.raises(Stop):
        store.write(draft)
    put(store, schedule_write(told(first, "kept"), replaces=1))
    assert get_record(store, first.id).schedule.description == "kept"


def test_an_uncommitted_revision_is_not_cached_by_a_shared_commit(store: Store) -> None:
    first = make_schedule()
    put(store, schedule_write(first))
    store.write(lambda tx: tx.put_schedules([schedule_write(told(first, "kept"), replaces=1)]))
    seen = store.write(lambda tx: tx.get_schedules([first.id])[first.id])
    assert seen.schedule.description == "kept"
    assert get_record(store, first.id) == seen


def test_a_revision_is_decoded_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_schedule()
    put(store, schedule_write(first))
    assert get_record(store, first.id).schedule is get_record(store, first.id).schedule
    later = monotonic() + CACHE_TTL_S + 1
    monkeypatch.setattr("timewright.stores.cache.monotonic", lambda: later)
    assert (first.id, 1) not in store._cache.revisions()


def test_the_revision_cache_is_bounded() -> None:
    kept, schedule = RowCache(), make_schedule()
    for number in range(MAX_CACHED_REVISIONS // 1000 + 2):
        kept.keep_revisions({(f"{number}-{n}", 1): schedule for n in range(1000)})
        assert len(kept.revisions()) <= MAX_CACHED_REVISIONS
    assert (f"{number}-999", 1) in kept.revisions()


def test_an_advance_changes_only_the_progress_columns(store: Store) -> None:
    hints = Hints(interval=IntervalHint(interval=MINUTE, expires_at=NOON + DAY))
    before = make_progress(
        reason="because", source=Source.BASELINE_CRON, failures=3, runs=7, missed=2, hints=hints
    )
    schedule = make_schedule()
    put(store, schedule_write(schedule, before))
    after = replace(
        before, cursor=NOON + HOUR, next_at=NOON + 2 * HOUR, wake_at=NOON + HOUR, runs=8, missed=0
    )
    store.write(lambda tx: tx.save_progress([ProgressUpdate(schedule.id, after, "run_1", True)]))
    due = get_record(store, schedule.id)
    assert (due.progress, due.last_run) == (after, "run_1")


def test_steps_and_others_are_written_together(store: Store) -> None:
    step, stop = make_schedule("step"), make_schedule("stop")
    put(store, schedule_write(step), schedule_write(stop))
    moved = make_progress(cursor=NOON + HOUR, next_at=NOON + DAY)
    stopped = replace(moved, state=ScheduleState.PARKED, reason="why")
    store.write(
        lambda tx: tx.save_progress(
            [ProgressUpdate(step.id, moved, "run_1", True), ProgressUpdate(stop.id, stopped, "run_2")]
        )
    )
    assert get_record(store, step.id).progress == moved
    assert get_record(store, stop.id).progress == stopped


def test_only_progress_columns_may_change_in_an_advance() -> None:
    before = make_progress()
    steps = {"cursor": NOON + HOUR, "next_at": NOON + DAY, "wake_at": NOON + DAY, "runs": 5, "missed": 1}
    assert only_advances(before, replace(before, **steps))
    others: dict[str, Any] = {
        "state": ScheduleState.PARKED,
        "reason": "why",
        "source": Source.PAUSED,
        "trail": ((),),
        "failures": 1,
        "paused_at": NOON,
        "paused_until": NOON,
        "last_started_at": NOON,
        "last_finished_at": NOON,
        "failing_since": NOON,
        "replaced_after": NOON,
        "hints": Hints(),
    }
    assert {*steps, *others} == set(before.__struct_fields__)
    for field, value in others.items():
        assert not only_advances(before, replace(before, **{field: value})), field


@pytest.mark.parametrize("inner", ["read", "write"])
@pytest.mark.parametrize("outer", ["read", "write"])
@pytest.mark.parametrize("kind", ["memory"])
def test_a_transaction_inside_another_of_a_store_in_memory_is_refused(
    store: Any, outer: str, inner: str
) -> None:
    def nested(_: Transaction) -> None:
        getattr(store, inner)(lambda tx: tx.read_pending_work().wake_at)

    with pytest.raises(NotAllowed, match="open on this thread"):
        getattr(store, outer)(nested)
    run = make_run()
    add(store, run)
    assert get(store, run.id) == run


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_nested_write_is_refused_and_the_store_keeps_working(store: Store) -> None:
    with pytest.raises(NotAllowed, match="open on this thread"):
        store.write(lambda _: add(store, make_run()))
    run = make_run()
    add(store, run)
    assert get(store, run.id) == run


@pytest.mark.parametrize("kind", ["memory"])
def test_another_thread_waits_for_the_writer_lock(store: Store) -> None:
    runs = [make_run(), make_run()]
    other = threading.Thread(target=partial(add, store, runs[1]))

    def work(tx: Transaction) -> None:
        other.start()
        tx.add_runs(runs[:1])

    store.write(work)
    other.join()
    assert [get(store, run.id) for run in runs] == runs


@pytest.mark.parametrize("kind", ["postgres"])
def test_after_a_lost_prepared_statement_nothing_is_prepared(store: Any) -> None:
    run = make_run()
    add(store, run)

    def forgetful(tx: Any) -> list[Any]:
        for _ in range(6):
            tx.ready_runs(now=NOON, limit=10)
        # As behind a pooler: the next statement reaches a session without the prepared statement.
        tx._executor._connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
        return list(tx.ready_runs(now=NOON, limit=10))

    assert store.write(forgetful) == [run]
    assert not store._prepares
    assert [one.id for one in leased(store, run)] == [run.id]


SAMPLES = [
    "",
    "NULL",
    "null",
    '"',
    "\\",
    '\\"',
    "{}",
    "{",
    ",",
    '","',
    "a b",
    " ",
    "\n",
    "é",
    "\U0001f600",
    "''",
]


@pytest.mark.parametrize("kind", ["postgres"])
def test_texts_travel_as_they_are(database: Database) -> None:
    assert database.sql("SELECT unnest(?::text[])", [text_array(SAMPLES)]) == [(text,) for text in SAMPLES]
    for text in SAMPLES:
        assert database.sql("SELECT unnest(?::text[])", [text_array([text])]) == [(text,)]
    assert database.sql("SELECT unnest(?::text[])", [text_array([])]) == []


@pytest.mark.parametrize("kind", ["postgres"])
def test_numbers_travel_as_they_are(database: Database) -> None:
    sent = [0, -1, None, 2**62, None, 5]
    assert database.sql("SELECT unnest(?::bigint[])", [bigint_array(sent)]) == [(number,) for number in sent]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_no_text_can_end_its_place_in_an_array(column: list[str]) -> None:
    """Decode an array literal as the manual describes: quoted texts with backslash escapes."""
    spelled, found, at = text_array(column), [], 1
    while at < len(spelled) - 1:
        assert spelled[at] == '"'
        at, text = at + 1, ""
        while spelled[at] != '"':
            at += spelled[at] == "\\"
            text, at = text + spelled[at], at + 1
        found.append(text)
        at += 1
        assert spelled[at] in ",}"
        at += 1
    assert found == column


EVERY_TICK = [
    "pending_work",
    "due_schedules",
    "due_schedules_of_shard",
    "advance_progress",
    "insert_on_time_runs",
    "insert_leased_runs",
    "advance_on_time",
    "save_progress",
    "insert_runs",
    "any_deferred_due",
    "wake_deferred_runs",
    "ready_buckets",
    "ready_runs_of_bucket",
    "oldest_ready_runs",
    "nonempty_buckets",
    "new_buckets",
    "find_buckets",
    "waiting_buckets",
    "wake_waiting_schedules",
    "ready_keys_of_bucket",
    "ready_runs_by_id",
    "lease_runs",
    "renew_leases",
    "expired_leases",
    "leased_runs",
    "find_lease",
    "cancel_requested_runs",
    "settle_runs",
    "failing_schedules",
    "run_end_effects",
    "releasable_runs",
    "releasable_runs_of_schedules",
    "change_runs",
    "queue_runs",
    "next_wake_of_shard",
    "live_runs",
    "get_runs",
    "get_schedules",
]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("statement", EVERY_TICK)
def test_queries_of_every_tick_scan_no_table(database: Database, statement: str) -> None:
    database.open()
    sql = re.sub(r"[:?]\w+", "5", load_statements(SQLITE)[statement].sql)
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    walked = [step for step in steps if re.search(r"SCAN (runs|schedules|r|s|b)\b", step)]
    # A scan of a partial index reads only its few rows.
    assert [step for step in walked if "USING" not in step or "PRIMARY KEY" in step] == [], steps


def plan_as_a_tick_does(connection: psycopg.Connection[Any]) -> None:
    for plan in PLANNER_SETTINGS:
        connection.execute(f"SET {plan}".encode())


@pytest.mark.parametrize("kind", ["postgres"])
def test_due_schedules_are_claimed_in_index_order(database: Database) -> None:
    database.open()
    sql = load_statements(POSTGRES)["due_schedules"].sql
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        plan = connection.execute(f"EXPLAIN {sql}", {"now": 5, "since": 0, "limit": 9}).fetchall()
    steps = "\n".join(row[0] for row in plan)
    assert "Index Scan using schedules_wake" in steps
    assert "Sort" not in steps


BY_THEIR_KEYS = [
    "save_progress",
    "lease_runs",
    "lease_runs_shared",
    "settle_runs",
    "settle_runs_shared",
    "change_runs",
    "renew_leases",
    "due_schedules",
    "ready_runs_of_bucket",
    "ready_runs_of_all_buckets",
    "get_runs",
]


@pytest.mark.parametrize("kind", ["postgres"])
def test_generic_plans_find_rows_by_their_keys(database: Database) -> None:
    database.open()
    statements = number_parameters(load_statements(POSTGRES))
    samples = {"bigint": "1", "text": "'a'", "bigint[]": "'{}'", "text[]": "'{}'"}
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        for name in BY_THEIR_KEYS:
            connection.execute(f"PREPARE one AS {statements[name].sql}".encode())
            types = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'one'"
            given = ", ".join(samples[kind] for kind in connection.execute(types).fetchall()[0][0])
            plan = connection.execute(f"EXPLAIN EXECUTE one({given})".encode()).fetchall()
            connection.execute("DEALLOCATE one")
            steps = "\n".join(row[0] for row in plan)
            assert not re.search("Seq Scan|Hash Join|Merge Join", steps), f"{name}\n{steps}"


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_probe_scans_no_table_even_if_planned_on_an_empty_one(database: Database) -> None:
    database.open()
    sql = load_statements(POSTGRES)["pending_work"].sql
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        plan = connection.execute(
            f"EXPLAIN {sql}",
            {
                "holder": "w0",
                "with_lease_end": 1,
                "with_held": 1,
                "since": 0,
                "leased_since": 0,
                "of_any_bucket": 0,
                "buckets": ["call:a"],
                "bases": ["~call:a\n\n"],
            },
        ).fetchall()
    steps = "\n".join(row[0] for row in plan)
    assert "Seq Scan" not in steps
    # Leased runs leave dead entries at the front of the index, which are skipped one by one.
    assert "Backward using runs_ready" in steps


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_slice_of_the_past_is_searched_by_index_ranges_only(database: Database) -> None:
    database.open()
    sql = load_statements(POSTGRES)["waiting_rows_of_past"].sql
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        plan = connection.execute(f"EXPLAIN {sql}", {"since": 2**60, "until": 2**61}).fetchall()
    steps = "\n".join(row[0] for row in plan)
    assert "Seq Scan" not in steps
    for column in ("wake_at", "fire_at", "leased_at"):
        assert f"({column} >= '{2**60}'::bigint) AND ({column} < '{2**61}'::bigint))" in steps


@pytest.mark.parametrize("kind", ["postgres"])
def test_listing_ready_runs_scans_no_other_rows(database: Database) -> None:
    add(database.open(), *(make_run(f"sch_{number}") for number in range(500)))
    sql = load_statements(POSTGRES)["list_ready_runs"].sql
    asked = {"before": "z", "from": "", "namespace": "", "queue": "", "since": 0, "until": 2**62, "limit": 2}
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan = connection.execute(f"EXPLAIN {sql}", asked).fetchall()
    assert "Nested Loop" not in "\n".join(row[0] for row in plan)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_probe_is_prepared_and_survives_deallocate(store: Any) -> None:
    add(store, make_run())

    def look(tx: Any) -> bool:
        assert all(tx.read_pending_work(holder="w0").has_ready_runs for _ in range(6))
        tx._executor._connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
        ready: bool = tx.read_pending_work(holder="w0").has_ready_runs
        return ready

    assert store._prepares
    assert store.read(look)
    assert not store._prepares
