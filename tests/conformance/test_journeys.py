"""Few journeys to a server for many words: what rides, what is told once, and what that must not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conformance.builders import (
    NOON,
    add,
    ended,
    grant,
    make_run,
    make_schedule,
    new_id,
    put,
    queued,
    revised,
)
from tests.conformance.databases import Database
from timewright.core.moments import MINUTE
from timewright.core.policies import Overlap
from timewright.core.run import RunState
from timewright.errors import Conflict
from timewright.ids import TimedIds
from timewright.ledger.by_hand import run_now
from timewright.ledger.replan import By
from timewright.stores import postgres, postgres_speaker
from timewright.stores.postgres_connection import MOST_RIDERS, Connection

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def journeys(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """What each journey to the server came back with."""
    made: list[bytes | None] = []
    check = Connection._checked

    def counted(self: Connection, result: Any) -> Any:
        made.append(result.command_status)
        return check(self, result)

    monkeypatch.setattr(Connection, "_checked", counted)
    return made


def habitual(store: Any, work: Callable[[Any], Any]) -> None:
    """Say it once before, so that it is prepared."""
    store.write(work)


def spoken_to(tx: Any) -> Connection:
    connection = tx._speaker._connection
    assert isinstance(connection, Connection)
    return connection


def shown(tx: Any, setting: str) -> str:
    tx.get_meta("anything")  # a transaction begins with its first statement
    return str(spoken_to(tx).execute(f"SHOW {setting}".encode()).fetchall()[0][0])


def test_a_run_by_hand_takes_four_journeys(store: Any, journeys: list[bytes | None]) -> None:
    schedule = make_schedule(overlap=Overlap.ALLOW)
    put(store, revised(schedule))
    ids, by = TimedIds(), By(actor="ada")
    run_now(store, schedule.id, ids=ids, by=by, now=NOON)
    journeys.clear()
    run_now(store, schedule.id, ids=ids, by=by, now=NOON)
    assert len(journeys) == 4
    assert journeys[-1] == b"COMMIT"


def test_a_look_is_one_journey_and_leaves_nothing_open(store: Any, journeys: list[bytes | None]) -> None:
    store.read(lambda tx: tx.outlook(holder="w0"))
    journeys.clear()
    store.read(lambda tx: tx.outlook(holder="w0"))
    assert journeys == [b"SELECT 1"]


def test_runs_are_leased_in_three_journeys_however_many_lines_they_wait_in(
    store: Any, journeys: list[bytes | None]
) -> None:
    add(store, *(queued(f"queue-{number}") for number in range(40)))

    def lease(tx: Any) -> int:
        ready = tx.ready_runs(now=NOON, limit=5)
        return len(tx.lease_runs([grant(run) for run in ready if run.queue == "queue-7"]))

    habitual(store, lambda tx: tx.ready_runs(now=NOON, limit=5))
    habitual(store, lambda tx: tx.lease_runs([grant(make_run())]))
    journeys.clear()
    assert store.write(lease) == 1
    assert journeys == [b"SELECT 40", b"UPDATE 1", b"COMMIT"]


def test_where_nothing_is_said_nothing_begins(store: Any, journeys: list[bytes | None]) -> None:
    journeys.clear()
    assert store.write(lambda tx: 7) == 7
    with pytest.raises(ValueError, match="stop"):
        store.write(lambda tx: _fail())
    assert journeys == []


def _fail() -> None:
    raise ValueError("stop")


def test_what_rides_is_seen_by_whoever_asks_next_and_is_gone_with_the_rest(store: Any) -> None:
    habitual(store, lambda tx: tx.put_meta("primed", "yes"))

    def undone(tx: Any) -> None:
        tx.put_meta("mark", "5")
        assert tx.get_meta("mark") == "5"
        tx.put_meta("mark", "6")
        _fail()

    with pytest.raises(ValueError, match="stop"):
        store.write(undone)
    assert store.read(lambda tx: tx.get_meta("mark")) is None
    assert store.write(lambda tx: tx.get_meta("mark")) is None


def test_a_name_that_was_never_given_is_not_spoken(store: Any, journeys: list[bytes | None]) -> None:
    def undone(tx: Any) -> None:
        tx.get_runs([new_id()])
        tx.put_meta("mark", "5")
        _fail()

    with pytest.raises(ValueError, match="stop"):
        store.write(undone)
    store.write(lambda tx: tx.put_meta("mark", "6"))
    assert journeys[-1] == b"COMMIT"
    assert store._prepares


def test_more_ride_than_fit_and_all_arrive(store: Any) -> None:
    many = range(3 * MOST_RIDERS + 1)
    habitual(store, lambda tx: tx.put_meta("primed", "yes"))
    store.write(lambda tx: [tx.put_meta(f"it's {n}\\", "'" * n) for n in many])
    assert [store.read(lambda tx, n=n: tx.get_meta(f"it's {n}\\")) for n in many] == ["'" * n for n in many]


def test_what_rode_and_was_refused_undoes_the_rest_and_is_told(store: Any) -> None:
    row = ("sch_1", 1, "{}", 5, "ada", "")
    habitual(store, lambda tx: tx._tell("insert_revisions", [(new_id(), *row[1:])]))
    store.write(lambda tx: tx._tell("insert_revisions", [row]))

    def again(tx: Any) -> None:
        tx.put_meta("mark", "5")
        tx._tell("insert_revisions", [row])

    with pytest.raises(Conflict):
        store.write(again)
    assert store.write(lambda tx: tx.get_meta("mark")) is None


def test_what_rode_into_another_at_the_commit_is_tried_again(own_database: Database) -> None:
    store = own_database.open()
    habitual(store, lambda tx: tx.put_meta("primed", "yes"))
    own_database.sql("CREATE SEQUENCE tries")
    own_database.sql(
        "CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('tries') = 1 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END IF;"
        " RETURN NEW; END $$"
    )
    own_database.sql("CREATE TRIGGER once BEFORE INSERT ON meta FOR EACH ROW EXECUTE FUNCTION once()")
    store.write(lambda tx: tx.put_meta("mark", "5"))
    assert own_database.sql("SELECT last_value FROM tries") == [(2,)]
    assert store.read(lambda tx: tx.get_meta("mark")) == "5"


@pytest.mark.parametrize("alike", [True, False])
def test_rows_that_are_told_once_become_what_each_would_have_become(
    store: Any, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    speak = postgres_speaker.PostgresSpeaker._speak
    if not alike:
        monkeypatch.setattr(postgres_speaker, "_is_alike", lambda *_: False)

    def noted(self: Any, spoken: Any, values: Any) -> Any:
        told.append(spoken.name)
        return speak(self, spoken, values)

    monkeypatch.setattr(postgres_speaker.PostgresSpeaker, "_speak", noted)
    told_alike: dict[str, Any] = {"made_by": 'ada "a" \\', "lane": "shared", "created_at": NOON}
    runs = [make_run(planned_at=NOON - n * MINUTE, **told_alike) for n in range(5)]
    runs = [*runs, *(make_run(payload={"n": n}, lane=f"shared-{n}") for n in range(5))]
    for some in (runs[:5], runs[5:]):
        assert add(store, *some) == {run.id for run in some}
        assert add(store, *some) == set()
    leased = store.write(lambda tx: tx.lease_runs([grant(run) for run in runs]))
    assert [run.id for run in leased] == [run.id for run in runs]
    assert store.write(lambda tx: tx.lease_runs([grant(run) for run in runs])) == []
    ends = [ended(run, word="done") for run in leased]
    assert store.write(lambda tx: tx.settle_runs(ends)) == {run.id for run in runs}
    assert store.write(lambda tx: tx.settle_runs(ends)) == set()
    kept = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert [kept[run.id].payload for run in runs] == [run.payload for run in runs]
    assert {(run.state, run.word, run.made_by) for run in kept.values()} == {
        (RunState.SUCCEEDED, "done", made_by) for made_by in ('ada "a" \\', "")
    }
    attempts = store.read(lambda tx: tx.get_attempts([run.id for run in runs]))
    assert [attempts[run.id] for run in runs] == [(attempt,) for _, attempt in ends]
    short = {name for name in told if name.endswith("_alike")}
    wanted = {"insert_runs_alike", "lease_runs_alike", "settle_runs_alike", "insert_attempts_alike"}
    assert short == (wanted if alike else set())


def test_rows_of_two_kinds_are_told_each_in_full(store: Any) -> None:
    runs = [make_run(priority=n, fence=n) for n in range(3)]
    add(store, *runs)
    assert len(store.write(lambda tx: tx.lease_runs([grant(run) for run in runs]))) == 3


def test_plans_are_made_as_a_tick_wants_them_and_other_questions_as_the_server_does(store: Any) -> None:
    assert store.write(lambda tx: shown(tx, "enable_seqscan")) == "off"
    assert store.read(lambda tx: shown(tx, "enable_seqscan")) == "on"
    assert store.read(lambda tx: shown(tx, "plan_cache_mode")) == "auto"
    assert store.write(lambda tx: shown(tx, "plan_cache_mode")) == "force_generic_plan"


def test_where_someone_stands_between_nothing_outlives_a_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_ours(connection: psycopg.Connection[Any]) -> None:
        connection.prepare_threshold = None

    monkeypatch.setattr(postgres, "_prepare_if_ours", not_ours)
    store = database.open()
    run = make_run()
    add(store, run)
    for _ in range(3):
        assert store.read(lambda tx: tx.outlook(holder="w0")).ready
    assert store.write(lambda tx: shown(tx, "enable_seqscan")) == "off"
    assert [one.id for one in store.write(lambda tx: tx.lease_runs([grant(run)]))] == [run.id]
    with store._pool.connection() as connection:
        settings = connection.execute("SHOW enable_seqscan").fetchall()
        names = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
    assert (settings, names) == ([("on",)], [(0,)])


def test_what_is_made_ready_does_not_wait_for_the_commit(database: Database) -> None:
    store = database.open()

    def work(tx: Any) -> None:
        tx.put_meta("said", "this")
        waiting = tx._speaker._connection._riders
        assert waiting
        tx.make_ready()
        assert not waiting

    store.write(work)
    assert store.read(lambda tx: tx.get_meta("said")) == "this"
