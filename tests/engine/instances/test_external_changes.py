"""Writes of other processes end a sleep: files are polled, PostgreSQL notifies."""

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

from tests.engine.fakes import TIMEOUT_S, CountingWaker
from tests.faults.tools.worker_fleet import wait_until
from timewright import Scheduler, every
from timewright.core.policies.backoff import Constant
from timewright.core.policies.policies import Retry
from timewright.core.recurrence.triggers import Once
from timewright.core.run.run import RunState
from timewright.errors import InvalidInput
from timewright.ports import ChangeListener
from timewright.stores import listeners
from timewright.stores.listeners import FilePoller, PostgresListener
from timewright.stores.postgres.store import PostgresStore
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.targets import fail
from timewright.wiring import open_store, with_notifications

SECOND = timedelta(seconds=1)
MINUTE = 60 * SECOND


class ReceivedChanges:
    """Collects the changes of a listener on a thread."""

    def __init__(self, listener: ChangeListener) -> None:
        self._listener = listener
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the next change."""
        self._calls.get(timeout=TIMEOUT_S)

    @property
    def nothing(self) -> bool:
        return self._calls.empty()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _listen(self) -> None:
        for _ in self._listener.changes():
            self._calls.put(True)


# Between processes.


def test_a_write_through_another_store_object_ends_a_sleep(place: str) -> None:
    with Scheduler(place) as app:
        wait_until(lambda: app.instance.loop.health.ticks, "the first tick")
        wait_until(lambda: app.instance.loop.sleep_plan.sleeps_until.year < 9999, "the rest to begin")
        other = Scheduler(place)
        other.schedules.create(name="soon", every="1s", note="now")
        wait_until(lambda: other.runs.list(state="succeeded").runs, "the rest to end", seconds=45)
        other.stop()


def test_a_write_by_the_command_line_ends_a_sleep(place: str) -> None:
    with Scheduler(place) as app:
        app.schedules.create(name="by-hand", manual={}, note="now")
        wait_until(lambda: app.instance.loop.health.ticks, "the first tick")
        command = [sys.executable, "-m", "timewright", "schedule", "run", "by-hand", "--store", place]
        paths = os.pathsep.join(path for path in sys.path if path)
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": paths})
        wait_until(lambda: app.runs.list(state="succeeded").runs, "the rest to end", seconds=45)


# SQLite.


def test_a_write_before_the_first_poll_ends_a_sleep(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written, changes = threading.Event(), FilePoller.changes

    def changes_after_the_write(listener: FilePoller) -> Iterator[None]:
        written.wait(TIMEOUT_S)
        yield from changes(listener)

    monkeypatch.setattr(FilePoller, "changes", changes_after_the_write)
    with Scheduler(file) as app:
        wait_until(lambda: app.instance.loop.sleep_plan.sleeps_until.year < 9999, "the rest to begin")
        other = Scheduler(file)
        other.schedules.create(name="soon", every="1s", note="now")
        written.set()
        wait_until(lambda: other.runs.list(state="succeeded").runs, "the rest to end", seconds=45)
        other.stop()


def test_a_file_poller_reports_each_change_once() -> None:
    versions = [1, 1, None, 2, 2, None, 3]
    listener = FilePoller(lambda: versions.pop(0), interval_s=0)
    calls = listener.changes()
    next(calls)
    assert versions == [1, None, 2, 2, None, 3], "what came before the first poll may have been missed"
    next(calls)
    assert versions == [2, None, 3]
    next(calls)
    assert versions == []
    listener.close()
    assert list(calls) == []


def test_the_data_version_changes_for_other_connections_only(file: str) -> None:
    one, two = SqliteStore(file), SqliteStore(file)
    before = one.data_version(), two.data_version()
    one.write(lambda tx: tx.put_meta("said", "by one"))
    assert one.data_version() == before[0]
    assert two.data_version() != before[1]
    with one._writer_lock:
        assert one.data_version() is None, "a reader does not wait for a writer"
    one.close()
    two.close()


def test_a_store_in_memory_has_no_change_listener() -> None:
    store = SqliteStore(":memory:")
    assert store.change_listener() is None
    store.close()


# PostgreSQL.


@pytest.fixture
def two(database: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    stores = PostgresStore(database), PostgresStore(database)
    yield stores
    for store in stores:
        store.close()


def test_a_postgres_listener_receives_changes_of_others_only(
    two: tuple[PostgresStore, PostgresStore],
) -> None:
    mine, theirs = two
    received = ReceivedChanges(mine.change_listener())
    received.wait()
    mine.notify()
    assert received.nothing
    theirs.notify()
    received.wait()
    received.close()


def test_a_listener_reconnects_and_reports_a_possible_miss(
    two: tuple[PostgresStore, PostgresStore], database: str
) -> None:
    mine, theirs = two
    listener = mine.change_listener()
    listener._retry = 0.01
    received = ReceivedChanges(listener)
    received.wait()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
    received.wait()
    theirs.notify()
    received.wait()
    received.close()


def test_the_first_notification_is_reported_at_once_and_a_close_ends_the_pause_after_it(
    two: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "NOTIFY_PAUSE_FACTOR", 1e12)
    monkeypatch.setattr(listeners, "MAX_NOTIFY_PAUSE_S", 3600)
    mine, theirs = two
    received = ReceivedChanges(mine.change_listener())
    received.wait()
    theirs.notify()
    received.wait()
    received.close()


def test_behind_a_pooler_the_listener_polls(
    two: tuple[PostgresStore, PostgresStore], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "is_pooled", lambda connection: True)
    monkeypatch.setattr(listeners, "POLL_WITHOUT_NOTIFY_S", 0.01)
    received = ReceivedChanges(two[0].change_listener())
    received.wait()
    received.wait()
    with psycopg.connect(database, autocommit=True) as admin:
        found = admin.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        ).fetchone()
    assert found == (0,)
    received.close()


def test_a_connection_without_a_pooler_is_known_as_such(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert listeners.is_pooled(connection) is False


def test_a_listener_closes_at_once_even_if_the_server_is_down() -> None:
    def connect() -> psycopg.Connection:
        raise psycopg.OperationalError("away")

    tried = threading.Event()

    def trying() -> psycopg.Connection:
        tried.set()
        return connect()

    received = ReceivedChanges(PostgresListener(trying, channel="c", own_id="me", reconnect_after_s=60))
    assert tried.wait(TIMEOUT_S)
    received.close()
    assert received.nothing


# The loop.


@pytest.fixture
def resting() -> Bench:
    """A bench that sleeps for a minute, with a counting waker."""
    bench = Bench()
    bench.loop.waker = CountingWaker()
    assert bench.loop.step() == 60.0
    return bench


def woken(bench: Bench) -> int:
    waker = bench.loop.waker
    assert isinstance(waker, CountingWaker)
    bench.loop.on_external_change()
    return waker.woken


def test_only_a_change_that_is_due_earlier_ends_a_sleep(resting: Bench) -> None:
    assert woken(resting) == 0
    resting.schedule("after-the-rest", Once(resting.now + 90 * SECOND))
    assert woken(resting) == 0
    resting.schedule("within-the-rest", Once(resting.now + 30 * SECOND))
    assert woken(resting) == 1


def test_a_schedule_that_another_instance_set_aside_ends_the_sleep(resting: Bench) -> None:
    """Another instance could not run it, and saw our offer only afterwards."""
    made = resting.schedule("ours", every("1h"))
    resting.clock.advance(hours=1)
    set_aside(resting, made.id)
    assert woken(resting) == 1
    assert resting.loop.step() < 1.0, "it is due again, and decided by the next tick"
    resting.loop.step()
    assert [run.state for run in resting.runs("ours")] == [RunState.LEASED]


def test_a_schedule_that_was_set_aside_at_its_own_instant_is_decided_at_once(resting: Bench) -> None:
    made = resting.schedule("ours", every("1h"))
    assert resting.loop.step() == 60.0
    run = resting.loop.tick.run

    def run_after_another(**arguments: Any) -> bool:
        # Between the query that announced the schedule and its admission.
        set_aside(resting, made.id)
        return run(**arguments)

    resting.loop.tick.run = run_after_another  # type: ignore[method-assign]
    resting.clock.advance(hours=1)
    assert resting.loop.step() < 1.0
    resting.loop.tick.run = run  # type: ignore[method-assign]
    assert resting.loop.step() < 1.0, "it is due again, and decided by the next tick"
    resting.loop.step()
    assert [run.state for run in resting.runs("ours")] == [RunState.LEASED]


def set_aside(bench: Bench, schedule_id: str) -> None:
    later = bench.now + 10 * MINUTE
    bench.store.write(lambda tx: tx.set_aside([(schedule_id, ("call:ours",))], until=later))


def test_a_change_before_the_first_tick_is_left_to_it() -> None:
    bench = Bench()
    bench.loop.waker = CountingWaker()
    bench.schedule("soon", every("1s"))
    assert woken(bench) == 0


def test_a_change_during_a_tick_is_not_lost(resting: Bench) -> None:
    """Until the length of the sleep is known, every change wakes the tick."""
    run = resting.loop.tick.run

    def run_and_notify(**arguments: Any) -> bool:
        full = run(**arguments)
        resting.schedule("later", every("45s"))
        resting.loop.on_external_change()
        return full

    resting.loop.tick.run = run_and_notify  # type: ignore[method-assign]
    resting.loop.step()
    assert isinstance(resting.loop.waker, CountingWaker)
    assert resting.loop.waker.woken == 1


def test_other_instances_are_notified_of_a_retry_and_not_of_a_success() -> None:
    bench = Bench()
    calls: list[int] = []
    bench.loop.notify_others = lambda: calls.append(1)
    bench.schedule("fine", every("1h"))
    bench.advance(hours=1)
    assert calls == []
    bench.schedule("fails", every("1h"), retry=Retry(max_attempts=2, backoff=Constant(wait=SECOND)))
    bench.target.script("fails", fail())
    bench.advance(hours=1)
    assert calls == [1]


# Notifications.


def test_every_committed_operation_notifies_and_a_rejected_one_does_not(place: str) -> None:
    store, calls = open_store(place), list[str]()
    loud = with_notifications(store, wake=lambda: calls.append("call"))
    loud.write(lambda tx: tx.put_meta("said", "this"))
    assert calls == ["call"]
    assert loud.read(lambda tx: tx.get_meta("said")) == "this"

    def refuse(tx: object) -> None:
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        loud.write(refuse)
    assert calls == ["call"]
    loud.close()


def test_a_store_without_notifications_is_not_wrapped(file: str) -> None:
    store = open_store(file)
    assert with_notifications(store) is store
    store.close()


def test_an_unused_listener_closes_without_error(postgres_url: str) -> None:
    listener = PostgresListener(
        lambda: psycopg.connect(postgres_url, autocommit=True), channel="c", own_id="me"
    )
    calls = listener.changes()
    next(iter(calls))
    calls.close()  # type: ignore[attr-defined]
    listener.close()
