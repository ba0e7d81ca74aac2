"""One schedule after another, and one that starts only if the first came through lately."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from timewright import Context, Scheduler, after, every

app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
enough = threading.Event()
loads = iter(["the source is away", ""])


@app.schedule(after("load"))
def report(ctx: Context) -> str:
    """Follow every load that succeeded."""
    print(f"report: the load came through at {ctx.planned_at:%H:%M:%S}")
    return "useful"


@app.schedule(after("load", on="failure"))
def alarm(ctx: Context) -> str:
    """Follow every load that failed for good."""
    print(f"alarm: the load failed at {ctx.planned_at:%H:%M:%S}")
    return "useful"


@app.schedule(every("1s"), retry=1, max_runs=2)
def load(ctx: Context) -> str:
    """Fail the first time, succeed the second."""
    trouble = next(loads)
    if trouble:
        raise RuntimeError(trouble)
    return f"load {ctx.attempt}"


@app.schedule(every("1s"), needs=["load:5m wait 1m"], max_runs=1)
def mail(ctx: Context) -> str:
    """Wait until the data is fresh."""
    print(f"mail: planned at {ctx.planned_at:%H:%M:%S}, with fresh data")
    return "useful"


@app.on_completed
def look(_: object) -> None:
    """Enough, once each of the three has run."""
    done = {run["schedule"] for run in app.runs.list(state="succeeded")["runs"]}
    if {"report", "alarm", "mail"} <= done:
        enough.set()


def main() -> None:
    """Let them run, then ask why the report did."""
    with app:
        enough.wait(30)
        newest = app.runs.list(schedule="report", state="succeeded")["runs"][0]
        print(app.runs.explain(run=newest["id"])["because"][-1])
    print("done")


if __name__ == "__main__":
    main()
