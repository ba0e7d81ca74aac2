"""Kill tests: acknowledged commits survive, and no transaction is half applied.

A few kills by default; TIMEWRIGHT_FULL=1 runs two hundred for each case.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import apsw
import psycopg
import pytest

from tests.conformance.support.builders import add, make_run
from tests.conformance.support.databases import open_store
from tests.stores.crash_child import check, last, prepare
from timewright.ports import Store
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import PostgresServer, postgres_server

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
MAX_LINES_BEFORE_THE_KILL = 25
MAX_DELAY_S = 0.012
SEED = "kill"


def rounds(few: int) -> int:
    return 200 if FULL else few


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a child process, which is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.crash_child", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def kill_at_random(process: subprocess.Popen[str], chance: random.Random, kill: Callable[[], None]) -> int:
    """Let it work for a while, kill it, and return the acknowledged commits."""
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    lines = [process.stdout.readline() for _ in range(chance.randrange(MAX_LINES_BEFORE_THE_KILL))]
    threading.Event().wait(chance.random() * MAX_DELAY_S)
    kill()
    lines += process.stdout.readlines()
    # An incomplete last line does not count.
    said = [int(line) for line in lines if line.endswith("\n")]
    return said[-1] if said else 0


def open_again(kind: str, place: str) -> Store:
    return open_store(kind, place, clock=ManualClock(make_run().created_at))


def write_and_be_killed(
    kind: str, place: str, *, few: int, kill: Callable[[subprocess.Popen[str]], None]
) -> int:
    """Run several rounds on the same store; returns the number of transactions in it."""
    store = open_again(kind, place)
    prepare(store)
    store.close()
    done = 0
    for number in range(rounds(few)):
        with child("write", kind, place, SEED) as process:
            said = kill_at_random(process, random.Random(number), lambda p=process: kill(p))  # type: ignore[misc]
        store = open_again(kind, place)
        done = check(store, SEED, acknowledged=max(said, done))
        store.close()
    return done


def kill_child(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)


@pytest.mark.timeout(3600 if FULL else 120)
def test_a_writer_to_a_file_that_is_killed_loses_nothing_it_had_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    done = write_and_be_killed("sqlite", str(path), few=12, kill=kill_child)
    assert done > rounds(12), "there was something to lose"
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.timeout(3600 if FULL else 120)
def test_a_process_killed_while_creating_a_file_leaves_a_valid_one(tmp_path: Path) -> None:
    for number in range(rounds(4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        chance = random.Random(number)
        with child("create", str(folder)) as process:
            assert process.stdout is not None
            for _ in range(1 + chance.randrange(3)):
                assert process.stdout.readline()
            threading.Event().wait(chance.random() * MAX_DELAY_S * 2)
            process.kill()
        for path in sorted(folder.glob("*.db")):
            store = SqliteStore(path)
            assert len(add(store, make_run())) == 1
            store.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(durable=True) as server:
        yield server


@pytest.fixture
def place(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    name = f"tw_{abs(hash(request.node.name))}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.url(name)


@pytest.mark.timeout(3600 if FULL else 120)
def test_a_writer_to_a_server_that_is_killed_loses_nothing_it_had_acknowledged(place: str) -> None:
    assert write_and_be_killed("postgres", place, few=8, kill=kill_child) > rounds(8)


@pytest.mark.timeout(3600 if FULL else 120)
def test_a_server_that_is_killed_loses_nothing_it_had_acknowledged(
    server: PostgresServer, place: str
) -> None:
    def kill_server(process: subprocess.Popen[str]) -> None:
        server.kill()
        process.wait(60)
        server.start()

    assert write_and_be_killed("postgres", place, few=5, kill=kill_server) > rounds(5)


@pytest.mark.timeout(3600 if FULL else 120)
def test_killing_a_backend_loses_no_acknowledged_commit(server: PostgresServer, place: str) -> None:
    def kill_backend(process: subprocess.Popen[str]) -> None:
        for pid in backends(server):
            os.kill(pid, signal.SIGKILL)
        process.wait(60)
        wait_until_recovered(server)

    assert write_and_be_killed("postgres", place, few=4, kill=kill_backend) > rounds(4)


def backends(server: PostgresServer) -> list[int]:
    with psycopg.connect(server.url()) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'timewright'"
        return [int(pid) for (pid,) in connection.execute(query)]


def wait_until_recovered(server: PostgresServer) -> None:
    """Wait until the server accepts connections, without the pool's growing backoff."""
    pause, last = threading.Event(), monotonic() + 60
    while True:
        try:
            psycopg.connect(server.url()).close()
        except psycopg.OperationalError:
            assert monotonic() < last, "the server did not recover"
            pause.wait(0.05)
        else:
            return


def test_the_check_notices_a_commit_that_was_lost(tmp_path: Path) -> None:
    store = open_again("sqlite", str(tmp_path / "store.db"))
    prepare(store)
    with pytest.raises(AssertionError, match="3 were acknowledged, 0 are there"):
        check(store, SEED, acknowledged=3)
    assert last(store) == 0
    store.close()


def test_the_check_notices_a_commit_that_is_there_by_halves(tmp_path: Path) -> None:
    store = open_again("sqlite", str(tmp_path / "store.db"))
    prepare(store)
    store.write(lambda tx: tx.put_meta("last", "1"))
    with pytest.raises(AssertionError):
        check(store, SEED, acknowledged=1)
    store.close()
