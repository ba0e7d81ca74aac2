"""How soon do four worker processes finish 40 calls of 2 s, each in a process of its own?

    python -m benchmarks workers [--rounds 3] [--quick]

The workers are `timewright worker --app` on one PostgreSQL with their default settings, two worker processes
each, so 10 s is the least. Each round begins with as many calls as there are worker processes, so that all of
them have started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from benchmarks.parts.measure import (
    MAX_WAIT_S,
    ROOT,
    Goals,
    TemporaryStores,
    heading,
    machine,
    median,
    progress,
    spread,
)
from timewright import Scheduler

FLEET, CALLS, CALL_S, MAX_WORKERS_S = 4, 40, 2, 12
WORKER_APP = f"""
import os, time
from timewright import Scheduler

app = Scheduler(os.environ["BENCH_STORE"])

@app.schedule(manual=True, overlap="allow", isolation="process")
def job():
    time.sleep({CALL_S})
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks workers", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often the figure is made")
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args(arguments)
    print(machine("psycopg"))
    with TemporaryStores() as stores:
        measure_fleet(Goals(), stores, 1 if options.quick else options.rounds)
    return 0


def measure_fleet(goals: Goals, stores: TemporaryStores, rounds: int) -> None:
    """Measure and judge the time until the last call has ended."""
    heading(
        f"{CALLS} calls of {CALL_S} s on {FLEET} worker processes, PostgreSQL",
        "`timewright worker --app`, default settings, each call in a process of its own (two a worker)",
        f"from `run_many` to the last end; {rounds} rounds, each after one warm call a process",
    )
    took, shares = [], []
    for number in range(rounds):
        progress(f"workers: round {number + 1} of {rounds}")
        with stores.new_store("postgres") as url, tempfile.TemporaryDirectory() as folder:
            seconds, calls = _run_fleet(url, Path(folder))
        took.append(seconds)
        shares.append(calls)
    print(
        f"  {spread(took, digits=1)} s; calls of each worker: {shares}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    last = median(took)
    goals.judge("workers", f"done in <= {MAX_WORKERS_S} s", found=f"{last:.1f} s", met=last <= MAX_WORKERS_S)


def _run_fleet(url: str, folder: Path) -> tuple[float, list[int]]:
    """Seconds until all calls have ended, and how many each worker made."""
    (folder / "bench_app.py").write_text(WORKER_APP, encoding="utf-8")
    environment = {**os.environ, "BENCH_STORE": url, "PYTHONPATH": f"{folder}:{ROOT / 'src'}"}
    words = [sys.executable, "-m", "timewright", "worker", "--app", "bench_app:app", "--store", url]
    out = subprocess.DEVNULL
    fleet = [
        subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=out) for _ in range(FLEET)
    ]
    app = Scheduler(url)
    try:
        _wait_for(lambda: len(app.instances.list().instances) >= FLEET)
        _make_calls(app, 2 * FLEET)
        began = perf_counter()
        made = _make_calls(app, CALLS)
        took = perf_counter() - began
        holders = Counter(app.runs.get(run).attempts[-1].holder for run in made)
        return took, sorted(holders.values())
    finally:
        app.stop()
        for process in fleet:
            process.terminate()
        for process in fleet:
            process.wait(30)


def _make_calls(app: Scheduler, count: int) -> list[str]:
    """Make runs and wait until all have succeeded; returns their ids."""
    made = {run.id for run in app.schedules.run_many(runs=[{"schedule": "job"}] * count).runs}

    def all_succeeded() -> bool:
        ended = {run.id for run in app.runs.list(state="succeeded", limit=200).runs}
        return made <= ended

    _wait_for(all_succeeded)
    return sorted(made)


def _wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + MAX_WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"the worker processes did not finish within {MAX_WAIT_S:.0f} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
