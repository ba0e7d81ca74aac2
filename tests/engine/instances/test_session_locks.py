"""On a database server, a process without a session has ended; one that reconnects has not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from threading import Thread

import pytest
from msgspec.structs import replace

from tests.conformance.conftest import clock, database, postgres_place, postgres_template, postgres_url
from tests.conformance.support.builders import add, get, leased, make_run
from tests.conformance.support.databases import Database
from tests.targets.kit import wait_until
from timewright.engine.constants import DEAD_HOLDER_INTERVAL_S, SESSION_RECHECK_S
from timewright.engine.maintenance import DeadHolderCheck
from timewright.ledger.records.instances import InstanceRecord, read_instances, record_heartbeat
from timewright.ports.store import SessionLock
from timewright.stores.postgres import store as postgres
from timewright.stores.postgres.store import PostgresStore
from timewright.testing.clock import ManualClock

__all__ = ["clock", "database", "postgres_place", "postgres_template", "postgres_url"]

HOLDER = "worker-1"
SESSION = """
import sys
from timewright.stores.postgres.store import PostgresStore
store = PostgresStore(sys.argv[1])
print(store.session_lock().key, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def kind() -> str:
    return "postgres"


@pytest.fixture
def store(database: Database) -> PostgresStore:
    opened: PostgresStore = database.open()
    return opened


@pytest.fixture
def other(database: Database) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a session."""
    process = subprocess.Popen(
        [sys.executable, "-c", SESSION, database.place], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


def lock_of(process: subprocess.Popen[bytes], store: PostgresStore) -> SessionLock:
    assert process.stdout is not None
    own = store.session_lock()
    assert own is not None
    return replace(own, key=int(process.stdout.readline()))


def record(store: PostgresStore, session: SessionLock | None) -> None:
    now = store.now()
    one = InstanceRecord(
        id=HOLDER, host="elsewhere", version="1", started_at=now, capacity=1, session=session
    )
    store.write(lambda tx: record_heartbeat(tx, one, now=now))


def check(store: PostgresStore, clock: ManualClock) -> DeadHolderCheck:
    return DeadHolderCheck(store, "own", clock=clock, is_proven_dead=lambda _: False, sessions=store)


def passes(check: DeadHolderCheck, clock: ManualClock, *, times: int) -> list[int]:
    """How many facts each of several checks in a row returns."""
    found = []
    for _ in range(times):
        found.append(len(check.run_if_due()))
        clock.advance(timedelta(seconds=DEAD_HOLDER_INTERVAL_S))
    return found


def hold(store: PostgresStore, *needs: str) -> str:
    run = make_run(needs=needs)
    add(store, run)
    leased(store, run)
    return run.id


def test_a_killed_process_is_replaced_in_the_second_check(
    store: PostgresStore, other: subprocess.Popen[bytes], clock: ManualClock
) -> None:
    lock, run = lock_of(other, store), hold(store)
    record(store, lock)
    checker = check(store, clock)
    assert passes(checker, clock, times=3) == [0, 0, 0]
    other.kill()
    wait_until(lambda: lock not in store.held_session_locks())
    assert checker.run_if_due() == []
    clock.advance(timedelta(seconds=SESSION_RECHECK_S))
    assert checker.run_if_due()
    assert get(store, run).state == "ready"
    assert store.read(lambda tx: read_instances(tx, limit=9))[0].instance.stopped


def test_a_restart_of_the_server_proves_nothing(store: PostgresStore, clock: ManualClock) -> None:
    own, run = store.session_lock(), hold(store)
    assert own is not None
    record(store, replace(own, key=own.key ^ 1, server="an earlier start"))
    assert passes(check(store, clock), clock, times=3) == [0, 0, 0]
    record(store, None)
    assert passes(check(store, clock), clock, times=3) == [0, 0, 0]
    assert get(store, run).state == "leased"


def test_a_process_that_lost_its_sessions_reconnects_before_the_second_check(
    store: PostgresStore, database: Database
) -> None:
    """An administrator ends all its sessions: the listener takes the lock again."""
    living = PostgresStore(database.place)
    listener = living.change_listener()
    thread = Thread(target=lambda: [None for _ in listener.changes()])
    thread.start()
    try:
        lock = living.session_lock()
        pids = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = ?"
        assert lock is not None
        before = wait_until(lambda: found if len(found := database.sql(pids, [lock.key])) > 1 else [])
        database.sql(f"SELECT pg_terminate_backend(pid) FROM ({pids}) AS held", [lock.key])
        wait_until(lambda: set(database.sql(pids, [lock.key])) - set(before))
        assert lock in store.held_session_locks()
    finally:
        listener.close()
        thread.join()
        living.close()


def test_a_command_of_a_killed_process_on_another_host_keeps_its_lease(
    store: PostgresStore, clock: ManualClock
) -> None:
    own = store.session_lock()
    assert own is not None
    command, call = hold(store, "shell:sleep"), hold(store, "call:work")
    record(store, replace(own, key=own.key ^ 1))
    passes(check(store, clock), clock, times=3)
    assert (get(store, command).state, get(store, call).state) == ("leased", "ready")
    assert not store.read(lambda tx: read_instances(tx, limit=9))[0].instance.stopped


def test_behind_a_pooler_no_lock_is_taken(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "is_pooled", lambda _: True)
    store = database.open()
    assert store.session_lock() is None
    assert store.held_session_locks() == frozenset()
