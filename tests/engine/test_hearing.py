"""What another process writes is seen soon: a file is compared, a server calls, and a rest ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest

from tests.engine.faults import PATIENCE, CountingWaker
from tests.engine.fleet import until
from timewright import Scheduler, every
from timewright.assembly import announced, open_store
from timewright.core.backoff import Constant
from timewright.core.policies import Retry
from timewright.core.triggers import Once
from timewright.errors import InvalidInput
from timewright.ports import Ear
from timewright.stores import hearing
from timewright.stores.hearing import FileEar, ServerEar
from timewright.stores.postgres import PostgresStore
from timewright.stores.sqlite import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.targets import fail

SECOND = timedelta(seconds=1)


class Heard:
    """What an ear hears, gathered on a thread of its own."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def wait(self) -> None:
        """Until it has heard once more."""
        self._calls.get(timeout=PATIENCE)

    @property
    def nothing(self) -> bool:
        return self._calls.empty()

    def close(self) -> None:
        self._ear.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _listen(self) -> None:
        for _ in self._ear.calls():
            self._calls.put(True)


# Between processes.


def test_what_another_store_object_writes_ends_a_rest_of_a_minute(place: str) -> None:
    with Scheduler(place) as app:
        until(lambda: app.house.loop.pulse.ticks, "the first tick")
        until(lambda: app.house.loop._rests_until.year < 9999, "the rest to begin")
        other = Scheduler(place)
        other.schedules.create(name="soon", every="1s", note="now")
        until(lambda: other.runs.list(state="succeeded")["runs"], "the rest to end", seconds=45)
        other.stop()


def test_what_the_command_line_writes_ends_a_rest_of_a_minute(place: str) -> None:
    with Scheduler(place) as app:
        app.schedules.create(name="by-hand", manual={}, note="now")
        until(lambda: app.house.loop.pulse.ticks, "the first tick")
        command = [sys.executable, "-m", "timewright", "schedule", "run", "by-hand", "--store", place]
        paths = os.pathsep.join(path for path in sys.path if path)
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": paths})
        until(lambda: app.runs.list(state="succeeded")["runs"], "the rest to end", seconds=45)


# A file.


def test_an_ear_on_a_file_hears_each_change_once_and_rests_while_nothing_is_known() -> None:
    versions = [1, 1, None, 2, 2, None, 3]
    ear = FileEar(lambda: versions.pop(0), every=0)
    calls = ear.calls()
    next(calls)
    assert versions == [2, None, 3]
    next(calls)
    assert versions == []
    ear.close()
    assert list(calls) == []


def test_the_version_of_a_file_changes_for_others_and_not_for_the_one_who_writes(file: str) -> None:
    one, two = SqliteStore(file), SqliteStore(file)
    before = one.version(), two.version()
    one.write(lambda tx: tx.put_meta("said", "by one"))
    assert one.version() == before[0]
    assert two.version() != before[1]
    with one._writing:
        assert one.version() is None, "nobody waits for a writer to compare a number"
    one.close()
    two.close()


def test_a_store_in_memory_has_nobody_to_hear() -> None:
    store = SqliteStore(":memory:")
    assert store.ear() is None
    store.close()


# A server.


@pytest.fixture
def two(database: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    stores = PostgresStore(database), PostgresStore(database)
    yield stores
    for store in stores:
        store.close()


def test_an_ear_on_a_server_hears_others_and_not_itself(two: tuple[PostgresStore, PostgresStore]) -> None:
    mine, theirs = two
    heard = Heard(mine.ear())
    heard.wait()
    mine.notify()
    assert heard.nothing
    theirs.notify()
    heard.wait()
    heard.close()


def test_an_ear_whose_connection_broke_listens_again_and_looks_for_what_it_missed(
    two: tuple[PostgresStore, PostgresStore], database: str
) -> None:
    mine, theirs = two
    ear = mine.ear()
    ear._retry = 0.01
    heard = Heard(ear)
    heard.wait()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
    heard.wait()
    theirs.notify()
    heard.wait()
    heard.close()


def test_behind_a_pooler_nobody_listens_and_it_looks_now_and_then(
    two: tuple[PostgresStore, PostgresStore], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "is_pooled", lambda connection: True)
    monkeypatch.setattr(hearing, "LOOK_WITHOUT_CALLS", 0.01)
    heard = Heard(two[0].ear())
    heard.wait()
    heard.wait()
    with psycopg.connect(database, autocommit=True) as admin:
        found = admin.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        ).fetchone()
    assert found == (0,)
    heard.close()


def test_a_connection_without_a_pooler_is_known_as_such(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert hearing.is_pooled(connection) is False


def test_an_ear_is_closed_at_once_also_while_the_server_is_away() -> None:
    def connect() -> psycopg.Connection:
        raise psycopg.OperationalError("away")

    tried = threading.Event()

    def trying() -> psycopg.Connection:
        tried.set()
        return connect()

    heard = Heard(ServerEar(trying, channel="c", own="me", retry=60))
    assert tried.wait(PATIENCE)
    heard.close()
    assert heard.nothing


# What the loop makes of it.


@pytest.fixture
def resting() -> Bench:
    """A bench that rests for a minute, whose waker counts."""
    bench = Bench()
    bench.loop.waker = CountingWaker()
    assert bench.loop.step() == 60.0
    return bench


def woken(bench: Bench) -> int:
    waker = bench.loop.waker
    assert isinstance(waker, CountingWaker)
    bench.loop.heard()
    return waker.woken


def test_a_rest_is_ended_by_what_comes_before_its_end_and_by_nothing_else(resting: Bench) -> None:
    assert woken(resting) == 0
    resting.schedule("after-the-rest", Once(resting.now + 90 * SECOND))
    assert woken(resting) == 0
    resting.schedule("within-the-rest", Once(resting.now + 30 * SECOND))
    assert woken(resting) == 1


def test_what_is_heard_before_the_first_tick_is_left_to_it() -> None:
    bench = Bench()
    bench.loop.waker = CountingWaker()
    bench.schedule("soon", every("1s"))
    assert woken(bench) == 0


def test_what_is_heard_during_a_tick_is_not_lost(resting: Bench) -> None:
    """Before the tick knows how long it will rest, nobody can say what comes before its end."""
    run = resting.loop.tick.run

    def run_and_hear(**arguments: Any) -> bool:
        full = run(**arguments)
        resting.schedule("later", every("45s"))
        resting.loop.heard()
        return full

    resting.loop.tick.run = run_and_hear  # type: ignore[method-assign]
    resting.loop.step()
    assert isinstance(resting.loop.waker, CountingWaker)
    assert resting.loop.waker.woken == 1


def test_others_are_called_when_a_retry_brings_something_nearer_and_not_otherwise() -> None:
    bench = Bench()
    calls: list[int] = []
    bench.loop.call_others = lambda: calls.append(1)
    bench.schedule("fine", every("1h"))
    bench.advance(hours=1)
    assert calls == []
    bench.schedule("fails", every("1h"), retry=Retry(max_attempts=2, backoff=Constant(wait=SECOND)))
    bench.target.script("fails", fail())
    bench.advance(hours=1)
    assert calls == [1]


# Who calls.


def test_every_operation_that_commits_calls_and_one_that_is_refused_does_not(place: str) -> None:
    store, calls = open_store(place), list[str]()
    loud = announced(store, also=lambda: calls.append("call"))
    loud.write(lambda tx: tx.put_meta("said", "this"))
    assert calls == ["call"]
    assert loud.read(lambda tx: tx.get_meta("said")) == "this"

    def refuse(tx: object) -> None:
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        loud.write(refuse)
    assert calls == ["call"]
    loud.close()


def test_a_store_that_nobody_can_hear_is_left_as_it_is(file: str) -> None:
    store = open_store(file)
    assert announced(store) is store
    store.close()


def test_an_ear_that_nobody_listens_with_any_more_is_closed_in_peace(postgres_url: str) -> None:
    ear = ServerEar(lambda: psycopg.connect(postgres_url, autocommit=True), channel="c", own="me")
    calls = ear.calls()
    next(iter(calls))
    calls.close()  # type: ignore[attr-defined]
    ear.close()
