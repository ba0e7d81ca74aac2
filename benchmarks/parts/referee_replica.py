"""One replica of a job queue under test: it adds jobs at a fixed rate and runs them, in one process.

    python -m benchmarks.parts.referee_replica SYSTEM {"url": …, "journal": …, "rate": 600, "workers": 32}

Each line on standard input is a new rate. Every added batch and every finished job is one line in the
journal, written at once, so that a killed process loses none. A job sleeps for 1 ms.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from benchmarks.parts.measure import print_answer

TICK_S = 0.01
WORK_S = 0.001
MAX_CREDIT_S = 1.0
DEAD_AFTER_S = 15
"""After how many seconds the jobs of a killed replica are given to another, where the library does so."""

Jobs = list[dict[str, Any]]
AddJobs = Callable[[Jobs], Awaitable[Any]]


class Journal:
    """Lines that several processes append to one file: `added COUNT FIRST` and `ran NUMBER CREATED BEGAN`."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        """Append one line."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class Replica:
    """What the libraries share: the job, and the loop that adds jobs."""

    def __init__(self, url: str, journal: str, rate: float, workers: int) -> None:
        self.url, self.rate, self.workers = url, rate, workers
        self.journal = Journal(journal)
        self.is_stopping = False
        threading.Thread(target=self._read_rates, daemon=True).start()

    async def job(self, number: int, created: float) -> None:
        """The job: sleep, and record the start."""
        began = time.time()
        await asyncio.sleep(WORK_S)
        self.journal.write("ran", number, created, began)

    async def add_at_rate(self, add: AddJobs) -> None:
        """Add jobs in one call every 10 ms; at most one second is made up."""
        number, credit, last = os.getpid() * 10**8, 0.0, time.monotonic()
        print_answer(ready=True)
        while not self.is_stopping:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            credit, last = min(credit + self.rate * (now - last), self.rate * MAX_CREDIT_S), now
            count = int(credit)
            if not count:
                continue
            created = time.time()
            credit -= count
            try:
                await add([{"number": number + n, "created": created} for n in range(count)])
            except Exception as error:  # noqa: BLE001  each library has its own
                self.journal.write("refused", count, type(error).__name__)
                await asyncio.sleep(0.1)
            else:
                self.journal.write("added", count, number, time.time())
            number += count

    async def run_with(self, worker: Awaitable[Any], add: AddJobs) -> None:
        """Run the worker and the producer; the producer continues if the worker fails."""

        async def watched() -> None:
            try:
                await worker
            except Exception as error:  # noqa: BLE001
                self.journal.write("worker-ended", type(error).__name__)

        task = asyncio.ensure_future(watched())
        await self.add_at_rate(add)
        task.cancel()

    def _read_rates(self) -> None:
        for line in sys.stdin:
            self.rate = float(line)
        self.is_stopping = True


async def timewright(replica: Replica) -> None:
    """A manual schedule that calls the function; jobs are manual runs of it."""
    from timewright import Context, Scheduler, Settings

    app = Scheduler(replica.url, settings=Settings(capacity=replica.workers))

    @app.schedule(manual=True, overlap="allow", lease={"length": f"{DEAD_AFTER_S}s"})
    async def job(ctx: Context) -> None:
        await replica.job(**ctx.payload)

    def add(jobs: Jobs) -> None:
        app.schedules.run_many(runs=[{"schedule": "job", "payload": each} for each in jobs])

    with app:
        await replica.add_at_rate(lambda jobs: asyncio.to_thread(add, jobs))


async def procrastinate(replica: Replica) -> None:
    """The options of its adapter as published, which adds jobs one by one.

    With `batch_defer_async` the producer, on the same event loop, leaves the worker almost no time.
    """
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=replica.url))

    @app.task(name="job")
    async def job(number: int, created: float) -> None:
        await replica.job(number, created)

    async with app.open_async():
        worker = app.run_worker_async(
            concurrency=replica.workers,
            install_signal_handlers=False,
            fetch_job_polling_interval=0.05,
            abort_job_polling_interval=0.05,
            update_heartbeat_interval=5,
            stalled_worker_timeout=DEAD_AFTER_S,
        )

        async def add(jobs: Jobs) -> None:
            for each in jobs:
                await job.defer_async(**each)

        await replica.run_with(worker, add)


async def pgqueuer(replica: Replica) -> None:
    """On a pool, which connects again; batches as large as the number of workers."""
    import asyncpg
    from pgqueuer import PgQueuer

    async with asyncpg.create_pool(replica.url, min_size=2, max_size=10) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)
        queries: Any = queuer.queries

        @queuer.entrypoint("job")
        async def job(entry: Any) -> None:
            await replica.job(**json.loads(entry.payload))

        async def add(jobs: Jobs) -> None:
            payloads = [json.dumps(each).encode() for each in jobs]
            await queries.enqueue(["job"] * len(jobs), payloads, [0] * len(jobs))

        worker = queuer.run(
            batch_size=replica.workers,
            dequeue_timeout=timedelta(seconds=1),
            heartbeat_timeout=timedelta(seconds=DEAD_AFTER_S),
        )
        await replica.run_with(worker, add)


async def install_procrastinate(url: str) -> None:
    """Create its tables."""
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def install_pgqueuer(url: str) -> None:
    """Create its tables."""
    import asyncpg
    from pgqueuer import PgQueuer

    connection = await asyncpg.connect(url)
    queries: Any = PgQueuer.from_asyncpg_connection(connection).queries
    await queries.install()
    await connection.close()


# The replica, what creates the tables, and the table with the jobs.
SYSTEMS: dict[str, tuple[Callable[[Replica], Any], Callable[[str], Any] | None, str]] = {
    "timewright": (timewright, None, "runs"),
    "procrastinate": (procrastinate, install_procrastinate, "procrastinate_jobs"),
    "pgqueuer": (pgqueuer, install_pgqueuer, "pgqueuer"),
}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # connections are cut on purpose
    asyncio.run(SYSTEMS[sys.argv[1]][0](Replica(**json.loads(sys.argv[2]))))
