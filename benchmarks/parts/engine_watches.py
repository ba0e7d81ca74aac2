"""The cost of 1,000 watches every 10 s whose answers do not change, and the rows that they leave.

Run as a program, this file is the process that is measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

from benchmarks.parts.measure import (
    Child,
    Goals,
    TemporaryStores,
    describe_store,
    heading,
    print_answer,
    progress,
)
from timewright import Scheduler

WATCHES = 1_000
MAX_PERCENT = 5.0
WARM_UP_S = 20
# Created as usual, they share whole seconds; an anchor of its own gives each an instant of its own.
CASES = {"shared": "at ten instants, as they are created", "own": "each at an instant of its own"}
PAST = datetime(2026, 1, 1, tzinfo=UTC)


def watches(
    goals: Goals, temporary_stores: TemporaryStores, *, kinds: Sequence[str], rounds: int, quick: bool
) -> None:
    """CPU time and rows of quiet watches; the goal is for watches as they are created."""
    seconds = 10 if quick else 60
    for kind in kinds:
        heading(f"watches, {kind}", f"{describe_store(kind)}; {WATCHES:,} every 10 s, unchanged answers")
        for case, words in CASES.items():
            found = []
            for number in range(rounds):
                progress(f"watches, {kind}, {case}: round {number + 1} of {rounds}, {seconds} s")
                with temporary_stores.new_store(kind) as store_url:
                    found.append(_measure(store_url, case, seconds))
            for one in found:
                print(
                    f"  {words}: {one['percent']:.1f} % of a core, {one['calls']:.0f} calls a second,"
                    f" {one['rows']} more rows",
                    flush=True,
                )
            if case == "shared":
                most = max(one["percent"] for one in found)
                goals.judge(
                    f"watches, {kind}",
                    f"< {MAX_PERCENT:.0f} % of a core",
                    found=f"{most:.1f} %",
                    met=most < MAX_PERCENT,
                )


def _measure(store_url: str, case: str, seconds: int) -> dict[str, Any]:
    child = Child("benchmarks.parts.engine_watches", case, store_url=store_url, seconds=seconds)
    answer = child.read_answer()
    child.end()
    return answer


def _definitions(case: str) -> Iterator[dict[str, Any]]:
    step = timedelta(seconds=1) if case == "shared" else timedelta(milliseconds=10)
    for number in range(WATCHES):
        anchor = PAST + number * step + timedelta(milliseconds=0 if case == "shared" else 3)
        trigger = {"every": "10s", "anchor": anchor.isoformat()}
        yield {"name": f"w{number}", "trigger": trigger, "call": "read_value", "watch": {"changed": "result"}}


def _run(case: str, store_url: str, seconds: int) -> None:
    calls = 0

    def read_value() -> int:
        nonlocal calls
        calls += 1
        return 1

    app = Scheduler(store_url)
    app.schedule(manual=True, name="read_value")(read_value)
    every = list(_definitions(case))
    for start in range(0, WATCHES, 100):
        app.schedules.put_many(schedules=every[start : start + 100])
    app.start()
    time.sleep(WARM_UP_S)
    rows, before, began, cpu = _count_rows(app), calls, time.monotonic(), process_time()
    time.sleep(seconds)
    took, used, seen = time.monotonic() - began, process_time() - cpu, calls - before
    more = _count_rows(app) - rows
    print_answer(percent=100 * used / took, calls=seen / took, rows=more)
    app.stop()


def _count_rows(app: Scheduler) -> int:
    found, cursor = 0, ""
    while True:
        page = app.runs.list(limit=1_000, **({"cursor": cursor} if cursor else {}))
        found, cursor = found + len(page.runs), page.cursor
        if not cursor:
            return found


if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    _run(sys.argv[1], options["store_url"], options["seconds"])
