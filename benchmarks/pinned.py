"""What does a foreign session with an old snapshot cost, as pg_dump or a report keeps one open?

    python -m benchmarks pinned [--starts 100] [--manual 50] [--schedules N] [--seconds 60] [--free SECONDS]
                                [--only starts,manual]

A program on PostgreSQL creates schedules of one function and runs them; or a client makes manual runs of ten
schedules at a fixed rate, all by the public API. First nobody else reads the database; then a session
holds a repeatable-read snapshot open, so that the server can remove no dead row. Each schedule comes once a
minute unless `--schedules` says otherwise: what counts is how many dead versions one schedule has.

A line is printed for each tenth of a phase: the rate, the delay from the planned instant to the start, dead
rows, and the blocks that the server read per run, which do not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from msgspec import Struct

from benchmarks.parts.measure import (
    Child,
    Goals,
    TemporaryStores,
    comma_list,
    heading,
    machine,
    print_answer,
    progress,
    wait_for_parent,
)
from timewright import Scheduler, Settings

PARTS = ("starts", "manual")
WARM_UP_S = 10.0
SLICES = 10
MANUAL_SCHEDULES = 10
CAPACITY = 200
BATCH = 5_000
CREATED_PER_SECOND = 1_000
MAX_DEAD_PER_RUN = 2.2


class Figures(Struct, frozen=True):
    """The figures of a phase, or of a tenth of one."""

    runs: int
    rate: float
    p50: float
    p99: float
    blocks_per_run: float
    dead: int

    def line(self, name: str) -> str:
        """One line of the table."""
        return (
            f"  {name:<12}{self.rate:9.1f}/s{self.p50:9.1f} ms{self.p99:9.1f} ms"
            f"{self.blocks_per_run:11,.0f}{self.dead:14,}"
        )


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
    count = (options.schedules or 60 * rate) if part == "starts" else MANUAL_SCHEDULES
    heading(
        f"{rate} {'scheduled starts' if part == 'starts' else 'manual runs'} a second, PostgreSQL",
        f"fsync and synchronous_commit on, otherwise its default settings; capacity {CAPACITY}",
        f"{count:,} schedules, each every {count / rate:g} s" if part == "starts" else f"{count} schedules",
        f"{options.free:g} s without and {options.seconds:g} s with the snapshot",
        f"load {os.getloadavg()[0]:.1f}",
    )
    with stores.new_store("postgres") as url, psycopg.connect(url, autocommit=True) as session:
        engine = Child("benchmarks.pinned", part, store_url=url, count=count, every=count / rate)
        progress(f"creating {count:,} schedules")
        first = engine.read_answer()["first"]
        client = Child("benchmarks.pinned", "client", store_url=url, rate=rate) if part == "manual" else None
        time.sleep(max(first - time.time(), 0) + WARM_UP_S)
        progress("nobody else reads")
        free = _phase(session, "free", options.free)
        progress("a session holds a snapshot open")
        with psycopg.connect(url) as pin:
            pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            pin.execute("SELECT count(*) FROM schedules")
            pinned = _phase(session, "pinned", options.seconds)
        for child in filter(None, (client, engine)):
            child.send_line()
            child.end()
    _judge(goals, part, rate, free, pinned)


def _judge(goals: Goals, part: str, rate: int, free: Figures, pinned: Figures) -> None:
    share, held = pinned.rate / max(free.rate, 1), free.rate / rate
    goals.judge(part, "free: the offered rate", found=f"{held:.1%}", met=held >= 0.98)
    goals.judge(part, "pinned >= 98 % of the free rate", found=f"{share:.1%}", met=share >= 0.98)
    goals.judge(part, "pinned p99 start delay <= 50 ms", found=f"{pinned.p99:.1f} ms", met=pinned.p99 <= 50)
    dead = pinned.dead / max(pinned.runs, 1)
    goals.judge(
        part,
        f"at most {MAX_DEAD_PER_RUN} dead rows per run",
        found=f"{dead:.2f}",
        met=dead <= MAX_DEAD_PER_RUN,
    )


def _phase(session: psycopg.Connection[Any], name: str, seconds: float) -> Figures:
    """Measure for some seconds, and print each tenth."""
    print(f"  {name:<12}{'rate':>11}{'p50 delay':>12}{'p99 delay':>12}{'blocks/run':>11}{'dead rows':>14}")
    first, blocks, dead = _clock(session), _blocks(session), _dead(session)
    for number in range(SLICES):
        since, before = _clock(session), _blocks(session)
        time.sleep(seconds / SLICES)
        found = _figures(session, since, before, dead)
        print(found.line(f"{(number + 1) * seconds / SLICES:.0f} s"), flush=True)
    whole = _figures(session, first, blocks, dead)
    print(whole.line("in all"))
    tables = (
        "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0 ORDER BY 2 DESC LIMIT 5"
    )
    print("    " + ", ".join(f"{table} {many:,}" for table, many in session.execute(tables).fetchall()))
    return whole


def _figures(session: psycopg.Connection[Any], since: int, blocks: int, dead: int) -> Figures:
    """The runs that ended since an instant; the index on that instant keeps this question cheap."""
    until, read = _clock(session), _blocks(session) - blocks
    many, p50, p99 = _one(
        session,
        "SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY started_at - fire_at),"
        " percentile_cont(0.99) WITHIN GROUP (ORDER BY started_at - fire_at)"
        f" FROM runs WHERE finished_at >= {since} AND finished_at < {until}",
    )
    return Figures(
        many,
        many / (until - since) * 1e6,
        float(p50 or 0) / 1000,
        float(p99 or 0) / 1000,
        read / max(many, 1),
        _dead(session) - dead,
    )


def _clock(session: psycopg.Connection[Any]) -> int:
    return int(_one(session, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0])


def _dead(session: psycopg.Connection[Any]) -> int:
    return int(_one(session, "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables")[0])


def _one(session: psycopg.Connection[Any], sql: str) -> tuple[Any, ...]:
    row = session.execute(sql.encode()).fetchone()
    assert row is not None
    return tuple(row)


def _blocks(session: psycopg.Connection[Any]) -> int:
    sql = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
    return int(_one(session, sql)[0])


def _noop() -> None:
    """Do nothing."""


def _starts(store_url: str, count: int, every: float) -> None:
    """Create schedules whose instants lie evenly over their interval, and run them until the parent ends."""
    app = _program(store_url)
    interval = timedelta(seconds=every)
    first = datetime.now(UTC) + timedelta(seconds=10 + count / CREATED_PER_SECOND)
    anchors = [(first + n * interval / count).isoformat() for n in range(count)]
    length = f"{every:g}s"
    wanted = [
        {"name": f"grid-{n}", "every": length, "anchor": anchor, "call": "noop"}
        for n, anchor in enumerate(anchors)
    ]
    for start in range(0, count, BATCH):
        app.schedules.put_many(schedules=wanted[start : start + BATCH])
    _run_until_parent_ends(app, first)


def _manual(store_url: str, count: int, every: float) -> None:
    """Run ten manual schedules until the parent ends."""
    assert every
    app = _program(store_url)
    wanted = [
        {"name": f"manual-{n}", "manual": True, "overlap": "allow", "call": "noop"} for n in range(count)
    ]
    app.schedules.put_many(schedules=wanted)
    _run_until_parent_ends(app, datetime.now(UTC))


def _program(store_url: str) -> Scheduler:
    """A program with one function, which every schedule calls."""
    app = Scheduler(store_url, settings=Settings(capacity=CAPACITY))
    app.schedule(manual=True, name="noop")(_noop)
    return app


def _run_until_parent_ends(app: Scheduler, first: datetime) -> None:
    app.start()
    print_answer(first=first.timestamp())
    wait_for_parent()
    app.stop()


def _client(store_url: str, rate: float) -> None:
    """Make manual runs at a fixed rate until the parent ends; at most one second is made up."""
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
    parser.add_argument(
        "--schedules", type=int, default=0, help="how many make them; default 60 x the starts"
    )
    parser.add_argument("--manual", type=int, default=50, help="manual runs a second")
    parser.add_argument("--seconds", type=float, default=60, help="length of the phase with the snapshot")
    parser.add_argument("--free", type=float, default=0, help="length of the phase without; default the same")
    parser.add_argument("--only", type=comma_list(PARTS), default=list(PARTS), help=",".join(PARTS))
    options = parser.parse_args(arguments)
    options.free = options.free or options.seconds
    return options


TASKS = {"starts": _starts, "manual": _manual, "client": _client}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
