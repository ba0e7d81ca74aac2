"""Round trips to PostgreSQL: pipelining, shared forms, and their effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.support.builders import (
    NOON,
    add,
    ended,
    grant,
    make_run,
    make_schedule,
    new_id,
    put,
    queued,
    schedule_write,
)
from tests.conformance.support.databases import Database
from timewright import Scheduler
from timewright.core.moments import MINUTE
from timewright.core.policies.policies import Overlap
from timewright.core.run.run import Attempt, RunState
from timewright.errors import Conflict
from timewright.ids import TimedIds
from timewright.ledger.manual_runs import run_now
from timewright.ledger.replan import Actor
from timewright.stores.postgres import executor
from timewright.stores.postgres import store as postgres
from timewright.stores.postgres.connection import MAX_PIPELINED_STATEMENTS, Connection

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The results of each round trip."""
    made: list[bytes | None] = []
    check = Connection._checked

    def counted(self: Connection, result: Any) -> Any:
        made.append(result.command_status)
        return check(self, result)

    monkeypatch.setattr(Connection, "_checked", counted)
    return made


def habitual(store: Any, work: Callable[[Any], Any]) -> None:
    """Run the work twice, so that its statements are prepared the second time."""
    store.write(work)


def spoken_to(tx: Any) -> Connection:
    connection = tx._executor._connection
    assert isinstance(connection, Connection)
    return connection


def shown(tx: Any, setting: str) -> str:
    tx.get_meta("anything")  # a transaction begins with its first statement
    return str(spoken_to(tx).execute(f"SHOW {setting}".encode()).fetchall()[0][0])


def test_a_run_by_hand_takes_two_round_trips(store: Any, round_trips: list[bytes | None]) -> None:
    schedule = make_schedule(overlap=Overlap.ALLOW)
    put(store, schedule_write(schedule))
    ids, by = TimedIds(), Actor(name="ada")
    run_now(store, schedule.id, ids=ids, by=by, now=NOON)
    round_trips.clear()
    run_now(store, schedule.id, ids=ids, by=by, now=NOON)
    assert len(round_trips) == 2
    assert round_trips[-1] == b"COMMIT"


def test_a_run_by_hand_through_the_python_interface_takes_seven_round_trips(
    database: Database, round_trips: list[bytes | None]
) -> None:
    app = Scheduler(database.place)
    app.schedules.create(name="job", manual=True, note="x", overlap="allow")
    for _ in range(2):
        round_trips.clear()
        app.schedules.run("job")
    assert len(round_trips) == 7
    app.stop()


def test_a_probe_is_one_round_trip_without_a_transaction(store: Any, round_trips: list[bytes | None]) -> None:
    store.read(lambda tx: tx.read_pending_work(holder="w0"))
    round_trips.clear()
    store.read(lambda tx: tx.read_pending_work(holder="w0"))
    assert round_trips == [b"SELECT 1"]


def test_leasing_takes_three_round_trips_for_any_number_of_buckets(
    store: Any, round_trips: list[bytes | None]
) -> None:
    add(store, *(queued(f"queue-{number}") for number in range(40)))

    def lease(tx: Any) -> int:
        ready = tx.ready_runs(now=NOON, limit=5)
        return len(tx.lease_runs([grant(run) for run in ready if run.queue == "queue-7"]))

    habitual(store, lambda tx: tx.ready_runs(now=NOON, limit=5))
    habitual(store, lambda tx: tx.lease_runs([grant(make_run())]))
    round_trips.clear()
    assert store.write(lease) == 1
    assert round_trips == [b"SELECT 40", b"UPDATE 1", b"COMMIT"]


def test_a_transaction_without_statements_sends_nothing(store: Any, round_trips: list[bytes | None]) -> None:
    round_trips.clear()
    assert store.write(lambda tx: 7) == 7
    with pytest.raises(ValueError, match="stop"):
        store.write(lambda tx: _fail())
    assert round_trips == []


def _fail() -> None:
    raise ValueError("stop")


def test_pipelined_writes_are_visible_to_the_next_query_and_rolled_back_together(store: Any) -> None:
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


def test_a_name_that_was_never_given_is_not_sent(store: Any, round_trips: list[bytes | None]) -> None:
    def undone(tx: Any) -> None:
        tx.get_runs([new_id()])
        tx.put_meta("mark", "5")
        _fail()

    with pytest.raises(ValueError, match="stop"):
        store.write(undone)
    store.write(lambda tx: tx.put_meta("mark", "6"))
    assert round_trips[-1] == b"COMMIT"
    assert store._prepares


def test_more_ride_than_fit_and_all_arrive(store: Any) -> None:
    many = range(3 * MAX_PIPELINED_STATEMENTS + 1)
    habitual(store, lambda tx: tx.put_meta("primed", "yes"))
    store.write(lambda tx: [tx.put_meta(f"it's {n}\\", "'" * n) for n in many])
    assert [store.read(lambda tx, n=n: tx.get_meta(f"it's {n}\\")) for n in many] == ["'" * n for n in many]


def test_a_failing_pipelined_statement_fails_the_transaction(store: Any) -> None:
    row = ("sch_1", 1, "{}", 5, "ada", "")
    habitual(store, lambda tx: tx._execute_many("insert_revisions", [(new_id(), *row[1:])]))
    store.write(lambda tx: tx._execute_many("insert_revisions", [row]))

    def again(tx: Any) -> None:
        tx.put_meta("mark", "5")
        tx._execute_many("insert_revisions", [row])

    with pytest.raises(Conflict):
        store.write(again)
    assert store.write(lambda tx: tx.get_meta("mark")) is None


def test_a_conflict_of_a_pipelined_statement_at_commit_is_retried(own_database: Database) -> None:
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
def test_the_shared_form_writes_the_same_rows(
    store: Any, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    speak = executor.PostgresExecutor._run
    if not alike:
        monkeypatch.setattr(executor, "_differ_only_in", lambda *_: False)

    def noted(self: Any, spoken: Any, values: Any) -> Any:
        told.append(spoken.name)
        return speak(self, spoken, values)

    monkeypatch.setattr(executor.PostgresExecutor, "_run", noted)
    shared: dict[str, Any] = {"made_by": 'ada "a" \\', "dedupe_scope": "shared", "created_at": NOON}
    runs = [make_run(planned_at=NOON - n * MINUTE, **shared) for n in range(5)]
    runs = [*runs, *(make_run(payload={"n": n}, dedupe_scope=f"shared-{n}") for n in range(5))]
    for some in (runs[:5], runs[5:]):
        assert add(store, *some) == {run.id for run in some}
        assert add(store, *some) == set()
    leased = store.write(lambda tx: tx.lease_runs([grant(run) for run in runs]))
    assert [run.id for run in leased] == [run.id for run in runs]
    assert store.write(lambda tx: tx.lease_runs([grant(run) for run in runs])) == []
    ends = [ended(run, outcome_label="done") for run in leased]
    assert store.write(lambda tx: tx.settle_runs(ends)) == {run.id for run in runs}
    assert store.write(lambda tx: tx.settle_runs(ends)) == set()
    kept = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert [kept[run.id].payload for run in runs] == [run.payload for run in runs]
    assert {(run.state, run.outcome_label, run.made_by) for run in kept.values()} == {
        (RunState.SUCCEEDED, "done", made_by) for made_by in ('ada "a" \\', "")
    }
    attempts = store.read(lambda tx: tx.get_run_rows(Attempt, [run.id for run in runs]))
    assert [attempts[run.id] for run in runs] == [(attempt,) for _, attempt in ends]
    short = {name for name in told if name.endswith("_shared")}
    wanted = {"insert_runs_shared", "lease_runs_shared", "settle_runs_shared", "insert_attempts_shared"}
    assert short == (wanted if alike else set())


def test_rows_with_two_sets_of_shared_columns_make_two_batches(store: Any) -> None:
    runs = [make_run(priority=n, fence=n) for n in range(3)]
    add(store, *runs)
    assert len(store.write(lambda tx: tx.lease_runs([grant(run) for run in runs]))) == 3


def test_probes_use_our_planner_settings_and_other_reads_the_defaults(store: Any) -> None:
    assert store.write(lambda tx: shown(tx, "enable_seqscan")) == "off"
    assert store.read(lambda tx: shown(tx, "enable_seqscan")) == "on"
    assert store.read(lambda tx: shown(tx, "plan_cache_mode")) == "auto"
    assert store.write(lambda tx: shown(tx, "plan_cache_mode")) == "force_generic_plan"


def test_behind_a_pooler_no_setting_outlives_a_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "is_pooled", lambda _: True)
    store = database.open()
    run = make_run()
    add(store, run)
    for _ in range(3):
        assert store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs
    assert store.write(lambda tx: shown(tx, "enable_seqscan")) == "off"
    assert [one.id for one in store.write(lambda tx: tx.lease_runs([grant(run)]))] == [run.id]
    with store._pool.connection() as connection:
        settings = connection.execute("SHOW enable_seqscan").fetchall()
        names = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
    assert (settings, names) == ([("on",)], [(0,)])


def test_prepared_writes_are_on_disk_before_the_commit(database: Database) -> None:
    store = database.open()

    def work(tx: Any) -> None:
        tx.put_meta("said", "this")
        waiting.append(tx._executor._connection._pending_sql)
        assert waiting[0]

    waiting: list[Any] = []
    store._commit_timer.wait = lambda *_, **__: waiting.append(bool(waiting[0]))
    store.write(work, commit_at=NOON)
    assert not waiting[1]
    assert store.read(lambda tx: tx.get_meta("said")) == "this"
