"""A scheduler process for the test of a clock that is set while it runs: `clock_child.py STORE JOURNAL`.

The hour after which a clock that was set is used lasts `CONFIRMED_AFTER_S` here.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from timewright import Context, Scheduler
from timewright.stores import clock_guard

CONFIRMED_AFTER_S = 5.0
clock_guard.CONFIRMED_AFTER_S = CONFIRMED_AFTER_S
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
