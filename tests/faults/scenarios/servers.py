"""Scenarios of PostgreSQL: lost and stalled connections, restarts, foreign locks, and PgBouncer."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg

from tests.faults.scenario import FaultEnvironment, FaultScenario
from tests.faults.tools.pgbouncer import pgbouncer_url
from tests.faults.tools.proxy import CutPoint, Proxy, proxied
from tests.faults.tools.tick_schedules import (
    assert_each_instant_once,
    create_tick_schedules,
    wait_for_catch_up,
    wait_for_first_runs,
)
from tests.faults.tools.worker_fleet import WorkerFleet, expect, wait_until
from timewright.testing.postgres import postgres_server

CUT_COUNT = 10
LEASE_S = 3.0
LOCKED_FOR_S = 6.5


@contextmanager
def worker_behind_proxy(environment: FaultEnvironment) -> Iterator[tuple[WorkerFleet, Proxy, list[str]]]:
    """One worker behind a proxy that can cut its connections; the test reads directly."""
    with (
        environment.database() as url,
        proxied(url) as proxy,
        environment.fleet(url, worker_store_url=proxy.url) as fleet,
    ):
        names = create_tick_schedules(fleet)
        fleet.start()
        wait_for_first_runs(fleet, names)
        yield fleet, proxy, names


def cut_at_commit(environment: FaultEnvironment, order: CutPoint) -> str:
    """Connections break at commits, so their outcome is unknown; nothing may be lost or repeated."""
    with worker_behind_proxy(environment) as (fleet, proxy, names):
        for number in range(1, CUT_COUNT + 1):
            proxy.cut_at_commit(order)
            wait_until(partial(proxy.has_cut, order, number), f"commit {number} to be cut")
        wait_for_catch_up(fleet, names)
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"{proxy.cuts[order]} commits cut, {len(fleet.journal_lines('began'))} calls, none twice"


def cut_before_commit(environment: FaultEnvironment) -> str:
    """The commit never reaches the server."""
    return cut_at_commit(environment, "before")


def cut_after_commit(environment: FaultEnvironment) -> str:
    """The commit is applied, and its answer is lost."""
    return cut_at_commit(environment, "after")


def stalled_connection(environment: FaultEnvironment) -> str:
    """The connection stalls: nothing is answered, and no connection ends."""
    with worker_behind_proxy(environment) as (fleet, proxy, names):
        fleet.schedule("long", "until_cancelled", lease=f"{LEASE_S:g}s")
        run = fleet.run("long")
        fleet.wait_for_line("began", schedule="long")
        began = time.monotonic()
        proxy.stall()
        fleet.wait_for_line("cancelled:_lease_not_renewed_in_time", schedule="long")
        ended = time.monotonic() - began
        expect(ended < LEASE_S, f"work ended before its lease, not after {ended:.1f} s of {LEASE_S:g} s")
        proxy.drop_connections()
        wait_for_catch_up(fleet, names)
        fences = [attempt.fence for attempt in fleet.wait_for_state(run).attempts]
        expect(fences == [1, 2], f"one lease lost and one kept, not {fences}")
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"work ended {ended:.1f} s into the stall, before its lease of {LEASE_S:g} s; resumed after it"


def server_restart(environment: FaultEnvironment) -> str:
    """The server is shut down and started again."""
    with (
        postgres_server(durable=True) as server,
        environment.fleet(server.url()) as fleet,
    ):
        names = create_tick_schedules(fleet)
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        os.kill(server.pid, signal.SIGINT)
        server.start()
        wait_for_catch_up(fleet, names)
        expect(not worker.has_ended, "the worker to survive")
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"{len(fleet.rows(names[0]))} s accounted for"


def foreign_locks(environment: FaultEnvironment) -> str:
    """Another transaction locks the runs for longer than our lock timeout."""
    with (
        environment.database() as url,
        environment.fleet(url) as fleet,
        psycopg.connect(url) as other,
    ):
        names = create_tick_schedules(fleet)
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        other.execute("LOCK TABLE runs IN EXCLUSIVE MODE")
        before = len(fleet.rows(names[0]))
        threading.Event().wait(LOCKED_FOR_S)
        expect(len(fleet.rows(names[0])) == before, "reads to go on, and no writes")
        other.rollback()
        wait_for_catch_up(fleet, names)
        expect(not worker.has_ended, "the worker to survive")
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"no writes for {LOCKED_FOR_S:g} s at {before} rows, then caught up"


def behind_pgbouncer(environment: FaultEnvironment) -> str:
    """Two workers, three server sessions, each transaction in whichever session is free."""
    with (
        environment.database() as url,
        pgbouncer_url(url) as through,
        environment.fleet(url, worker_store_url=through) as fleet,
    ):
        names = create_tick_schedules(fleet)
        fleet.schedule("asked", "note")
        fleet.start(2)
        wait_for_first_runs(fleet, names)
        fleet.wait_for_state(fleet.run("asked"))
        wait_until(lambda: len(fleet.journal_lines("began")) >= 5 * len(names), "five seconds of work")
        wait_for_catch_up(fleet, names)
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"{len(fleet.journal_lines('began'))} calls by two workers over three sessions, none twice"


SCENARIOS = (
    FaultScenario(
        name="cut-before-commit",
        row="D2",
        action=f"the connection is cut at {CUT_COUNT} commits, each before it reaches the server",
        expected="read again by key, retried; every instant once",
        run=cut_before_commit,
    ),
    FaultScenario(
        name="cut-after-commit",
        row="D2, A2",
        action=f"the connection is cut at {CUT_COUNT} commits, each applied and its answer lost",
        expected="read again by key, not repeated; every instant once",
        run=cut_after_commit,
    ),
    FaultScenario(
        name="stalled-connection",
        row="D3",
        action="connections stall without ending; later they are all closed",
        expected="work ends before its lease; afterwards everything is caught up",
        run=stalled_connection,
    ),
    FaultScenario(
        name="server-restart",
        row="D5",
        action="the server is shut down under a worker, and started again",
        expected="reconnects by itself, no second lost",
        run=server_restart,
    ),
    FaultScenario(
        name="foreign-locks",
        row="D13",
        action=f"another transaction locks the runs for {LOCKED_FOR_S:g} s",
        expected="reads go on, writes wait, nothing is lost",
        run=foreign_locks,
    ),
    FaultScenario(
        name="pgbouncer",
        row="D9",
        action="two workers behind PgBouncer in transaction mode, with fewer sessions than connections",
        expected="full function, every instant once",
        run=behind_pgbouncer,
    ),
)
