"""What does a foreign session with an old snapshot cost, as pg_dump or a report keeps one open?

    python -m benchmarks pinned [--starts 100] [--manual 50] [--schedules 200] [--seconds 60]
                                [--only starts,manual]

One engine process on PostgreSQL starts scheduled no-op runs, or another process makes manual runs through
the public API at a fixed rate. First nobody else reads the database; then a session holds a repeatable-read
snapshot open, so that the server can remove no dead row. For each phase: the rate, the delay from the planned
instant to the start, dead rows, and the blocks that the server read per run, which do not depend on how busy
the machine is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import timedelta
from typing import Any

import psycopg
from msgspec import Struct

from benchmarks.parts.measure import (
    ACTOR,
    Child,
    Goals,
    TemporaryStores,
    build_instance,
    heading,
    machine,
    print_answer,
    progress,
    schedule,
    wait_for_parent,
)
from timewright import Scheduler
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import Every, Manual
from timewright.core.target import Call
from timewright.ledger.replan import create
from timewright.wiring import open_store

PARTS = ("starts", "manual")
WARM_UP_S = 5.0
MANUAL_SCHEDULES = 10


class Phase(Struct, frozen=True):
    """The figures of one phase."""

    runs: int
    rate: float
    p50: float
    p99: float
    blocks_per_run: float
    dead: dict[str, int]
    entries_per_run: dict[str, float]


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    print(machine("psycopg"))
    goals = Goals()
    with TemporaryStores() as stores:
        for part in options.only:
            _measure(goals, stores, part, options)
    print(f"\nall goals\n{goals.summary()}")
    return 0


def _measure(goals: Goals, stores: TemporaryStores, part: str, options: argparse.Namespace) -> None:
    rate = options.starts if part == "starts" else options.manual
    heading(
        f"{rate} {'scheduled starts' if part == 'starts' else 'manual runs'} a second, PostgreSQL",
        f"fsync and synchronous_commit on; {options.seconds} s each, without and with the snapshot",
        f"{options.schedules} schedules"
        if part == "starts"
        else f"{MANUAL_SCHEDULES} schedules, overlap: allow",
    )
    with stores.new_store("postgres") as url, psycopg.connect(url, autocommit=True) as session:
        _create_schedules(url, part, options)
        engine = Child("benchmarks.pinned", "engine", store_url=url)
        engine.read_answer()
        client = Child("benchmarks.pinned", "client", store_url=url, rate=rate) if part == "manual" else None
        time.sleep(WARM_UP_S)
        progress("nobody else reads")
        free = _phase(session, options.seconds)
        progress("a session holds a snapshot open")
        with psycopg.connect(url) as pin:
            pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            pin.execute("SELECT count(*) FROM schedules")
            pinned = _phase(session, options.seconds)
        for child in filter(None, (client, engine)):
            child.send_line()
            child.end()
    for name, found in (("free", free), ("pinned", pinned)):
        dead = ", ".join(f"{table} {many:,}" for table, many in found.dead.items() if many)
        entries = ", ".join(f"{index} {many:,.1f}" for index, many in found.entries_per_run.items())
        print(
            f"  {name:<7}{found.rate:7.1f} runs/s; start delay p50 {found.p50:.1f}, p99 {found.p99:.1f} ms;"
            f" {found.blocks_per_run:,.0f} blocks per run\n"
            f"         dead rows: {dead or 'none'}\n         index entries read per run: {entries}",
            flush=True,
        )
    share = pinned.rate / free.rate if free.rate else 0.0
    goals.judge(part, "pinned >= 98 % of the rate", found=f"{share:.1%}", met=share >= 0.98)
    goals.judge(part, "pinned p99 start delay <= 50 ms", found=f"{pinned.p99:.1f} ms", met=pinned.p99 <= 50)


def _phase(session: psycopg.Connection[Any], seconds: float) -> Phase:
    """Count for some seconds. The figures are those of the second half, when dead rows have gathered."""
    session.execute("SELECT pg_stat_reset()")
    time.sleep(seconds / 2)
    began, since = time.monotonic(), _blocks(session)
    (first,) = _one(session, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    before = _indexes(session)
    time.sleep(seconds / 2)
    (last,) = _one(session, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    took = time.monotonic() - began
    blocks = _blocks(session) - since
    entries = {name: reads - before.get(name, 0) for name, reads in _indexes(session).items()}
    many, p50, p99 = _one(
        session,
        "SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY started_at - fire_at),"
        " percentile_cont(0.99) WITHIN GROUP (ORDER BY started_at - fire_at)"
        f" FROM runs WHERE started_at >= {first} AND started_at < {last}",
    )
    dead = session.execute(
        "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0 ORDER BY n_dead_tup DESC"
    ).fetchall()
    return Phase(
        many,
        many / took,
        float(p50 or 0) / 1000,
        float(p99 or 0) / 1000,
        blocks / max(many, 1),
        dict(dead[:5]),
        {n: e / max(many, 1) for n, e in sorted(entries.items(), key=lambda one: -one[1])[:4] if e},
    )


def _one(session: psycopg.Connection[Any], sql: str) -> tuple[Any, ...]:
    row = session.execute(sql.encode()).fetchone()
    assert row is not None
    return tuple(row)


def _blocks(session: psycopg.Connection[Any]) -> int:
    sql = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
    return int(_one(session, sql)[0])


def _indexes(session: psycopg.Connection[Any]) -> dict[str, int]:
    """How many entries of each index were read."""
    return dict(session.execute("SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes").fetchall())


def _create_schedules(url: str, part: str, options: argparse.Namespace) -> None:
    store = open_store(url)
    now = store.now()
    if part == "manual":
        made = [
            schedule(f"manual-{n}", Manual(), Call(name="noop"), now=now, overlap=Overlap.ALLOW)
            for n in range(MANUAL_SCHEDULES)
        ]
    else:
        every = timedelta(seconds=options.schedules / options.starts)
        first = now + timedelta(seconds=2)
        made = [
            schedule(
                f"grid-{n}", Every(every, first + n * every / options.schedules), Call(name="noop"), now=now
            )
            for n in range(options.schedules)
        ]
    create(store, made, by=ACTOR, now=now)
    store.close()


def _engine(store_url: str) -> None:
    with build_instance(store_url, {"noop": lambda: None}, capacity=200) as (instance, _):
        instance.start()
        print_answer(ready=True)
        wait_for_parent()


def _client(store_url: str, rate: float) -> None:
    """Make manual runs at a fixed rate until the parent ends; what comes late is not made up."""
    import threading

    ended = threading.Event()

    def wait() -> None:
        wait_for_parent()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    app = Scheduler(store_url)
    due = time.monotonic()
    number = 0
    while not ended.is_set():
        app.schedules.run(f"manual-{number % MANUAL_SCHEDULES}")
        number += 1
        due = max(due + 1 / rate, time.monotonic() - 1)
        ended.wait(max(due - time.monotonic(), 0))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks pinned", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--starts", type=int, default=100, help="scheduled starts a second")
    parser.add_argument("--schedules", type=int, default=200, help="how many schedules make them")
    parser.add_argument("--manual", type=int, default=50, help="manual runs a second")
    parser.add_argument("--seconds", type=float, default=60, help="length of each phase")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS)
    )
    return parser.parse_args(arguments)


TASKS = {"engine": _engine, "client": _client}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
