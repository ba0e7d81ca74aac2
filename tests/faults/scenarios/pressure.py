"""PostgreSQL on bad days: old snapshots, idle sessions, no connections, killed workers, failover."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.scenario import FaultEnvironment, FaultScenario
from tests.faults.tools.proxy import proxied
from tests.faults.tools.tick_schedules import (
    assert_each_instant_once,
    create_tick_schedules,
    wait_for_catch_up,
    wait_for_first_runs,
)
from tests.faults.tools.worker_fleet import WorkerFleet, expect, wait_until
from timewright.errors import StoreError
from timewright.testing import postgres
from timewright.testing.postgres import PostgresServer, postgres_server

DELAY_S = 0.02
ACKNOWLEDGED = 20
STORM_CLIENTS = 8
KILLS = 3
SETTINGS = ("listen_addresses=", "max_connections=200", "hot_standby=on")


def _one(session: psycopg.Connection[Any], sql: str) -> Any:
    row = session.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]


def _is_connected(fleet: WorkerFleet) -> bool:
    try:
        fleet.app.runs.list(limit=1)
    except StoreError:
        return False
    return True


def _end(fleet: WorkerFleet, names: list[str]) -> None:
    wait_for_catch_up(fleet, names)
    fleet.stop()
    assert_each_instant_once(fleet, names, skipped={"overlap"})


def pinned_snapshot(environment: FaultEnvironment) -> str:
    """A session keeps a snapshot open, so the server can remove no dead row."""
    with environment.database() as url, environment.fleet(url) as fleet, psycopg.connect(url) as other:
        names = create_tick_schedules(fleet)
        fleet.start(2)
        wait_for_first_runs(fleet, names)
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM runs")
        threading.Event().wait(environment.held_s)
        wait_for_catch_up(fleet, names)
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("VACUUM schedules")
            session.execute("SELECT pg_stat_force_next_flush()")
            dead = _one(session, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'schedules'")
        expect(dead > 0, "dead rows that a vacuum cannot remove")
        _end(fleet, names)
        return f"{dead} dead rows of schedules kept by the snapshot, no instant late or lost"


def idle_in_transaction(environment: FaultEnvironment) -> str:
    """A session locks the row of one schedule and then does nothing; the others go on."""
    with environment.database() as url, environment.fleet(url) as fleet, psycopg.connect(url) as other:
        names = create_tick_schedules(fleet)
        fleet.start()
        wait_for_first_runs(fleet, names)
        other.execute("SELECT 1 FROM schedules WHERE name = %s FOR UPDATE", [names[0]])
        before = [len(fleet.rows(name)) for name in names]
        threading.Event().wait(environment.held_s)
        waited, *others = [len(fleet.rows(name)) - was for name, was in zip(names, before, strict=True)]
        expect(min(others) >= environment.held_s / 2, f"the other schedules to go on, not {others} rows")
        expect(waited <= 1, f"the locked schedule to wait, not {waited} rows")
        other.rollback()
        _end(fleet, names)
        return f"the locked schedule waited, the others made {others} rows; then caught up"


def connections_used_up(environment: FaultEnvironment) -> str:
    """Other clients take every connection that the server allows, and give them back."""
    with (
        postgres_server(durable=True, settings={"max_connections": "30"}) as server,
        environment.fleet(server.url()) as fleet,
        ExitStack() as taken,
    ):
        names = create_tick_schedules(fleet)
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        count = 0
        with suppress(psycopg.OperationalError):
            while True:
                taken.enter_context(psycopg.connect(server.url()))
                count += 1
        threading.Event().wait(environment.held_s)
        taken.close()
        expect(not worker.has_ended, "the worker to survive")
        _end(fleet, names)
        return f"{count} foreign connections left none free; then caught up"


def connection_storm(environment: FaultEnvironment) -> str:
    """Other clients connect and leave all the time, eight at once."""
    with environment.database() as url, environment.fleet(url) as fleet:
        names = create_tick_schedules(fleet)
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        until = time.monotonic() + environment.held_s
        counts = [0] * STORM_CLIENTS

        def connect(number: int) -> None:
            while time.monotonic() < until:
                psycopg.connect(url).close()
                counts[number] += 1

        clients = [threading.Thread(target=connect, args=(number,)) for number in range(STORM_CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        expect(min(counts) > 0, f"every client to connect, not {counts}")
        expect(not worker.has_ended, "the worker to survive")
        _end(fleet, names)
        return f"{sum(counts)} connections came and went, no second lost"


def workers_killed(environment: FaultEnvironment) -> str:
    """One of two workers is killed again and again; each time another one starts."""
    with environment.database() as url, environment.fleet(url) as fleet:
        names = create_tick_schedules(fleet)
        victim, _ = fleet.start(2)
        wait_for_first_runs(fleet, names)
        for _ in range(KILLS):
            victim.send_signal(signal.SIGKILL)
            victim.wait_for_exit()
            fleet.workers.remove(victim)
            victim.close()
            (victim,) = fleet.start()
            wait_for_catch_up(fleet, names)
        _end(fleet, names)
        return f"{KILLS} workers killed, {len(fleet.journal_lines('began'))} calls, no lease called twice"


def slow_network(environment: FaultEnvironment) -> str:
    """Every message between worker and server takes 20 ms each way."""
    with (
        environment.database() as url,
        proxied(url) as proxy,
        environment.fleet(url, worker_store_url=proxy.url) as fleet,
    ):
        names = create_tick_schedules(fleet)
        proxy.delay_s = DELAY_S
        fleet.start()
        wait_for_first_runs(fleet, names)
        wait_until(lambda: len(fleet.journal_lines("began")) >= 5 * len(names), "five seconds of work")
        _end(fleet, names)
        calls = len(fleet.journal_lines("began"))
        return f"{calls} calls with {2 * DELAY_S * 1000:.0f} ms a round trip, none twice"


def failover(environment: FaultEnvironment) -> str:
    """The primary is killed; its synchronous standby is promoted and takes over."""
    with postgres_server(durable=True) as primary, ExitStack() as stack:
        standby = stack.enter_context(_standby(primary))
        with psycopg.connect(primary.url(), autocommit=True) as session:
            session.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            session.execute("SELECT pg_reload_conf()")
        proxy = stack.enter_context(proxied(primary.url()))
        fleet = stack.enter_context(environment.fleet(proxy.url))
        names = create_tick_schedules(fleet)
        fleet.schedule("asked", "note", every="1h", overlap="allow")
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        acknowledged = [fleet.run("asked") for _ in range(ACKNOWLEDGED)]
        primary.kill()
        with psycopg.connect(standby, autocommit=True) as session:
            expect(_one(session, "SELECT pg_promote(true, 60)"), "the standby to be promoted")
        proxy.switch_to(standby)
        wait_until(lambda: _is_connected(fleet), "a new connection")
        for run in acknowledged:
            fleet.wait_for_state(run)
        expect(not worker.has_ended, "the worker to survive")
        _end(fleet, names)
        return f"{ACKNOWLEDGED} acknowledged runs are on the new primary and done, no second lost"


@contextmanager
def _standby(primary: PostgresServer) -> Iterator[str]:
    """A streaming standby of the primary, made with pg_basebackup; yields its URL."""
    user = postgres._server_user()
    # Another user may not be able to enter our folder; the primary runs from a copy that it can.
    server = Path(f"/proc/{primary.pid}/exe").resolve() if user else postgres._binaries() / "bin" / "postgres"
    binaries = server.parent
    run_as: dict[str, Any] = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:
        if user:
            os.chown(folder, *user)
        data = Path(folder) / "d"
        subprocess.run(
            [binaries / "pg_basebackup", "-d", primary.url(), "-D", data, "-R", "-X", "stream", "-c", "fast"],
            check=True, capture_output=True, cwd="/", **run_as,
        )  # fmt: skip
        settings = [part for setting in SETTINGS for part in ("-c", setting)]
        process = subprocess.Popen(
            [server, "-D", data, "-k", folder, *settings],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **run_as,
        )  # fmt: skip
        try:
            with psycopg.connect(primary.url(), autocommit=True) as session:
                streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
                wait_until(lambda: _one(session, streams) == 1, "the standby to stream")
            yield postgres._url(folder, "postgres")
        finally:
            process.terminate()
            process.wait()


SCENARIOS = (
    FaultScenario(
        name="pinned-snapshot",
        row="D14",
        action="another session keeps a repeatable-read snapshot open, as pg_dump does",
        expected="every instant once; dead rows stay until it ends",
        run=pinned_snapshot,
        quick=True,
    ),
    FaultScenario(
        name="idle-in-transaction",
        row="D13",
        action="another session locks one schedule and is idle in its transaction",
        expected="the other schedules go on, the locked one catches up",
        run=idle_in_transaction,
        quick=True,
    ),
    FaultScenario(
        name="connections-used-up",
        row="D8",
        action="other clients take every connection of the server",
        expected="the worker survives and catches up, no second lost",
        run=connections_used_up,
        quick=True,
    ),
    FaultScenario(
        name="connection-storm",
        row="D8",
        action=f"{STORM_CLIENTS} clients connect to the server and leave, all the time",
        expected="full function, every instant once",
        run=connection_storm,
        quick=True,
    ),
    FaultScenario(
        name="workers-killed",
        row="A3",
        action=f"one of two workers on PostgreSQL is killed with kill -9, {KILLS} times, and replaced",
        expected="the other does its work; every instant once",
        run=workers_killed,
        quick=True,
    ),
    FaultScenario(
        name="slow-network",
        row="D3",
        action=f"every message takes {DELAY_S * 1000:.0f} ms each way",
        expected="full function, every instant once",
        run=slow_network,
        quick=True,
    ),
    FaultScenario(
        name="failover",
        row="D7",
        action="the primary is killed with kill -9; a synchronous streaming standby is promoted",
        expected="nothing acknowledged is lost, no second lost",
        run=failover,
        quick=True,
    ),
)
