"""How the book is spoken: what is kept in memory, what is prepared, how rows travel, whose turn it is."""

from __future__ import annotations

import re
import threading
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.conformance.builders import (
    NOON,
    add,
    get,
    get_due,
    leased,
    make_run,
    make_schedule,
    make_standing,
    put,
    revised,
)
from tests.conformance.databases import Database
from timewright.core.decision import Source
from timewright.core.hints import Hints, IntervalHint
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.schedule import Schedule, ScheduleState, is_step
from timewright.errors import NotAllowed
from timewright.ports import Stood, Store, Transaction
from timewright.stores.postgres import _prepare_if_ours
from timewright.stores.postgres_connection import PLANS
from timewright.stores.postgres_speaker import numbered, numbers, texts
from timewright.stores.revisions import KEPT_SECONDS, MOST_KEPT, Revisions
from timewright.stores.statements import POSTGRES, SQLITE, load_book


class Stop(Exception):
    """Ends a transaction without a commit."""


def told(schedule: Schedule, text: str) -> Schedule:
    return replace(schedule, description=text, revision=schedule.revision + 1)


def test_a_revision_that_was_read_and_then_undone_is_not_remembered(store: Store) -> None:
    first = make_schedule()
    put(store, revised(first))

    def draft(tx: Transaction) -> None:
        tx.put_schedules([revised(told(first, "undone"), replaces=1)])
        assert tx.get_revisions([(first.id, 2)])[first.id, 2].description == "undone"
        raise Stop

    with pytest.raises(Stop):
        store.write(draft)
    put(store, revised(told(first, "kept"), replaces=1))
    assert get_due(store, first.id).schedule.description == "kept"


def test_what_shares_a_commit_with_a_draft_does_not_remember_it_before_the_commit(store: Store) -> None:
    first = make_schedule()
    put(store, revised(first))
    store.write(lambda tx: tx.put_schedules([revised(told(first, "kept"), replaces=1)]))
    seen = store.write(lambda tx: tx.get_schedules([first.id])[first.id])
    assert seen.schedule.description == "kept"
    assert get_due(store, first.id) == seen


def test_a_revision_is_read_once_by_those_who_need_it_again(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_schedule()
    put(store, revised(first))
    assert get_due(store, first.id).schedule is get_due(store, first.id).schedule
    later = monotonic() + KEPT_SECONDS + 1
    monkeypatch.setattr("timewright.stores.revisions.monotonic", lambda: later)
    assert (first.id, 1) not in store._revisions.known()


def test_only_so_many_revisions_are_kept_in_memory() -> None:
    kept, schedule = Revisions(), make_schedule()
    for number in range(MOST_KEPT // 1000 + 2):
        kept.keep({(f"{number}-{n}", 1): schedule for n in range(1000)})
        assert len(kept.known()) <= MOST_KEPT
    assert (f"{number}-999", 1) in kept.known()


def test_a_step_moves_a_schedule_on_and_leaves_the_rest_alone(store: Store) -> None:
    hints = Hints(interval=IntervalHint(interval=MINUTE, expires_at=NOON + DAY))
    before = make_standing(
        reason="because", source=Source.BASELINE_CRON, failures=3, runs=7, missed=2, hints=hints
    )
    schedule = make_schedule()
    put(store, revised(schedule, before))
    after = replace(
        before, cursor=NOON + HOUR, next_at=NOON + 2 * HOUR, wake_at=NOON + HOUR, runs=8, missed=0
    )
    store.write(lambda tx: tx.stand([Stood(schedule.id, after, "run_1", True)]))
    due = get_due(store, schedule.id)
    assert (due.standing, due.last_run) == (after, "run_1")


def test_steps_and_others_are_written_together(store: Store) -> None:
    step, stop = make_schedule("step"), make_schedule("stop")
    put(store, revised(step), revised(stop))
    moved = make_standing(cursor=NOON + HOUR, next_at=NOON + DAY)
    stopped = replace(moved, state=ScheduleState.PARKED, reason="why")
    store.write(lambda tx: tx.stand([Stood(step.id, moved, "run_1", True), Stood(stop.id, stopped, "run_2")]))
    assert get_due(store, step.id).standing == moved
    assert get_due(store, stop.id).standing == stopped


def test_whatever_else_changes_is_not_a_step() -> None:
    before = make_standing()
    steps = {"cursor": NOON + HOUR, "next_at": NOON + DAY, "wake_at": NOON + DAY, "runs": 5, "missed": 1}
    assert is_step(before, replace(before, **steps))
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
        "hints": Hints(),
    }
    assert {*steps, *others} == set(before.__struct_fields__)
    for field, value in others.items():
        assert not is_step(before, replace(before, **{field: value})), field


@pytest.mark.parametrize("inner", ["read", "write"])
@pytest.mark.parametrize("outer", ["read", "write"])
@pytest.mark.parametrize("kind", ["memory"])
def test_a_transaction_inside_another_of_a_store_in_memory_is_refused(
    store: Any, outer: str, inner: str
) -> None:
    def nested(_: Transaction) -> None:
        getattr(store, inner)(lambda tx: tx.next_wake())

    with pytest.raises(NotAllowed, match="open on this thread"):
        getattr(store, outer)(nested)
    run = make_run()
    add(store, run)
    assert get(store, run.id) == run


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_write_inside_a_write_is_refused_and_the_store_goes_on(store: Store) -> None:
    with pytest.raises(NotAllowed, match="open on this thread"):
        store.write(lambda _: add(store, make_run()))
    run = make_run()
    add(store, run)
    assert get(store, run.id) == run


@pytest.mark.parametrize("kind", ["memory"])
def test_another_thread_waits_for_its_turn(store: Store) -> None:
    runs = [make_run(), make_run()]
    other = threading.Thread(target=partial(add, store, runs[1]))

    def work(tx: Transaction) -> None:
        other.start()
        tx.add_runs(runs[:1])

    store.write(work)
    other.join()
    assert [get(store, run.id) for run in runs] == runs


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_server_that_forgot_what_was_prepared_is_spoken_to_without(store: Any) -> None:
    run = make_run()
    add(store, run)

    def forgetful(tx: Any) -> list[Any]:
        for _ in range(6):
            tx.ready_runs(now=NOON, limit=10)
        # As behind a pooler: the next statement reaches a session that was not told.
        tx._speaker._connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
        return list(tx.ready_runs(now=NOON, limit=10))

    assert store.write(forgetful) == [run]
    assert not store._prepares
    assert [one.id for one in leased(store, run)] == [run.id]


@pytest.mark.parametrize(("told_pid", "threshold"), [(7, 5), (8, None)])
def test_nothing_is_prepared_where_someone_stands_between_us_and_the_server(
    told_pid: int, threshold: int | None
) -> None:
    connection: Any = SimpleNamespace(
        execute=lambda _: SimpleNamespace(fetchone=lambda: (7,)),
        info=SimpleNamespace(backend_pid=told_pid),
        prepare_threshold=5,
    )
    _prepare_if_ours(connection)
    assert connection.prepare_threshold == threshold


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
    assert database.sql("SELECT unnest(?::text[])", [texts(SAMPLES)]) == [(text,) for text in SAMPLES]
    for text in SAMPLES:
        assert database.sql("SELECT unnest(?::text[])", [texts([text])]) == [(text,)]
    assert database.sql("SELECT unnest(?::text[])", [texts([])]) == []


@pytest.mark.parametrize("kind", ["postgres"])
def test_numbers_travel_as_they_are(database: Database) -> None:
    sent = [0, -1, None, 2**62, None, 5]
    assert database.sql("SELECT unnest(?::bigint[])", [numbers(sent)]) == [(number,) for number in sent]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_no_text_can_end_its_place_in_an_array(column: list[str]) -> None:
    """A reader of arrays, by the manual: quotes around each text, a backslash before what is meant."""
    spelled, found, at = texts(column), [], 1
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
    "outlook",
    "due_schedules",
    "due_shard",
    "advance",
    "insert_advanced",
    "insert_started",
    "move_on",
    "stand",
    "insert_runs",
    "any_asleep",
    "awaken",
    "ready_lines",
    "ready_runs",
    "oldest_ready_runs",
    "lease_runs",
    "renew_leases",
    "expired_leases",
    "leased_runs",
    "find_lease",
    "asked_to_stop",
    "settle_runs",
    "failing",
    "clear_streaks",
    "what_waits",
    "freeable",
    "freeable_of",
    "change_runs",
    "queue_runs",
    "next_wake",
    "next_of_shard",
    "next_lease_end",
    "in_flight",
    "live_runs",
    "get_runs",
    "get_schedules",
]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("statement", EVERY_TICK)
def test_no_table_is_walked_for_what_is_asked_at_every_tick(database: Database, statement: str) -> None:
    database.open()
    sql = re.sub(r"[:?]\w+", "5", load_book(SQLITE)[statement].sql)
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    walked = [step for step in steps if re.search(r"SCAN (runs|schedules|r|s|b)\b", step)]
    # A scan of an index of its own is one of the few rows in it.
    assert [step for step in walked if "USING" not in step or "PRIMARY KEY" in step] == [], steps


def plan_as_a_tick_does(connection: psycopg.Connection[Any]) -> None:
    for plan in PLANS:
        connection.execute(f"SET {plan}".encode())


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_claim_takes_what_is_due_in_the_order_of_its_index(database: Database) -> None:
    database.open()
    sql = load_book(POSTGRES)["due_schedules"].sql
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        plan = connection.execute(f"EXPLAIN {sql}", {"now": 5, "since": 0, "limit": 9}).fetchall()
    steps = "\n".join(row[0] for row in plan)
    assert "Index Scan using schedules_wake" in steps
    assert "Sort" not in steps


BY_THEIR_KEYS = [
    "stand",
    "lease_runs",
    "lease_runs_alike",
    "settle_runs",
    "settle_runs_alike",
    "change_runs",
    "renew_leases",
    "clear_streaks",
    "due_schedules",
    "ready_runs",
    "ready_everywhere",
    "get_runs",
]


@pytest.mark.parametrize("kind", ["postgres"])
def test_what_is_planned_once_for_all_values_finds_its_rows_by_their_keys(database: Database) -> None:
    database.open()
    book = numbered(load_book(POSTGRES))
    samples = {"bigint": "1", "text": "'a'", "bigint[]": "'{}'", "text[]": "'{}'"}
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        for name in BY_THEIR_KEYS:
            connection.execute(f"PREPARE one AS {book[name].sql}".encode())
            types = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'one'"
            given = ", ".join(samples[kind] for kind in connection.execute(types).fetchall()[0][0])
            plan = connection.execute(f"EXPLAIN EXECUTE one({given})".encode()).fetchall()
            connection.execute("DEALLOCATE one")
            steps = "\n".join(row[0] for row in plan)
            assert not re.search("Seq Scan|Hash Join|Merge Join", steps), f"{name}\n{steps}"


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_look_walks_no_table_however_empty_it_was_when_it_was_planned(database: Database) -> None:
    database.open()
    sql = load_book(POSTGRES)["outlook"].sql
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan_as_a_tick_does(connection)
        plan = connection.execute(f"EXPLAIN {sql}", {"holder": "w0", "ends": 1, "held": 1}).fetchall()
    steps = "\n".join(row[0] for row in plan)
    assert "Seq Scan" not in steps
    # Those who have left were at the front, and their places are passed one by one.
    assert "Backward using runs_line" in steps


@pytest.mark.parametrize("kind", ["postgres"])
def test_what_is_ready_is_listed_without_looking_for_each_among_all_others(database: Database) -> None:
    add(database.open(), *(make_run(f"sch_{number}") for number in range(500)))
    sql = load_book(POSTGRES)["list_ready_runs"].sql
    asked = {"before": "z", "from": "", "namespace": "", "queue": "", "since": 0, "until": 2**62, "limit": 2}
    with psycopg.connect(database.place, autocommit=True) as connection:
        plan = connection.execute(f"EXPLAIN {sql}", asked).fetchall()
    assert "Nested Loop" not in "\n".join(row[0] for row in plan)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_look_is_prepared_and_outlasts_a_server_that_forgot_it(store: Any) -> None:
    add(store, make_run())

    def look(tx: Any) -> bool:
        assert all(tx.outlook(holder="w0").ready for _ in range(6))
        tx._speaker._connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
        ready: bool = tx.outlook(holder="w0").ready
        return ready

    assert store._prepares
    assert store.read(look)
    assert not store._prepares
