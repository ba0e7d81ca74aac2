"""The cost of an idle engine, and the time from process start to the end of its first tick.

Each engine is a process on a store that was filled before; so is the compared library. Run as a program, this
file is that process.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from time import process_time
from typing import Any

from benchmarks.parts import rivals
from benchmarks.parts.measure import (
    Child,
    Goals,
    TemporaryStores,
    build_instance,
    describe_store,
    heading,
    median,
    print_answer,
    progress,
    rss_mb,
    spread,
    wait_for_parent,
)
from benchmarks.parts.rivals import NotInstalled
from benchmarks.parts.store_fill import NEVER, REVISION_COLUMNS, SCHEDULE_COLUMNS, schedule_rows
from timewright.wiring import open_store

CHUNK_ROWS = 10_000
FIRST_RUN_DELAY = timedelta(days=30)


def idle(
    goals: Goals,
    temporary_stores: TemporaryStores,
    *,
    kinds: Sequence[str],
    rounds: int,
    quick: bool,
    parts: Sequence[str],
) -> None:
    """Idle cost and start-up time on stores of growing size, with nothing due for long."""
    sizes = (1_000, 10_000) if quick else (1_000, 100_000, 1_000_000)
    parties = [*kinds, *(["apscheduler"] if "sqlite" in kinds else [])]
    for kind in parties:
        with ExitStack() as stack:
            store_kind = "sqlite" if kind == "apscheduler" else kind
            words = "jobs of 30 days" if kind == "apscheduler" else "schedules of a day that begin in 2150"
            filled = {size: stack.enter_context(temporary_stores.new_store(store_kind)) for size in sizes}
            progress(f"idle, {kind}: filling {', '.join(f'{size:,}' for size in sizes)} schedules")
            try:
                seconds = {size: FILLERS[kind](store_url, size) for size, store_url in filled.items()}
            except NotInstalled as reason:
                heading(f"idle, {kind}", str(reason))
                continue
            filled_in = ", ".join(f"{size:,} in {took:.1f} s" for size, took in seconds.items())
            heading(
                f"idle, {kind}",
                f"{describe_store(store_kind)}; {words}; filled beforehand by bulk SQL: {filled_in}",
                "a separate process: interpreter, imports and engine, no interfaces",
            )
            if "start" in parts:
                _start(goals, kind, filled, rounds=rounds)
            if "idle" in parts:
                _idle(goals, kind, filled, seconds=4 if quick else 20)


# ----------------------------------------------------------------------------------------------- the parent


def _start(goals: Goals, kind: str, filled: dict[int, str], *, rounds: int) -> None:
    found: dict[int, list[float]] = {size: [] for size in filled}
    for number in range(rounds):
        progress(f"start-up, {kind}: round {number + 1} of {rounds}")
        for size, store_url in filled.items():
            began = time.time()
            child = Child("benchmarks.parts.engine_idle", kind, store_url=store_url)
            found[size].append(child.read_answer()["first_tick_at"] - began)
            child.end()
    for size, took in found.items():
        print(f"  start-up, {size:>9,} schedules: {spread(took, digits=2)} s to the end of the first tick")
    if kind != "apscheduler":
        largest = max(found)
        took = median(found[largest])
        goals.judge(
            f"start-up, {kind}",
            f"<= 1.5 s with {largest:,} schedules",
            found=f"{took:.2f} s",
            met=took <= 1.5,
        )


def _idle(goals: Goals, kind: str, filled: dict[int, str], *, seconds: int) -> None:
    """Measure all sizes at the same time; each process counts only its own CPU time."""
    progress(f"idle, {kind}: {seconds} s")
    children = {
        size: Child("benchmarks.parts.engine_idle", kind, store_url=store_url)
        for size, store_url in filled.items()
    }
    for child in children.values():
        child.read_answer()
    time.sleep(1)
    for child in children.values():
        child.send_line()
    time.sleep(seconds)
    figures: dict[int, dict[str, float]] = {}
    for size, child in children.items():
        child.send_line()
        figures[size] = child.read_answer()
        child.end()
    for size, one in figures.items():
        print(
            f"  idle, {size:>9,} schedules, {seconds} s: {one['percent']:.2f} % of a core,"
            f" {one['rss_mb']:.0f} MB, {one['threads']:.0f} threads, {one['ticks']:.0f} ticks",
            flush=True,
        )
    if kind == "apscheduler":
        return
    most = max(one["percent"] for one in figures.values())
    goals.judge(f"idle, {kind}", "<= 0.5 % of a core at every size", found=f"{most:.2f} %", met=most <= 0.5)
    grown = max(one["rss_mb"] for one in figures.values()) - figures[min(figures)]["rss_mb"]
    goals.judge(
        f"idle, {kind}", "memory within 15 MB of the smallest", found=f"{grown:.0f} MB more", met=grown <= 15
    )


def _fill_sqlite(store_url: str, size: int) -> float:
    """Insert rows in bulk, as the store writes them; not timed."""
    import apsw

    open_store(store_url).close()
    began = time.perf_counter()
    connection = apsw.Connection(store_url)
    connection.execute("BEGIN IMMEDIATE")
    for rows in batched(schedule_rows(0, size, wake_at=NEVER), CHUNK_ROWS):
        connection.executemany(_values("schedules", SCHEDULE_COLUMNS), (row for row, _ in rows))
        connection.executemany(_values("revisions", REVISION_COLUMNS), (row for _, row in rows))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return time.perf_counter() - began


def _fill_postgres(store_url: str, size: int) -> float:
    """The same with COPY."""
    import psycopg

    open_store(store_url).close()
    began = time.perf_counter()
    with psycopg.connect(store_url, autocommit=True) as connection, connection.cursor() as cursor:
        for rows in batched(schedule_rows(0, size, wake_at=NEVER), 10 * CHUNK_ROWS):
            for table, columns, which in (
                ("schedules", SCHEDULE_COLUMNS, 0),
                ("revisions", REVISION_COLUMNS, 1),
            ):
                with cursor.copy(f"COPY {table} ({columns}) FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row[which])
        connection.execute("VACUUM ANALYZE")
    return time.perf_counter() - began


def _values(table: str, columns: str) -> str:
    marks = ", ".join("?" * len(columns.split(",")))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


def batched(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most `size` items."""
    several = iter(rows)
    while batch := list(islice(several, size)):
        yield batch


def _fill_apscheduler(store_url: str, size: int) -> float:
    """Insert its rows into its table in bulk, because it has no call for many jobs at once."""
    scheduler = rivals.stored_apscheduler(store_url)
    scheduler.start(paused=True)
    job = scheduler.add_job(
        rivals.noop, "interval", days=30, start_date=datetime.now(UTC) + FIRST_RUN_DELAY, id="job-0"
    )
    state = job.__getstate__()
    store = scheduler._jobstores["default"]
    began = time.perf_counter()
    at = job.next_run_time.timestamp()
    for start in range(1, size, CHUNK_ROWS):
        rows = [
            {
                "id": f"job-{n}",
                "next_run_time": at,
                "job_state": pickle.dumps({**state, "id": f"job-{n}"}, pickle.HIGHEST_PROTOCOL),
            }
            for n in range(start, min(start + CHUNK_ROWS, size))
        ]
        with store.engine.begin() as connection:
            connection.execute(store.jobs_t.insert(), rows)
    took = time.perf_counter() - began
    scheduler.shutdown()
    return took


FILLERS: dict[str, Callable[[str, int], float]] = {
    "sqlite": _fill_sqlite,
    "postgres": _fill_postgres,
    "apscheduler": _fill_apscheduler,
}


# ------------------------------------------------------------------------------------------------ the child


def _engine(store_url: str) -> None:
    with build_instance(store_url, {"noop": lambda: None}) as (instance, _):
        pause = threading.Event()
        instance.start()
        while not instance.loop.health.ticks:
            pause.wait(0.001)
        _measured(lambda: instance.loop.health.ticks)


def _apscheduler(store_url: str) -> None:
    scheduler = rivals.stored_apscheduler(store_url)
    scheduler.start()
    scheduler.wakeup()
    _measured(lambda: 0)
    scheduler.shutdown()


def _measured(ticks: Callable[[], int]) -> None:
    print_answer(first_tick_at=time.time())
    if not wait_for_parent():
        return
    cpu, wall, before = process_time(), time.perf_counter(), ticks()
    wait_for_parent()
    share = (process_time() - cpu) / (time.perf_counter() - wall)
    print_answer(
        percent=share * 100, rss_mb=rss_mb(), threads=threading.active_count(), ticks=ticks() - before
    )
    wait_for_parent()


def child(kind: str, options: dict[str, Any]) -> None:
    """Open the store, start, report the end of the first tick, then idle and report the cost."""
    (_apscheduler if kind == "apscheduler" else _engine)(**options)


if __name__ == "__main__":
    child(sys.argv[1], json.loads(sys.argv[2]))
