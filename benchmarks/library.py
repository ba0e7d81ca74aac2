"""What does the Python interface cost: runs by hand, new schedules, many at once, and a program's start?

    python -m benchmarks library [--only run,create,many,declare] [--stores sqlite,postgres]
                                 [--rounds 3] [--quick]

Everything goes through `Scheduler`, as in a user's program. The other libraries do the same in the same run,
by turns, and so does bare SQL: one row and one commit. CPU is that of the calling process. Oban needs
BENCH_APART (see `bench engine`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any, NamedTuple

from benchmarks.parts import rivals
from benchmarks.parts.measure import (
    STORES,
    Goals,
    TemporaryStores,
    comma_list,
    describe_store,
    heading,
    machine,
    median,
    progress,
    spread,
)
from benchmarks.parts.rivals import NotInstalled, requires
from timewright import Scheduler

PARTS = ("run", "create", "many", "declare")
MAX_PAYLOADS = 1_000
MAX_CPU_MS = {
    ("run", "sqlite"): 0.45,
    ("run", "postgres"): 0.9,
    ("create", "sqlite"): 0.8,
    ("create", "postgres"): 0.8,
}


class Cost(NamedTuple):
    """What one round took: things made, wall seconds and CPU seconds of this process."""

    count: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Things a second."""
        return self.count / self.wall

    @property
    def cpu_ms(self) -> float:
        """CPU for one thing."""
        return self.cpu / self.count * 1000


Side = Callable[[int, str], Cost]


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    print(machine("apsw", "psycopg", "huey", "apscheduler", "pgqueuer", "asyncpg"))
    goals = Goals()
    with TemporaryStores() as stores:
        for kind in options.stores:
            for part in ("run", "create", "many"):
                if part in options.only:
                    _compare(goals, stores, kind, part, options)
            if "declare" in options.only:
                _declare(goals, stores, kind, options)
    print(f"\nall goals\n{goals.summary()}")
    return 0


def timed(count: int, work: Callable[[], object]) -> Cost:
    """Do the work and return what it took."""
    wall, cpu = perf_counter(), process_time()
    work()
    return Cost(count, perf_counter() - wall, process_time() - cpu)


# ------------------------------------------------------------------------------------------- Timewright


@contextlib.contextmanager
def opened(store_url: str) -> Iterator[Scheduler]:
    """A scheduler that is not started, with one manual schedule."""
    app = Scheduler(store_url)
    app.schedules.create(name="job", manual=True, note="x", overlap="allow")
    try:
        yield app
    finally:
        app.stop()


def run_by_hand(count: int, store_url: str) -> Cost:
    """`app.schedules.run`, one after another."""
    with opened(store_url) as app:
        return timed(count, lambda: [app.schedules.run("job") for _ in range(count)])


def create_one(count: int, store_url: str) -> Cost:
    """`app.schedules.create`, one after another."""
    with opened(store_url) as app:
        return timed(count, lambda: [app.schedules.create(**definition(n)) for n in range(count)])


def run_many(count: int, store_url: str) -> Cost:
    """`app.schedules.run_many`, one call."""
    with opened(store_url) as app:
        return timed(count, lambda: app.schedules.run_many(runs=[{"schedule": "job"}] * count))


def add_entries(count: int, store_url: str) -> Cost:
    """`app.queues.add(payloads=…)`, a thousand in a call, which is its limit."""
    payloads = [{"number": n} for n in range(count)]

    def add(app: Scheduler) -> None:
        for first in range(0, count, MAX_PAYLOADS):
            app.queues.add("mail", payloads=payloads[first : first + MAX_PAYLOADS])

    with opened(store_url) as app:
        return timed(count, lambda: add(app))


def put_many(count: int, store_url: str) -> Cost:
    """`app.schedules.put_many`, one call."""
    with opened(store_url) as app:
        wanted = [definition(n) for n in range(count)]
        return timed(count, lambda: app.schedules.put_many(schedules=wanted))


def definition(number: int) -> dict[str, Any]:
    """A schedule that is not due during the measurement."""
    return {"name": f"job-{number}", "cron": f"{number % 60} 3 1 1 *", "note": "x"}


# --------------------------------------------------------------------------------------- the other sides


def huey(count: int, store_url: str) -> Cost:
    """Huey on SQLite: a task, one after another."""
    with requires("huey"):
        from huey import SqliteHuey
    queue = SqliteHuey("bench", filename=store_url, results=False)
    job = queue.task()(rivals.noop)
    found = timed(count, lambda: [job() for _ in range(count)])
    queue.storage.close()
    return found


def apscheduler(count: int, store_url: str) -> Cost:
    """APScheduler 3 on SQLite: `add_job` with a cron trigger, one after another."""
    scheduler = rivals.stored_apscheduler(store_url)
    scheduler.start(paused=True)
    found = timed(count, lambda: _add_jobs(scheduler, count))
    scheduler.shutdown()
    return found


def _add_jobs(scheduler: Any, count: int) -> None:
    for n in range(count):
        scheduler.add_job(rivals.noop, "cron", id=f"job-{n}", month=1, day=1, hour=3, minute=n % 60)


def oban(count: int, store_url: str) -> Cost:
    """Oban: `enqueue`, one after another; in a separate Python."""
    answer = rivals.run_separately("oban_one_by_one", rivals.apart_python(), jobs=count, store_url=store_url)
    return Cost(count, answer["enqueue"], answer["cpu"])


def pgqueuer(count: int, store_url: str) -> Cost:
    """PgQueuer over asyncpg: `enqueue`, one call."""
    with requires("pgqueuer asyncpg"):
        import asyncpg
        from pgqueuer import PgQueuer
    logging.getLogger("pgqueuer").setLevel(logging.ERROR)

    async def measured() -> Cost:
        connection = await asyncpg.connect(store_url)
        queuer: Any = PgQueuer.from_asyncpg_connection(connection)
        await queuer.queries.install()
        wall, cpu = perf_counter(), process_time()
        await queuer.queries.enqueue(["job"] * count, [b"{}"] * count, [0] * count)
        found = Cost(count, perf_counter() - wall, process_time() - cpu)
        await connection.close()
        return found

    return asyncio.run(measured())


def bare_sqlite(count: int, store_url: str) -> Cost:
    """Bare SQL by apsw, WAL and FULL: one row, one commit."""
    import apsw

    connection = apsw.Connection(store_url)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE job (id TEXT PRIMARY KEY, at INTEGER, body TEXT)")
    insert = "INSERT INTO job VALUES (?, ?, ?)"
    found = timed(count, lambda: [connection.execute(insert, (f"{n:030}", n, "{}")) for n in range(count)])
    connection.close()
    return found


def bare_postgres(count: int, store_url: str) -> Cost:
    """Bare SQL by psycopg: one row, one commit."""
    import psycopg

    with psycopg.connect(store_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE job (id TEXT PRIMARY KEY, at BIGINT, body TEXT)")
        insert = "INSERT INTO job VALUES (%s, %s, %s)"
        return timed(count, lambda: [connection.execute(insert, (f"{n:030}", n, "{}")) for n in range(count)])


BARE: dict[str, Side] = {"sqlite": bare_sqlite, "postgres": bare_postgres}
# The sides of each part: ours first, then the other libraries on this kind of store.
SIDES: dict[tuple[str, str], dict[str, Side]] = {
    ("run", "sqlite"): {"schedules.run": run_by_hand, "Huey": huey},
    ("run", "postgres"): {"schedules.run": run_by_hand, "Oban": oban},
    ("create", "sqlite"): {"schedules.create": create_one, "APScheduler 3": apscheduler},
    ("create", "postgres"): {"schedules.create": create_one},
    ("many", "sqlite"): {
        "schedules.run_many": run_many,
        "queues.add": add_entries,
        "schedules.put_many": put_many,
    },
    ("many", "postgres"): {
        "schedules.run_many": run_many,
        "queues.add": add_entries,
        "schedules.put_many": put_many,
        "PgQueuer": pgqueuer,
    },
}


def _compare(
    goals: Goals, stores: TemporaryStores, kind: str, part: str, options: argparse.Namespace
) -> None:
    sides = dict(SIDES[part, kind])
    if part != "many":
        sides["bare SQL"] = BARE[kind]
    count = (10_000 if part == "many" else 2_000) // (20 if options.quick else 1)
    heading(
        f"{part}, {kind}: {count:,} each",
        f"{describe_store(kind)}; empty store, {options.rounds} rounds, by turns",
        f"load {os.getloadavg()[0]:.1f}",
        *(f"{name}: {(side.__doc__ or '').strip()}" for name, side in sides.items()),
    )
    found: dict[str, list[Cost]] = {name: [] for name in sides}
    for number in range(options.rounds):
        for name, side in sides.items():
            progress(f"{part}, {kind}: round {number + 1} of {options.rounds}, {name}")
            with stores.new_store(kind) as url:
                try:
                    found[name].append(side(count, url))
                except NotInstalled as reason:
                    print(f"  {name}: {reason}")
    for name, costs in found.items():
        if costs:
            rates, cpu = [one.rate for one in costs], [one.cpu_ms for one in costs]
            print(f"  {name:<20}{spread(rates):>26}/s {spread(cpu, digits=3):>26} ms CPU each", flush=True)
    _judge(goals, part, kind, {name: costs for name, costs in found.items() if costs})


def _judge(goals: Goals, part: str, kind: str, found: dict[str, list[Cost]]) -> None:
    rates = {name: median([one.rate for one in costs]) for name, costs in found.items()}
    row, ours = f"{part}, {kind}", next(iter(SIDES[part, kind]))
    if part == "many":
        for name in (name for name in rates if name != "PgQueuer"):
            least = rates.get("PgQueuer", 50_000.0)
            words = "PgQueuer" if "PgQueuer" in rates else "50,000 a second"
            met = rates[name] >= least
            goals.judge(row, f"{name} >= {words}", found=f"{rates[name]:,.0f} : {least:,.0f}", met=met)
        return
    share = rates[ours] / rates["bare SQL"]
    if part == "run":
        goals.judge(row, f"{ours} >= 0.5 x bare SQL", found=f"{share:.2f} x", met=share >= 0.5)
    elif "APScheduler 3" in rates:
        ratio = rates[ours] / rates["APScheduler 3"]
        goals.judge(row, f"{ours} >= 2 x APScheduler 3", found=f"{ratio:.2f} x", met=ratio >= 2)
    cpu, most = median([one.cpu_ms for one in found[ours]]), MAX_CPU_MS[part, kind]
    goals.judge(row, f"CPU <= {most} ms", found=f"{cpu:.2f} ms", met=cpu <= most)


# ------------------------------------------------------------------------------ a program that starts


def _declare(goals: Goals, stores: TemporaryStores, kind: str, options: argparse.Namespace) -> None:
    """From the first decorator until the program is started: the first time, and when nothing has changed."""
    count = 500 if options.quick else 10_000
    heading(
        f"a program that declares {count:,} schedules, {kind}",
        f"{describe_store(kind)}; from the first decorator to the end of `start()`; {options.rounds} rounds",
        "APScheduler 3 in memory: from the first `add_job` to the end of `start()`",
    )
    found: dict[str, list[Cost]] = {"first": [], "unchanged": [], "APScheduler 3": []}
    for number in range(options.rounds):
        progress(f"declare, {kind}: round {number + 1} of {options.rounds}")
        with stores.new_store(kind) as url:
            for name in ("first", "unchanged"):
                found[name].append(_start_program(url, count))
        with contextlib.suppress(NotInstalled):
            found["APScheduler 3"].append(_start_apscheduler(count))
    for name, costs in found.items():
        if costs:
            wall, cpu = [one.wall for one in costs], [one.cpu for one in costs]
            print(f"  {name:<20}{spread(wall, digits=2):>22} s {spread(cpu, digits=2):>22} s CPU", flush=True)
    for name, most in (("first", 2.0), ("unchanged", 1.0)):
        took = median([one.wall for one in found[name]])
        goals.judge(f"declare, {kind}", f"{name} <= {most:g} s", found=f"{took:.2f} s", met=took <= most)


def _start_program(url: str, count: int) -> Cost:
    app = Scheduler(url)

    def start() -> None:
        for n in range(count):
            app.schedule(f"{n % 60} 3 1 1 *", name=f"job-{n}")(_noop)
        app.start()

    try:
        return timed(count, start)
    finally:
        app.stop()


def _start_apscheduler(count: int) -> Cost:
    scheduler = rivals.memory_apscheduler()

    def start() -> None:
        _add_jobs(scheduler, count)
        scheduler.start()

    try:
        return timed(count, start)
    finally:
        scheduler.shutdown()


def _noop() -> None:
    """Do nothing."""


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks library", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--only", type=comma_list(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--stores", type=comma_list(STORES), default=list(STORES), help=",".join(STORES))
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is made: 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
