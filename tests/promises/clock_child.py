"""A scheduler process for the test of a clock that is set while it runs: `clock_child.py STORE JOURNAL`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from timewright import Context, Scheduler

store, journal = Path(sys.argv[1]), Path(sys.argv[2])
app = Scheduler(store)


@app.schedule(every="1s")
def tick(ctx: Context) -> None:
    with journal.open("a") as file:
        file.write(f"{ctx.key} {ctx.fence}\n")


@app.schedule(every="1h")
def hourly() -> None:
    return


@app.schedule(manual=True)
def long(ctx: Context) -> str:
    pause = threading.Event()  # libfaketime breaks `time.sleep` when the clock is set
    while not (store.parent / "finish").exists():
        pause.wait(0.05)
    return f"fence {ctx.fence}"


with app:
    app.schedules.run(schedule="long")
    sys.stdin.read()  # until the test closes it
