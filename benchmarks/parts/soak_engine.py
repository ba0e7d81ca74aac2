"""The processes of a soak: an engine with every kind of work, and a server for its HTTP targets.

Each call logs a line when it starts and when it ends, so that overlaps can be found afterwards. A call of a
killed process ends, for the reader, when the process was killed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from benchmarks.parts.measure import percentile, print_answer, rss_mb, wait_for_parent
from timewright.core.facts import Fact
from timewright.core.policies.backoff import hash_fraction
from timewright.settings import Settings
from timewright.wiring import Instance, new_registry, open_store

REPORT_INTERVAL_S = 2.0
THREADS = 32


class CallLog:
    """The calls of this process, one line each, written at once."""

    def __init__(self, path: str) -> None:
        self._file: TextIO = Path(path).open("a", buffering=1, encoding="ascii")  # noqa: SIM115 - for life
        self.delays: list[float] = []

    def begin(self, context: Any) -> None:
        """A call starts."""
        now = time.time()
        self.delays.append(now - context.fire_at.timestamp())
        self._file.write(f"S {context.run_id} {context.fence} {now:.6f}\n")

    def end(self, context: Any) -> None:
        """A call ends."""
        self._file.write(f"E {context.run_id} {context.fence} {time.time():.6f}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# ------------------------------------------------------------------------------------------- the functions


def work_functions(log: CallLog) -> dict[str, Callable[..., Any]]:
    """The functions that schedules call, each logged; all of them stop soon when cancelled."""

    def quick(context: Any) -> str:
        return "useful" if context.attempt == 1 else "noop"

    def slow(context: Any, seconds: float = 1.0) -> None:
        context.cancelled.wait(seconds)

    def flaky(context: Any, failing: float = 0.5) -> None:
        if hash_fraction(context.key, str(context.fence)) < failing:
            raise RuntimeError("this attempt fails")

    def broken(context: Any) -> None:
        raise ValueError(f"this work always fails, also at attempt {context.attempt}")

    async def patient(context: Any, seconds: float = 0.5) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {"missed": context.missed}

    return {
        **{f.__name__: _logged(f, log) for f in (quick, slow, flaky, broken)},
        "patient": _logged_async(patient, log),
    }


def isolated(context: Any, seconds: float = 0.2) -> str:
    """Work for a worker subprocess, which imports it by name."""
    time.sleep(seconds)
    return f"{context.run_id} in {os.getpid()}"


def _logged(function: Callable[..., Any], log: CallLog) -> Callable[..., Any]:
    def call(context: Any, **args: Any) -> Any:
        log.begin(context)
        try:
            return function(context, **args)
        finally:
            log.end(context)

    return call


def _logged_async(function: Callable[..., Any], log: CallLog) -> Callable[..., Any]:
    async def call(context: Any, **args: Any) -> Any:
        log.begin(context)
        try:
            return await function(context, **args)
        finally:
            log.end(context)

    return call


# ---------------------------------------------------------------------------------------------- the engine


class FactCounter:
    """Counts facts by type."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def notify(self, fact: Fact) -> None:
        """Count one fact."""
        self.counts[type(fact).__name__] += 1


def open_resources() -> dict[str, Any]:
    """The threads, open files, children and memory of this process."""
    gc.collect()
    files = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            files.append(str(descriptor.readlink()))
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "files": sorted(files),
        "children": children_of(os.getpid()),
        "rss_mb": rss_mb(),
    }


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def engine(store_url: str, log: str) -> None:
    """Run until the parent closes standard input, then stop gracefully and report the remaining resources."""
    before = open_resources()
    calls, tally = CallLog(log), FactCounter()
    registry = new_registry()
    for name, function in work_functions(calls).items():
        registry.add(function, name=name)
    registry.add(isolated, isolation="process")
    instance = Instance(
        open_store(store_url),
        settings=Settings(
            capacity=64, threads=THREADS, workers=2, shell=True, max_sleep=timedelta(seconds=1)
        ),
        registry=registry,
        observers=(tally,),
    )
    instance.start()
    print_answer(pid=os.getpid(), instance=instance.instance_id)
    over = threading.Event()
    reporter = threading.Thread(target=_report, args=(instance, calls, tally, over), daemon=True)
    reporter.start()
    wait_for_parent()
    over.set()
    reporter.join()
    instance.stop(wait=timedelta(seconds=20))
    instance_id, health = instance.instance_id, instance.loop.health
    instance.close()
    calls.close()
    del instance
    print_answer(
        ended=True,
        instance=instance_id,
        before=before,
        after=open_resources(),
        errors=health.errors,
        last_error=health.last_error,
        counts=dict(tally.counts),
    )


def _report(instance: Instance, calls: CallLog, tally: FactCounter, over: threading.Event) -> None:
    """Print a report every few seconds for the parent."""
    while not over.wait(REPORT_INTERVAL_S):
        lates, calls.delays = calls.delays, []
        print_answer(
            counts=dict(tally.counts),
            p50=percentile(lates, 0.5) if lates else 0.0,
            p99=percentile(lates, 0.99) if lates else 0.0,
            threads=threading.active_count(),
            files=len(list(Path("/proc/self/fd").iterdir())),
            children=len(children_of(os.getpid())),
            rss_mb=rss_mb(),
            ticks=instance.loop.health.ticks,
            errors=instance.loop.health.errors,
            last_error=instance.loop.health.last_error,
            under_way=len(instance.launcher),
        )


# ---------------------------------------------------------------------------------------------- the server


def server() -> None:
    """A server with good, slow, failing and busy endpoints."""
    from aiohttp import web

    async def ok(_request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def slow(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.7)
        return web.Response(text="at last")

    async def bad(_request: web.Request) -> web.Response:
        return web.Response(status=500, text="no")

    async def busy(_request: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "1"})

    async def serve() -> None:
        application = web.Application()
        for name, handler in (("ok", ok), ("slow", slow), ("bad", bad), ("busy", busy)):
            application.router.add_route("*", f"/{name}", handler)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print_answer(url=f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
        await asyncio.to_thread(wait_for_parent)
        await runner.cleanup()

    asyncio.run(serve())


TASKS: dict[str, Callable[..., None]] = {"engine": engine, "server": server}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
