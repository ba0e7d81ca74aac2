"""Libraries that cannot share our environment, each in a separate Python: run as a program, answers in JSON.

    python benchmarks/parts/rivals_separate.py dbos|oban|apscheduler4 '{"jobs": 1000, "store_url":
"postgresql://…"}'

Oban needs Python 3.12, and APScheduler 4 has the name of version 3: BENCH_APART names an interpreter with
both. It need not have anything else, so nothing of Timewright is imported here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

POLL_S = 0.002
MAX_WAIT_S = 300.0
DBOS_POLL_S = 0.01
DBOS_CONCURRENCY = 100
OBAN_CONCURRENCY = 100
OBAN_BATCH = 1_000

RAN: list[float] = []


def noop() -> None:
    """The job; records when it ran."""
    RAN.append(time.time())


async def noop_async() -> None:
    """The same on an event loop."""
    RAN.append(time.time())


def _say(package: str, **answer: Any) -> None:
    version_of = f"{package} {version(package)} on Python {platform.python_version()}"
    print(json.dumps({"version": version_of, **answer}), flush=True)


def _say_taken(package: str, jobs: int, marks: list[float], *, cpu: float) -> None:
    if len(RAN) != jobs:
        raise SystemExit(f"{len(RAN)} jobs ran, {jobs} were options for")
    began, handed, drained = marks
    _say(package, jobs=jobs, enqueue=handed - began, drain=drained - handed, cpu=process_time() - cpu)


async def _until_ran(count: int) -> None:
    limit = perf_counter() + MAX_WAIT_S
    while len(RAN) < count and perf_counter() < limit:  # noqa: ASYNC110  no rival says that all have run
        await asyncio.sleep(POLL_S)


# ------------------------------------------------------------------------------------------------- DBOS


def dbos(jobs: int, store_url: str) -> None:
    """DBOS: workflows enqueued in one transaction, then a launched process with a queue that polls often."""
    import sqlalchemy
    from dbos import DBOS, DBOSClient

    logging.disable(logging.CRITICAL)
    url = store_url.replace("postgresql://", "postgresql+psycopg://", 1)
    DBOS(config={"name": "bench", "system_database_url": url, "application_version": "1"})
    DBOS.workflow(name="noop")(noop)
    DBOS.launch()
    DBOS.destroy(destroy_registry=False)
    client = DBOSClient(system_database_url=url)
    cpu, marks = process_time(), [perf_counter()]
    with sqlalchemy.create_engine(url).begin() as connection:
        for _ in range(jobs):
            options: Any = {"queue_name": "bench", "workflow_name": "noop", "app_version": "1"}
            client.enqueue_in_transaction(connection, options)
    marks.append(perf_counter())
    DBOS(config={"name": "bench", "system_database_url": url, "application_version": "1"})
    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=DBOS_CONCURRENCY, polling_interval_sec=DBOS_POLL_S)
    asyncio.run(_until_ran(jobs))
    marks.append(perf_counter())
    _say_taken("dbos", jobs, marks, cpu=cpu)
    client.destroy()
    DBOS.destroy()


# ------------------------------------------------------------------------------------------------- Oban


def oban(jobs: int, store_url: str) -> None:
    """Oban: jobs enqueued a thousand in a call, one queue with a hundred at a time."""
    import oban as package
    from oban.schema import install
    from psycopg_pool import AsyncConnectionPool

    @package.worker(queue="bench")
    class Noop:
        async def process(self, _job: Any) -> None:
            RAN.append(time.time())

    async def both() -> None:
        async with AsyncConnectionPool(conninfo=store_url, min_size=2, max_size=10, open=False) as pool:
            await install(pool)
            async with package.Oban(pool=pool, name="client") as client:
                cpu, marks = process_time(), [perf_counter()]
                for first in range(0, jobs, OBAN_BATCH):
                    some = range(min(OBAN_BATCH, jobs - first))
                    await client.enqueue_many(Noop.new({}) for _ in some)
                marks.append(perf_counter())
            async with package.Oban(pool=pool, queues={"bench": OBAN_CONCURRENCY}):
                await _until_ran(jobs)
                marks.append(perf_counter())
                _say_taken("oban", jobs, marks, cpu=cpu)

    asyncio.run(both())


def oban_one_by_one(jobs: int, store_url: str) -> None:
    """Oban: one job in a call, one after another; nothing runs them."""
    import oban as package
    from oban.schema import install
    from psycopg_pool import AsyncConnectionPool

    @package.worker(queue="bench")
    class Noop:
        async def process(self, _job: Any) -> None: ...

    async def enqueue() -> None:
        async with AsyncConnectionPool(conninfo=store_url, min_size=2, max_size=10, open=False) as pool:
            await install(pool)
            async with package.Oban(pool=pool, name="client") as client:
                cpu, began = process_time(), perf_counter()
                for _ in range(jobs):
                    await client.enqueue(Noop.new({}))
                _say("oban", enqueue=perf_counter() - began, cpu=process_time() - cpu)

    asyncio.run(enqueue())


# --------------------------------------------------------------------------------------- APScheduler 4


async def _apscheduler4(stack: AsyncExitStack, store_url: str) -> Any:
    """A scheduler of APScheduler 4 on PostgreSQL, or in memory if `store_url` is empty."""
    from apscheduler import AsyncScheduler

    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    if not store_url:
        return await stack.enter_async_context(AsyncScheduler())
    from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(store_url.replace("postgresql://", "postgresql+asyncpg://", 1))
    # As the only process it needs no broker but the one in memory, which is faster.
    return await stack.enter_async_context(AsyncScheduler(SQLAlchemyDataStore(engine)))


def apscheduler4(jobs: int, store_url: str) -> None:
    """APScheduler 4 (alpha): job by job, as it has no bulk call; then its scheduler with the defaults."""

    async def both() -> None:
        async with AsyncExitStack() as stack:
            scheduler = await _apscheduler4(stack, store_url)
            cpu, marks = process_time(), [perf_counter()]
            for _ in range(jobs):
                await scheduler.add_job(noop_async)
            marks.append(perf_counter())
            await scheduler.start_in_background()
            await _until_ran(jobs)
            marks.append(perf_counter())
            _say_taken("apscheduler", jobs, marks, cpu=cpu)

    asyncio.run(both())


def apscheduler4_grid(per_second: int, seconds: int, headroom: float, store_url: str) -> None:
    """How late it starts schedules that run once a second, evenly spaced."""
    lates: list[float] = []

    async def note(began: float) -> None:
        lates.append((time.time() - began) % 1.0)

    async def run() -> None:
        from apscheduler.triggers.interval import IntervalTrigger

        async with AsyncExitStack() as stack:
            scheduler = await _apscheduler4(stack, store_url)
            await scheduler.configure_task("note", func=note)
            first = datetime.now(UTC) + timedelta(seconds=headroom)
            for n in range(per_second):
                begins = first + timedelta(seconds=n / per_second)
                ends = begins + timedelta(seconds=seconds - 1)
                trigger = IntervalTrigger(seconds=1, start_time=begins, end_time=ends)
                await scheduler.add_schedule("note", trigger, args=(begins.timestamp(),))
            await scheduler.start_in_background()
            await asyncio.sleep(max(0.0, first.timestamp() - time.time()) + seconds + 0.5)

    asyncio.run(run())
    _say("apscheduler", lates=lates)


TASKS: dict[str, Callable[..., None]] = {
    "dbos": dbos,
    "oban": oban,
    "oban_one_by_one": oban_one_by_one,
    "apscheduler4": apscheduler4,
    "apscheduler4_grid": apscheduler4_grid,
}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
