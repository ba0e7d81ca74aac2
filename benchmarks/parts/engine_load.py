"""High load: two thousand HTTP requests in flight from one process, and many processes on one store.

Run as a program, this file is one of those processes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from benchmarks.parts.measure import (
    Child,
    Goals,
    TemporaryStores,
    build_instance,
    check_each_ran_once,
    describe_store,
    enqueue_runs,
    heading,
    median,
    print_answer,
    progress,
    rss_mb,
    spread,
    wait_for_parent,
)
from timewright.core.target import Call, Http
from timewright.ports import Store
from timewright.ports.overview import RunsByState
from timewright.wiring import open_store

ANSWER_S = 1.0
# Poll intervals while waiting for a fleet to finish.
LONG_POLL_S, SHORT_POLL_S = 0.05, 0.005
MAX_OPEN_FILES = 16_384


# ------------------------------------------------------------------------------------------------- HTTP


def http_load(
    goals: Goals, temporary_stores: TemporaryStores, *, kinds: Sequence[str], rounds: int, quick: bool
) -> None:
    """Requests that take a second each, all in flight at the same time from one engine."""
    count = 200 if quick else 2_000
    for kind in kinds:
        heading(
            f"{count:,} HTTP targets of {ANSWER_S:g} s in flight, {kind}",
            f"{describe_store(kind)}; one engine process, capacity {count}; a local aiohttp server",
            f"from the start of the engine to the last settlement; {rounds} rounds",
        )
        took: list[float] = []
        memory: list[float] = []
        seen: list[int] = []
        for number in range(rounds):
            progress(f"http, {kind}: round {number + 1} of {rounds}")
            server = Child("benchmarks.parts.engine_load", "server")
            url = server.read_answer()["url"]
            with temporary_stores.new_store(kind) as store_url:
                engine = Child(
                    "benchmarks.parts.engine_load", "requests", store_url=store_url, url=url, count=count
                )
                answer = engine.read_answer()
                engine.end()
            server.send_line()
            seen.append(server.read_answer()["most"])
            server.end()
            took.append(answer["seconds"])
            memory.append(answer["rss_mb"])
        print(
            f"  timewright: {spread(took, digits=2)} s, peak memory {spread(memory)} MB,"
            f" at most {max(seen):,} at the server at once"
        )
        row = f"http, {kind}"
        last, most = median(took), median(memory)
        goals.judge(row, f"{count:,} done in <= 5 s", found=f"{last:.2f} s", met=last <= 5)
        goals.judge(row, "peak memory <= 300 MB", found=f"{most:.0f} MB", met=most <= 300)


def _server() -> None:
    """Answer each request after a second, and count how many waited at once."""
    import asyncio

    from aiohttp import web

    waiting = most = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(ANSWER_S)
        waiting -= 1
        return web.Response(text="ok")

    async def serve() -> None:
        application = web.Application()
        application.router.add_get("/", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        print_answer(url=f"http://127.0.0.1:{port}/")
        await asyncio.to_thread(wait_for_parent)
        print_answer(most=most)
        await runner.cleanup()

    _more_files()
    asyncio.run(serve())


def _requests(store_url: str, url: str, count: int) -> None:
    _more_files()
    with build_instance(store_url, {}, awaited=count, capacity=count, batch=1000) as (instance, ends):
        enqueue_runs(instance.store, count, target=Http(url=url))
        began = perf_counter()
        instance.start()
        ends.wait(seconds=120)
        seconds = perf_counter() - began
        check_each_ran_once(instance.store, count)
        print_answer(seconds=seconds, rss_mb=rss_mb(peak=True))
        wait_for_parent()


def _more_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


# ------------------------------------------------------------------------------------------------- scale


def scale(goals: Goals, temporary_stores: TemporaryStores, *, rounds: int, quick: bool) -> None:
    """The same work for a growing number of processes on one PostgreSQL: none lost, none run twice."""
    runs = 2_000 if quick else 100_000
    fleets = (2, 8) if quick else (1, 2, 4, 8)
    heading(
        "engine processes on one PostgreSQL",
        f"{describe_store('postgres')}; {runs:,} no-op runs, enqueued before; capacity 200, targets instance",
        f"from the start signal until all are settled; {rounds} rounds, by turns",
    )
    found: dict[int, list[float]] = {fleet: [] for fleet in fleets}
    for number in range(rounds):
        for fleet in fleets:
            progress(f"scale: round {number + 1} of {rounds}, {fleet} processes")
            with temporary_stores.new_store("postgres") as store_url:
                found[fleet].append(runs / _drained(store_url, fleet=fleet, runs=runs))
    for fleet, rates in found.items():
        print(f"  {fleet} processes: {spread(rates)} runs a second; none lost, none run twice", flush=True)
    two = median(found[2])
    least = min(median(rates) for fleet, rates in found.items() if fleet > 2)
    goals.judge(
        "scale, postgres",
        "throughput never below the 2-process figure",
        found=f"{least:,.0f} : {two:,.0f} a second",
        met=least >= two,
    )


def _drained(store_url: str, *, fleet: int, runs: int) -> float:
    store = open_store(store_url)
    enqueue_runs(store, runs)
    workers = [Child("benchmarks.parts.engine_load", "worker", store_url=store_url) for _ in range(fleet)]
    for worker in workers:
        worker.read_answer()
    began = perf_counter()
    for worker in workers:
        worker.send_line()
    while left := _left(store):
        time.sleep(left)
    took = perf_counter() - began
    calls: Counter[str] = Counter()
    for worker in workers:
        worker.send_line()
        calls.update(worker.read_answer()["ran"])
        worker.end()
    check_each_ran_once(store, runs)
    store.close()
    doubled = [run for run, times in calls.items() if times > 1]
    if len(calls) != runs or doubled:
        raise SystemExit(f"{fleet} processes: {len(calls)} of {runs} ran, {len(doubled)} twice")
    return took


def _left(store: Store) -> float:
    """Seconds to wait before the next poll, or 0 when all is done.

    A poll reads finished leases too, so polling often while many runs wait would slow the fleet down.
    """
    now = store.now()
    which = RunsByState(namespace="default", failed_since=now, max_count=1)
    left = store.read(lambda tx: tx.count(which))
    if left["ready"]:
        return LONG_POLL_S
    return SHORT_POLL_S if left["leased"] else 0.0


def _worker(store_url: str) -> None:
    ran: list[str] = []

    def noop(context: Any) -> None:
        ran.append(context.run_id)

    with build_instance(store_url, {"noop": noop}, capacity=200, batch=1000) as (instance, _):
        # Targets are instance before the start, because start-up is not part of the throughput.
        instance.launcher.build_targets([Call])
        print_answer(ready=True)
        wait_for_parent()
        instance.start()
        wait_for_parent()
        print_answer(ran=ran)
        wait_for_parent()


TASKS: dict[str, Callable[..., None]] = {"server": _server, "requests": _requests, "worker": _worker}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
