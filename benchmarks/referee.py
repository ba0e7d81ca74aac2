"""What happens to job queues on PostgreSQL while it is restarted, cut off, read or overloaded?

    python -m benchmarks referee [--seconds 60] [--rate 1.0] [--only postgres-restart,active-readers]
                                 [--systems timewright,procrastinate,pgqueuer]

The five chaos and four pressure cells of hardbyte/postgresql-job-queue-benchmarking, written anew. Each
replica process adds jobs of 1 ms at a fixed rate and runs them. A cell has a clean phase, the fault, and a
recovery. As published, the measured phase is the recovery in chaos cells and the fault in pressure cells, and
it is compared with the clean phase. Here it is also compared with the offered rate, and jobs that were added
but have not run half a minute after the end are counted. A cell counts if Procrastinate fails in it here as
it did there.

`--seconds` is the length of the fault; the other phases keep their published share. `--rate` is a factor for
machines that cannot hold the published rates.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from benchmarks.parts.measure import Child, comma_list, heading, machine, percentile, progress
from benchmarks.parts.referee_replica import DEAD_AFTER_S, SYSTEMS
from timewright.testing.postgres import PostgresServer, fresh_database, postgres_server

SETTINGS = {"max_connections": "400", "shared_buffers": "256MB", "work_mem": "8MB"}
GOAL = 0.98
HIGH_LOAD = 1.5
IDLE_CONNECTIONS = 300
READERS = 4
KILLS = 6
DRAIN_S = 2 * DEAD_AFTER_S


class Figures(NamedTuple):
    """What one system did in one cell: rates a second, the delay in ms, and counts."""

    clean: float
    found: float
    offered: float
    p99: float
    dead: int
    left: int
    twice: int
    ended: int

    @property
    def of_clean(self) -> float:
        """The published measure."""
        return self.found / self.clean if self.clean else 0.0

    @property
    def of_offered(self) -> float:
        """How much of the offered rate was completed."""
        return self.found / self.offered

    @property
    def holds(self) -> bool:
        """Whether the offered rate was held and no job was lost."""
        return self.of_offered >= GOAL and not self.left


class Fleet:
    """The replicas of one system, on one database."""

    def __init__(self, system: str, cell: Cell, server: PostgresServer, url: str, rate: float) -> None:
        self.system, self.cell, self.server, self.url = system, cell, server, url
        self.offered = cell.rate * rate
        self.journal = tempfile.mkstemp(prefix="referee-")[1]
        self.replicas = [self._start() for _ in range(cell.replicas)]

    def _start(self) -> Child:
        return Child(
            "benchmarks.parts.referee_replica",
            self.system,
            url=self.url,
            journal=self.journal,
            rate=self.offered / self.cell.replicas,
            workers=self.cell.workers,
        )

    def set_rate(self, factor: float) -> None:
        """Offer more or less, or nothing."""
        for replica in self.replicas:
            with suppress(OSError):
                replica.send_line(str(factor * self.offered / self.cell.replicas))

    def kill_first(self) -> None:
        """Kill one replica with SIGKILL."""
        self.replicas[0].process.kill()
        self.replicas[0].process.wait()

    def start_first(self) -> None:
        """Start the killed replica again, and wait until it is ready."""
        self.replicas[0] = self._start()
        self.replicas[0].read_answer()

    def end(self) -> None:
        """Stop every replica."""
        for replica in self.replicas:
            replica.end()

    def lines(self, word: str) -> list[list[str]]:
        """The lines of the journal that begin with this word."""
        text = Path(self.journal).read_text(encoding="ascii")
        return [parts for line in text.splitlines() if (parts := line.split()) and parts[0] == word]

    def left_and_twice(self) -> tuple[int, int]:
        """How many added jobs did not run, and how many ran more than once."""
        ran = Counter(int(parts[1]) for parts in self.lines("ran"))
        added = sum(int(parts[1]) for parts in self.lines("added"))
        known = {int(p[2]) + n for p in self.lines("added") for n in range(int(p[1]))}
        return added - len(known & ran.keys()), sum(count > 1 for count in ran.values())


# --------------------------------------------------------------------------------------------- the faults


def restart_postgres(fleet: Fleet, seconds: float) -> None:
    """The server is stopped, and started after half of the time."""
    os.kill(fleet.server.pid, signal.SIGINT)
    time.sleep(seconds / 2)
    fleet.server.start()
    time.sleep(seconds / 2)


def kill_backends(fleet: Fleet, seconds: float) -> None:
    """Twice a second every busy session is terminated."""
    sql = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        " AND state IN ('active', 'idle in transaction')"
    )
    name = fleet.url.partition("///")[2].partition("?")[0]
    with psycopg.connect(fleet.server.url(), autocommit=True) as session:
        for _ in range(int(seconds * 2)):
            session.execute(sql, [name])
            time.sleep(0.5)


def hold_connections(fleet: Fleet, seconds: float) -> None:
    """Idle connections leave few free."""
    with ExitStack() as held:
        began = time.monotonic()
        for _ in range(IDLE_CONNECTIONS):
            held.enter_context(psycopg.connect(fleet.url, autocommit=True))
        time.sleep(max(seconds - (time.monotonic() - began), 0))


def kill_replica(fleet: Fleet, seconds: float) -> None:
    """One of two replicas is killed, and started after the same time again."""
    fleet.kill_first()
    time.sleep(seconds)
    fleet.start_first()
    time.sleep(seconds)


def kill_replica_repeatedly(fleet: Fleet, seconds: float) -> None:
    """One of two replicas is killed six times, each time started a second later."""
    for _ in range(KILLS):
        time.sleep(2 * seconds / KILLS)
        fleet.kill_first()
        time.sleep(1)
        fleet.start_first()


def hold_transaction(fleet: Fleet, seconds: float) -> None:
    """A session is idle in a transaction that has an id, so no dead row can be removed."""
    with psycopg.connect(fleet.url) as session:
        session.execute("SELECT txid_current()")
        time.sleep(seconds)


def overload(fleet: Fleet, seconds: float) -> None:
    """Half as many jobs again are added."""
    fleet.set_rate(HIGH_LOAD)
    time.sleep(seconds)
    fleet.set_rate(1)


def read_jobs(fleet: Fleet, seconds: float) -> None:
    """Four sessions count the jobs again and again, each in one repeatable-read transaction."""
    until = time.monotonic() + seconds

    def read() -> None:
        with psycopg.connect(fleet.url) as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            while time.monotonic() < until:
                session.execute(f"SELECT count(*) FROM {SYSTEMS[fleet.system][2]}".encode())
                time.sleep(0.1)

    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


# ---------------------------------------------------------------------------------------------- the cells


class Cell(NamedTuple):
    """One cell as published: its load, its lengths, and what Procrastinate reached there."""

    fault: Callable[[Fleet, float], None]
    seconds: int
    published: str
    fails: bool
    rate: int = 600
    replicas: int = 1
    workers: int = 32
    is_pressure: bool = False
    load: float = 1.0
    recovery: float = 1.0

    @property
    def clean(self) -> float:
        """The length of the clean phase, as a share of the fault."""
        return 0.25 if self.is_pressure else 1.0


CELLS = {
    "postgres-restart": Cell(restart_postgres, 60, "0 %", fails=True),
    "backend-kill": Cell(kill_backends, 60, "0 %", fails=True),
    "pool-exhaustion": Cell(hold_connections, 60, "99 %", fails=False),
    "crash-recovery": Cell(kill_replica, 60, "73 %", fails=True, replicas=2),
    "repeated-kills": Cell(kill_replica_repeatedly, 60, "18 %", fails=True, replicas=2),
    "idle-in-transaction": Cell(
        hold_transaction, 240, "timeout", fails=True, rate=800, is_pressure=True, recovery=0.75
    ),
    "sustained-high-load": Cell(
        overload, 240, "94 %", fails=True, rate=800, is_pressure=True, load=HIGH_LOAD, recovery=0.5
    ),
    "active-readers": Cell(
        read_jobs, 240, "63 %", fails=True, rate=800, is_pressure=True, recovery=0.5
    ),
    "event-burst": Cell(
        overload, 300, "timeout", fails=True, rate=1200, workers=64, is_pressure=True,
        load=HIGH_LOAD, recovery=0.8,
    ),
}  # fmt: skip


@contextmanager
def running(system: str, cell: Cell, server: PostgresServer, rate: float) -> Iterator[Fleet]:
    """The replicas of a system on an empty database, ready and warm."""
    with fresh_database(server.url()) as url:
        install = SYSTEMS[system][1]
        if install is not None:
            asyncio.run(install(url))
        fleet = Fleet(system, cell, server, url, rate)
        try:
            for replica in fleet.replicas:
                replica.read_answer()
            yield fleet
        finally:
            fleet.end()
            Path(fleet.journal).unlink()


def measure(fleet: Fleet, seconds: float) -> Figures:
    """Run the phases of a cell."""
    cell = fleet.cell
    time.sleep(max(seconds / 8, 5))
    times = [time.time()]
    time.sleep(cell.clean * seconds)
    times.append(time.time())
    cell.fault(fleet, seconds)
    times.append(time.time())
    dead = _dead_rows(fleet.url)
    time.sleep(cell.recovery * seconds)
    times.append(time.time())
    fleet.set_rate(0)
    until = time.monotonic() + DRAIN_S
    while (left := fleet.left_and_twice()[0]) and time.monotonic() < until:
        time.sleep(1)
    ran = [(float(parts[2]), float(parts[3])) for parts in fleet.lines("ran")]
    first, last = (times[1], times[2]) if cell.is_pressure else (times[2], times[3])
    delays = [at - created for created, at in ran if first <= at < last]
    return Figures(
        clean=sum(times[0] <= at < times[1] for _, at in ran) / (times[1] - times[0]),
        found=len(delays) / (last - first),
        offered=fleet.offered * (cell.load if cell.is_pressure else 1),
        p99=percentile(delays, 0.99) * 1000 if delays else float("nan"),
        dead=dead,
        left=left,
        twice=fleet.left_and_twice()[1],
        ended=len(fleet.lines("worker-ended")),
    )


def _dead_rows(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as session:
        row = session.execute(
            "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _row(system: str, found: Figures) -> str:
    notes = [
        f"{found.left:,} jobs left" if found.left else "",
        f"{found.twice:,} twice" if found.twice else "",
        "worker ended with an error" if found.ended else "",
    ]
    return (
        f"  {system:<15}{found.clean:7.0f}/s{found.found:9.0f}/s{found.of_clean:10.0%}"
        f"{found.of_offered:12.0%}{found.p99:11,.0f} ms{found.dead:11,}   {'; '.join(filter(None, notes))}"
    )


def _verdict(cell: Cell, found: dict[str, Figures]) -> str:
    peer = found.get("procrastinate")
    if peer is None:
        return "Procrastinate was not run"
    if cell.published == "timeout":
        return "does not count: the published run hung at its end, which is not repeated here"
    failed = peer.of_clean < GOAL or peer.left > 0
    if cell.fails != failed:
        return f"does not count: Procrastinate {'fails' if failed else 'passes'} here, not as published"
    return "counts: Procrastinate fails as published" if failed else "Procrastinate passes, as published"


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    print(machine("procrastinate", "pgqueuer", "psycopg", "asyncpg"))
    held: list[str] = []
    with postgres_server(durable=True, settings=SETTINGS) as server:
        for name in options.only:
            cell = CELLS[name]
            seconds = options.seconds or cell.seconds
            heading(
                f"{name}: {cell.rate * options.rate:.0f} jobs/s offered, {cell.replicas} replicas,"
                f" {cell.workers} at a time, {seconds:g} s, load {os.getloadavg()[0]:.1f}",
                f"{'system':<15}{'clean':>9}{'measured':>11}{'of clean':>10}{'of offered':>12}"
                f"{'p99 delay':>14}{'dead rows':>11}",
            )
            found: dict[str, Figures] = {}
            for system in options.systems:
                progress(f"{name}, {system}")
                with running(system, cell, server, options.rate) as fleet:
                    found[system] = measure(fleet, seconds)
                print(_row(system, found[system]), flush=True)
            held += [name] if "timewright" in found and found["timewright"].holds else []
            print(f"  published for Procrastinate: {cell.published}; {_verdict(cell, found)}", flush=True)
    print(f"\nTimewright holds {len(held)} of {len(options.only)} cells: {', '.join(held)}")
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks referee", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--seconds", type=float, default=0, help="length of the fault; default as published")
    parser.add_argument("--rate", type=float, default=1.0, help="factor for the offered rates")
    parser.add_argument("--only", type=comma_list(list(CELLS)), default=list(CELLS), help=",".join(CELLS))
    parser.add_argument(
        "--systems", type=comma_list(list(SYSTEMS)), default=list(SYSTEMS), help=",".join(SYSTEMS)
    )
    return parser.parse_args(arguments)
