"""Many at once: two thousand HTTP requests in flight from one process, and many processes on one store.

Run as a program this is one of those processes.
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

from benchmarks._measure import (
    Child,
    Goals,
    Places,
    await_word,
    check_once,
    enqueue_runs,
    heading,
    house,
    median,
    progress,
    rss_mb,
    say,
    spread,
    store_words,
)
from timewright.assembly import open_store
from timewright.core.target import Call, Http
from timewright.ports import Store

ANSWER_SECONDS = 1.0
# Seconds between two looks at whether a fleet is done.
FAR_FROM_DONE, NEARLY_DONE = 0.05, 0.005
OPEN_FILES = 16_384


# ------------------------------------------------------------------------------------------------- HTTP


def http(goals: Goals, places: Places, *, kinds: Sequence[str], rounds: int, quick: bool) -> None:
    """Requests that take a second each, all in flight at the same time from one engine."""
    count = 200 if quick else 2_000
    for kind in kinds:
        heading(
            f"{count:,} HTTP targets of {ANSWER_SECONDS:g} s in flight, {kind}",
            f"{store_words(kind)}; one engine process, capacity {count}; a local aiohttp server in another",
            f"from the start of the engine to the last settlement; {rounds} rounds",
        )
        took: list[float] = []
        memory: list[float] = []
        seen: list[int] = []
        for number in range(rounds):
            progress(f"http, {kind}: round {number + 1} of {rounds}")
            server = Child("benchmarks._engine_many", "server")
            url = server.hear()["url"]
            with places.fresh(kind) as place:
                engine = Child("benchmarks._engine_many", "requests", place=place, url=url, count=count)
                answer = engine.hear()
                engine.end()
            server.tell()
            seen.append(server.hear()["most"])
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
    """Answer each request after a second, and remember how many waited at once."""
    import asyncio

    from aiohttp import web

    waiting = most = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(ANSWER_SECONDS)
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
        say(url=f"http://127.0.0.1:{port}/")
        await asyncio.to_thread(await_word)
        say(most=most)
        await runner.cleanup()

    _more_files()
    asyncio.run(serve())


def _requests(place: str, url: str, count: int) -> None:
    _more_files()
    with house(place, {}, awaited=count, capacity=count, batch=1000) as (built, ends):
        enqueue_runs(built.store, count, target=Http(url=url))
        began = perf_counter()
        built.start()
        ends.wait(seconds=120)
        seconds = perf_counter() - began
        check_once(built.store, count)
        say(seconds=seconds, rss_mb=rss_mb(peak=True))
        await_word()


def _more_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


# ------------------------------------------------------------------------------------------------- scale


def scale(goals: Goals, places: Places, *, rounds: int, quick: bool) -> None:
    """The same work for more and more processes on one PostgreSQL: none lost, none doubled."""
    runs = 2_000 if quick else 100_000
    fleets = (2, 8) if quick else (1, 2, 4, 8)
    heading(
        "engine processes on one PostgreSQL",
        f"{store_words('postgres')}; {runs:,} no-op runs, handed over before; capacity 200, targets built",
        f"from the word to start until all are settled; {rounds} rounds, the fleets by turns in each",
    )
    found: dict[int, list[float]] = {fleet: [] for fleet in fleets}
    for number in range(rounds):
        for fleet in fleets:
            progress(f"scale: round {number + 1} of {rounds}, {fleet} processes")
            with places.fresh("postgres") as place:
                found[fleet].append(runs / _drained(place, fleet=fleet, runs=runs))
    for fleet, rates in found.items():
        print(f"  {fleet} processes: {spread(rates)} runs a second; none lost, none doubled", flush=True)
    two = median(found[2])
    least = min(median(rates) for fleet, rates in found.items() if fleet > 2)
    goals.judge(
        "scale, postgres",
        "throughput never below the 2-process figure",
        found=f"{least:,.0f} : {two:,.0f} a second",
        met=least >= two,
    )


def _drained(place: str, *, fleet: int, runs: int) -> float:
    store = open_store(place)
    enqueue_runs(store, runs)
    workers = [Child("benchmarks._engine_many", "worker", place=place) for _ in range(fleet)]
    for worker in workers:
        worker.hear()
    began = perf_counter()
    for worker in workers:
        worker.tell()
    while left := _left(store):
        time.sleep(left)
    took = perf_counter() - began
    calls: Counter[str] = Counter()
    for worker in workers:
        worker.tell()
        calls.update(worker.hear()["ran"])
        worker.end()
    check_once(store, runs)
    store.close()
    doubled = [run for run, times in calls.items() if times > 1]
    if len(calls) != runs or doubled:
        raise SystemExit(f"{fleet} processes: {len(calls)} of {runs} ran, {len(doubled)} twice")
    return took


def _left(store: Store) -> float:
    """How long to wait before the next look, or nothing when all is done.

    A look goes through what was leased and is over: while many wait it would cost more than it tells.
    """
    now = store.now()
    left = store.read(lambda tx: tx.count_standing("default", failed_since=now, most=1))
    if left.ready:
        return FAR_FROM_DONE
    return NEARLY_DONE if left.leased else 0.0


def _worker(place: str) -> None:
    ran: list[str] = []

    def noop(context: Any) -> None:
        ran.append(context.run_id)

    with house(place, {"noop": noop}, capacity=200, batch=1000) as (built, _):
        # What a process needs once, at its start, is not what a fleet can do.
        built.launcher.prepare([Call])
        say(ready=True)
        await_word()
        built.start()
        await_word()
        say(ran=ran)
        await_word()


TASKS: dict[str, Callable[..., None]] = {"server": _server, "requests": _requests, "worker": _worker}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
