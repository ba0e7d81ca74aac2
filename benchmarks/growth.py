"""How large does a store on PostgreSQL get, does deleting old runs keep up, and what does a tick cost then?

    python -m benchmarks growth [--schedules 100000] [--history 1000000] [--runs 10000] [--batches 50]

Real no-op runs give the size of a run with its attempt and every index. Then the store is filled with
schedules and finished runs. A tick with 100 due schedules (admit, lease, settle) is timed before and after,
and so is deleting the oldest runs, in the batches that an instance uses.
"""

from __future__ import annotations

import argparse
import os
from time import perf_counter
from typing import Any

import psycopg

from benchmarks.parts.measure import (
    TemporaryStores,
    build_instance,
    enqueue_runs,
    heading,
    machine,
    percentile,
    progress,
    spread,
)
from benchmarks.parts.store_fill import add_history_postgres, fill_postgres
from benchmarks.parts.store_sides import TimewrightSide
from benchmarks.store import Stopwatch, Timeline, one_pass
from timewright.ports import PruneRequest
from timewright.wiring import open_store

DUE = 100
TICKS = 20
PROJECTED = 100_000_000
ATTEMPTS = (
    "INSERT INTO attempts (run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at,"
    " ended_at, outcome, charged)"
    " SELECT id, 1, 1, 'lse_' || substr(id, 5), 'bench', fire_at, fire_at, fire_at, finished_at,"
    " 'succeeded', 0 FROM runs WHERE id NOT IN (SELECT run_id FROM attempts)"
)
SIZE = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables"


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    print(machine("psycopg"))
    with TemporaryStores() as stores:
        per_run = _measure_run(stores, options.runs)
        with stores.new_store("postgres") as url:
            _measure_large(url, options)
    heading(
        f"{PROJECTED:,} finished runs would take {PROJECTED * per_run / 1e9:,.0f} GB",
        f"kept for 30 days they are {PROJECTED / 30 / 86_400:,.0f} runs a second",
    )
    return 0


def _measure_run(stores: TemporaryStores, runs: int) -> float:
    """Run no-ops and return how many bytes each left."""
    with stores.new_store("postgres") as url, psycopg.connect(url, autocommit=True) as session:
        store = open_store(url)
        before = _one(session, SIZE)
        enqueue_runs(store, runs)
        store.close()
        with build_instance(url, {"noop": lambda: None}, awaited=runs, capacity=200) as (instance, ends):
            instance.start()
            ends.wait()
        session.execute("VACUUM")
        per_run = (_one(session, SIZE) - before) / runs
    heading(f"one run with its attempt and every index: {per_run:,.0f} bytes ({runs:,} real runs)")
    return per_run


def _measure_large(url: str, options: argparse.Namespace) -> None:
    store = open_store(url)
    side, line = TimewrightSide(store), Timeline(options.schedules)
    with psycopg.connect(url, autocommit=True) as session:
        before = _one(session, SIZE)
        progress(f"filling in {options.schedules:,} schedules")
        fill_postgres(session, options.schedules)
        per_schedule = (_one(session, SIZE) - before) / options.schedules
        heading(f"one schedule: {per_schedule:,.0f} bytes ({options.schedules:,} schedules)")
        print(f"  tick with {DUE} due, no history: {_tick_ms(side, line)} ms")
        progress(f"filling in {options.history:,} finished runs")
        add_history_postgres(session, options.schedules, options.history)
        session.execute(ATTEMPTS)
        session.execute("VACUUM ANALYZE")
        print(f"  tick with {DUE} due, {options.history:,} finished runs: {_tick_ms(side, line)} ms")
        size = _one(session, SIZE)
        print(f"  the store: {size / 1e9:.2f} GB; load {os.getloadavg()[0]:.1f}")
    taken = []
    for _ in range(options.batches):
        began = perf_counter()
        removed = store.write(lambda tx: tx.prune(PruneRequest(keep_runs=1000)))
        taken.append((perf_counter() - began) * 1000)
        assert removed == PruneRequest().limit, removed
    print(f"  deleting {PruneRequest().limit} runs: {spread(taken)} ms, p99 {percentile(taken, 0.99):.0f} ms")
    store.close()


def _tick_ms(side: TimewrightSide, line: Timeline) -> str:
    """How long one tick takes, in ms: the median and the extremes."""
    taken = []
    for _ in range(TICKS):
        began = perf_counter()
        one_pass(side, line, DUE, Stopwatch())
        taken.append((perf_counter() - began) * 1000)
    return spread(taken)


def _one(session: psycopg.Connection[Any], sql: str) -> int:
    row = session.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--history", type=int, default=1_000_000, help="finished runs")
    parser.add_argument("--runs", type=int, default=10_000, help="real runs")
    parser.add_argument("--batches", type=int, default=50, help="how many batches to delete")
    return parser.parse_args(arguments)
