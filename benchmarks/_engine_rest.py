"""What an engine costs that has nothing to do, and how soon it has looked after its process began.

Each engine is a process of its own, on a store that was filled before; so is the rival. Run as a program
this is that process.
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

from benchmarks import _rivals as rivals
from benchmarks._measure import (
    Child,
    Goals,
    Places,
    await_word,
    heading,
    house,
    median,
    progress,
    rss_mb,
    say,
    spread,
    store_words,
)
from benchmarks._rivals import Absent
from benchmarks._store_fill import NEVER, REVISION_COLUMNS, SCHEDULE_COLUMNS, schedule_rows
from timewright.assembly import open_store

CHUNK = 10_000
FAR = timedelta(days=30)


def rest(
    goals: Goals, places: Places, *, kinds: Sequence[str], rounds: int, quick: bool, parts: Sequence[str]
) -> None:
    """Idle cost and start-up on stores with more and more schedules, none of them due for long."""
    sizes = (1_000, 10_000) if quick else (1_000, 100_000, 1_000_000)
    parties = [*kinds, *(["apscheduler"] if "sqlite" in kinds else [])]
    for kind in parties:
        with ExitStack() as stack:
            store_kind = "sqlite" if kind == "apscheduler" else kind
            words = "jobs of 30 days" if kind == "apscheduler" else "schedules of a day that begin in 2150"
            filled = {size: stack.enter_context(places.fresh(store_kind)) for size in sizes}
            progress(f"at rest, {kind}: filling {', '.join(f'{size:,}' for size in sizes)} schedules")
            try:
                seconds = {size: FILLERS[kind](place, size) for size, place in filled.items()}
            except Absent as reason:
                heading(f"at rest, {kind}", str(reason))
                continue
            told = ", ".join(f"{size:,} in {took:.1f} s" for size, took in seconds.items())
            heading(
                f"at rest, {kind}",
                f"{store_words(store_kind)}; {words}; filled beforehand by bulk SQL: {told}",
                "a process of its own: interpreter, imports, engine, no doors",
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
        for size, place in filled.items():
            began = time.time()
            child = Child("benchmarks._engine_rest", kind, place=place)
            found[size].append(child.hear()["first_tick_at"] - began)
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
    """All sizes rest at the same time: each counts its own time on a core only."""
    progress(f"idle, {kind}: {seconds} s")
    children = {size: Child("benchmarks._engine_rest", kind, place=place) for size, place in filled.items()}
    for child in children.values():
        child.hear()
    time.sleep(1)
    for child in children.values():
        child.tell()
    time.sleep(seconds)
    figures: dict[int, dict[str, float]] = {}
    for size, child in children.items():
        child.tell()
        figures[size] = child.hear()
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


def _fill_sqlite(place: str, size: int) -> float:
    """Rows as the store writes them, in bulk; what is measured comes later."""
    import apsw

    open_store(place).close()
    began = time.perf_counter()
    connection = apsw.Connection(place)
    connection.execute("BEGIN IMMEDIATE")
    for rows in batched(schedule_rows(0, size, wake_at=NEVER), CHUNK):
        connection.executemany(_values("schedules", SCHEDULE_COLUMNS), (row for row, _ in rows))
        connection.executemany(_values("revisions", REVISION_COLUMNS), (row for _, row in rows))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return time.perf_counter() - began


def _fill_postgres(place: str, size: int) -> float:
    """The same by COPY."""
    import psycopg

    open_store(place).close()
    began = time.perf_counter()
    with psycopg.connect(place, autocommit=True) as connection, connection.cursor() as cursor:
        for rows in batched(schedule_rows(0, size, wake_at=NEVER), 10 * CHUNK):
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
    """Lists of at most that many, until nothing is left."""
    several = iter(rows)
    while batch := list(islice(several, size)):
        yield batch


def _fill_apscheduler(place: str, size: int) -> float:
    """Its own rows, written into its table in bulk: it has no call for many jobs at once."""
    scheduler = rivals.stored_apscheduler(place)
    scheduler.start(paused=True)
    job = scheduler.add_job(rivals.noop, "interval", days=30, start_date=datetime.now(UTC) + FAR, id="job-0")
    state = job.__getstate__()
    store = scheduler._jobstores["default"]
    began = time.perf_counter()
    at = job.next_run_time.timestamp()
    for start in range(1, size, CHUNK):
        rows = [
            {
                "id": f"job-{n}",
                "next_run_time": at,
                "job_state": pickle.dumps({**state, "id": f"job-{n}"}, pickle.HIGHEST_PROTOCOL),
            }
            for n in range(start, min(start + CHUNK, size))
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


def _engine(place: str) -> None:
    with house(place, {"noop": lambda: None}) as (built, _):
        pause = threading.Event()
        built.start()
        while not built.loop.pulse.ticks:
            pause.wait(0.001)
        _measured(lambda: built.loop.pulse.ticks)


def _apscheduler(place: str) -> None:
    scheduler = rivals.stored_apscheduler(place)
    scheduler.start()
    scheduler.wakeup()
    _measured(lambda: 0)
    scheduler.shutdown()


def _measured(ticks: Callable[[], int]) -> None:
    say(first_tick_at=time.time())
    if not await_word():
        return
    cpu, wall, before = process_time(), time.perf_counter(), ticks()
    await_word()
    share = (process_time() - cpu) / (time.perf_counter() - wall)
    say(percent=share * 100, rss_mb=rss_mb(), threads=threading.active_count(), ticks=ticks() - before)
    await_word()


def child(kind: str, asked: dict[str, Any]) -> None:
    """Open the store, start, say when the first tick is done, and rest under measurement when told."""
    (_apscheduler if kind == "apscheduler" else _engine)(**asked)


if __name__ == "__main__":
    child(sys.argv[1], json.loads(sys.argv[2]))
