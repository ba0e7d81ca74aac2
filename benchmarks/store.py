"""How fast does the store admit, lease and settle, compared with hand-written SQL for the same writes?

    python -m benchmarks.store                 both stores, 1 k and 1 M schedules, 10 M finished runs
    python -m benchmarks.store --history 0     the same without the finished runs
    python -m benchmarks.store --quick         a minute, small figures
    python -m benchmarks.store --memory        a million settled runs with pruning: does memory stay flat?

Both sides use the same tables, by turns. A pass is one batch through admission (claim due schedules, insert a
run each, advance the schedule), leasing and settlement, each one transaction flushed to disk. Raw SQL writes
the same rows under the same indexes. It reads less than we must (neither policies nor runs in flight),
decides nothing and notifies nobody.

On PostgreSQL every schedule was updated before, and the server makes no checkpoint during the measurement:
the first write to a page after a checkpoint copies the page, which a busy server pays once for many writes.
On SQLite each side begins its turn with an empty WAL, and pays for its own checkpoints.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import apsw
import psycopg

from benchmarks.parts.store_fill import (
    BASE,
    STEP,
    add_history_postgres,
    add_history_sqlite,
    fill_postgres,
    fill_sqlite,
)
from benchmarks.parts.store_report import Figures, Rate, judge, report
from benchmarks.parts.store_sides import RawPostgresSide, RawSqliteSide, Side, TimewrightSide
from timewright.core.moments import DAY
from timewright.ports import PruneRequest, Store
from timewright.stores.postgres.store import PostgresStore
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.postgres import postgres_server

STAGES = ("admit", "lease", "settle")
BATCHES = (1000, 100, 1)
ADD_BATCHES = (10_000, 1000, 100, 1)
PASSES = {1000: 5, 100: 20, 1: 200}
SCHEDULES_MULTIPLE = 1000


class StoreBench(NamedTuple):
    """One store with its two sides, and how to fill it."""

    kind: str
    ours: TimewrightSide
    raw: Side
    fill: Callable[[int], None]
    add_history: Callable[[int, int], None]
    empty_log: Callable[[], None]
    conditions: str


class Timeline:
    """Steps from one due schedule to the next; each is due once a day."""

    def __init__(self, schedules: int) -> None:
        self.schedules = schedules
        self.position = 0

    def advance(self, many: int) -> datetime:
        """The instant at which exactly the next `many` schedules are due."""
        self.position += many
        day, place = divmod(self.position - 1, self.schedules)
        return BASE + day * DAY + place * STEP


@contextmanager
def sqlite_bench(folder: Path) -> Iterator[StoreBench]:
    path = str(folder / "store.db")
    store: Any = SqliteStore(path)
    ours = TimewrightSide(store)
    raw, filler = RawSqliteSide(path), apsw.Connection(path)
    filler.set_busy_timeout(10_000)
    pragmas = {name: store._writer.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    said = ", ".join(f"{name} {value}" for name, value in pragmas.items())
    try:
        yield StoreBench(
            "sqlite",
            ours,
            raw,
            lambda many: fill_sqlite(filler, many),
            lambda many, runs: add_history_sqlite(filler, many, runs),
            lambda: discard(filler.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)),
            f"SQLite {apsw.sqlite_lib_version()} by apsw {apsw.apsw_version()}, {said}",
        )
    finally:
        filler.close()
        raw.close()
        ours.close()


# Enough memory for a million schedules, as a server of that size would have.
SERVER = {"shared_buffers": "2GB", "max_wal_size": "32GB", "checkpoint_timeout": "1h"}
PRAGMAS = ("journal_mode", "synchronous", "wal_autocheckpoint", "page_size", "cache_size")


@contextmanager
def postgres_bench(folder: Path) -> Iterator[StoreBench]:
    """A private server."""
    assert folder.is_dir()
    with postgres_server(durable=True, settings=SERVER) as server:
        url = server.url()
        ours = TimewrightSide(PostgresStore(url))
        raw, filler = RawPostgresSide(url), psycopg.connect(url, autocommit=True)
        names = ("server_version", "fsync", "synchronous_commit", *SERVER)
        shown = {name: filler.execute(f"SHOW {name}".encode()).fetchone() for name in names}
        said = ", ".join(f"{name} {row[0] if row else '?'}" for name, row in shown.items())
        try:
            yield StoreBench(
                "postgres",
                ours,
                raw,
                lambda many: fill_postgres(filler, many),
                lambda many, runs: add_history_postgres(filler, many, runs),
                lambda: None,
                f"PostgreSQL over a local socket by psycopg {psycopg.__version__}, {said}",
            )
        finally:
            filler.close()
            raw.close()
            ours.close()


STORES = {"sqlite": sqlite_bench, "postgres": postgres_bench}


class Stopwatch:
    """Sums rows, time and CPU time by stage."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])

    @contextmanager
    def time(self, verb: str, rows: int) -> Iterator[None]:
        wall, cpu = perf_counter(), process_time()
        yield
        for place, more in enumerate((rows, perf_counter() - wall, process_time() - cpu)):
            self._spent[verb][place] += more

    def rates(self) -> dict[str, Rate]:
        return {verb: Rate(rows / wall, cpu / rows * 1e6) for verb, (rows, wall, cpu) in self._spent.items()}

    def tick(self) -> Rate:
        """All stages together, per row that went through all of them."""
        rows = max(spent[0] for spent in self._spent.values())
        wall, cpu = (sum(spent[place] for spent in self._spent.values()) for place in (1, 2))
        return Rate(rows / wall, cpu / rows * 1e6)


def one_pass(side: Side, line: Timeline, many: int, watch: Stopwatch) -> None:
    now = line.advance(many)
    for verb in STAGES:
        with watch.time(verb, many):
            getattr(side, verb)(many, now=now)


def align(bench: StoreBench, line: Timeline) -> None:
    """Advance, untimed, to where every batch fits into a day."""
    rest = -line.position % SCHEDULES_MULTIPLE
    for many in (*(100 for _ in range(rest // 100)), *(1 for _ in range(rest % 100))):
        one_pass(bench.ours, line, many, Stopwatch())


def measure(
    bench: StoreBench, line: Timeline, *, batches: tuple[int, ...], rounds: int, history: int
) -> Figures:
    """Measure both sides by turns, round after round."""
    figures: Figures = defaultdict(list)
    for number in range(rounds):
        for many in batches:
            for side in (bench.ours, bench.raw) if number % 2 == 0 else (bench.raw, bench.ours):
                bench.empty_log()  # else one side pays for what the other left in it
                one_pass(side, line, many, Stopwatch())  # warm the cache, which the other side has replaced
                watch = Stopwatch()
                for _ in range(PASSES[many]):
                    one_pass(side, line, many, watch)
                for verb, rate in {**watch.rates(), "tick": watch.tick()}.items():
                    figures[bench.kind, line.schedules, history, many, verb, side.name].append(rate)
                align(bench, line)
        progress(f"{bench.kind}, {line.schedules:,} schedules, {history:,} finished runs: round {number + 1}")
    return figures


def measure_adding(bench: StoreBench, schedules: int, *, rounds: int) -> Figures:
    figures: Figures = defaultdict(list)
    for number in range(rounds):
        for many in ADD_BATCHES:
            for side in (bench.ours, bench.raw) if number % 2 == 0 else (bench.raw, bench.ours):
                watch = Stopwatch()
                for _ in range({10_000: 1, 1000: 3, 100: 10, 1: 100}[many]):
                    with watch.time("add", many):
                        side.add(many)
                figures[bench.kind, schedules, 0, many, "add", side.name].append(watch.rates()["add"])
    return figures


def run_store(kind: str, arguments: argparse.Namespace) -> Figures:
    figures: Figures = {}
    for schedules in arguments.schedules:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, STORES[kind](Path(folder)) as bench:
            progress(f"{kind}: filling in {schedules:,} schedules")
            bench.fill(schedules)
            line = Timeline(schedules)
            progress(f"conditions: {bench.conditions}")
            figures |= measure(bench, line, batches=BATCHES, rounds=arguments.rounds, history=0)
            figures |= measure_adding(bench, schedules, rounds=arguments.rounds)
            if arguments.history and schedules == max(arguments.schedules):
                progress(f"{kind}: filling in {arguments.history:,} runs of history")
                bench.add_history(schedules, arguments.history)
                figures |= measure(
                    bench, line, batches=(100,), rounds=arguments.rounds, history=arguments.history
                )
    return figures


def measure_memory(kind: str, arguments: argparse.Namespace) -> None:
    """Settle a million runs with pruning; sample the memory of this process."""
    settled, samples = 0, []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, STORES[kind](Path(folder)) as bench:
        bench.fill(1000)
        line = Timeline(1000)
        store: Store = bench.ours._store
        while settled < arguments.settled:
            one_pass(bench.ours, line, 1000, Stopwatch())
            settled += 1000
            while store.write(lambda tx: tx.prune(PruneRequest(keep_runs=10_000))) == 1000:
                pass
            if settled % max(arguments.settled // 20, 1000) == 0:
                samples.append(resident_mb())
                progress(f"{kind}: {settled:,} settled, {samples[-1]:.1f} MB resident")
    first, rest = samples[len(samples) // 10], samples[len(samples) // 10 :]
    print(
        f"{kind}: {settled:,} runs settled and pruned to 10,000; resident {first:.1f} MB after a tenth, then"
        f" {min(rest):.1f} to {max(rest):.1f} MB ({(max(rest) / first - 1) * 100:+.1f} %)"
    )


def resident_mb() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def discard(_: object) -> None:
    """Ignore a result."""


def progress(line: str) -> None:
    print(f"  … {line}", file=sys.stderr, flush=True)


def parse_count(text: str) -> int:
    """`1k`, `100k`, `1m`, `10m` or plain digits."""
    scale = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower())
    return int(text[:-1]) * scale if scale else int(text)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.store", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--schedules", default="1k,1m", help="how many schedules, one run each")
    parser.add_argument(
        "--history", default="10m", type=parse_count, help="finished runs, for the largest store"
    )
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--quick", action="store_true", help="1k and 10k schedules, one round")
    parser.add_argument("--memory", action="store_true", help="watch memory over a million settled runs")
    parser.add_argument("--settled", default="1m", type=parse_count, help="how many, for --memory")
    parser.add_argument("--folder", default=None, help="where the files go; a real disk, not memory")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.schedules, asked.history, asked.rounds = "1k,10k", 0, 1
    asked.schedules = sorted({parse_count(part) for part in asked.schedules.split(",")})
    asked.stores = [part for part in asked.stores.split(",") if part]
    if any(many % SCHEDULES_MULTIPLE for many in asked.schedules):
        parser.error(f"--schedules takes multiples of {SCHEDULES_MULTIPLE}")
    if unknown := set(asked.stores) - set(STORES):
        parser.error(f"--stores knows {', '.join(STORES)}, not {', '.join(sorted(unknown))}")
    return asked


def main(arguments: list[str]) -> int:
    asked = parse_arguments(arguments)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    print(f"{python} on {machine}; load {os.getloadavg()[0]:.1f} before we began")
    if asked.memory:
        for kind in asked.stores:
            measure_memory(kind, asked)
        return 0
    figures: Figures = {}
    for kind in asked.stores:
        figures |= run_store(kind, asked)
    report(figures)
    judge(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
