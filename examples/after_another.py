"""Run a schedule after another one, and a third that needs a recent success of the first."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from timewright import Context, Scheduler, after, every

app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
enough = threading.Event()
loads = iter(["the source is unreachable", ""])


@app.schedule(after("load"))
def report(ctx: Context) -> str:
    """Runs after every successful load."""
    print(f"report: the load succeeded for {ctx.planned_at:%H:%M:%S}")
    return "useful"


@app.schedule(after("load", on="failure"))
def alarm(ctx: Context) -> str:
    """Runs after every load that failed finally."""
    print(f"alarm: the load failed for {ctx.planned_at:%H:%M:%S}")
    return "useful"


@app.schedule(every("1s"), retry=1, max_runs=2)
def load(ctx: Context) -> str:
    """Fail the first time, succeed the second time."""
    trouble = next(loads)
    if trouble:
        raise RuntimeError(trouble)
    return f"load {ctx.attempt}"


@app.schedule(every("1s"), needs=["load:5m wait 1m"], max_runs=1)
def mail(ctx: Context) -> str:
    """Runs when the data is at most 5 minutes old."""
    print(f"mail: planned at {ctx.planned_at:%H:%M:%S}, with fresh data")
    return "useful"


@app.on_completed
def check(_: object) -> None:
    """Stop when each of the three has run."""
    done = {run.schedule for run in app.runs.list(state="succeeded").runs}
    if {"report", "alarm", "mail"} <= done:
        enough.set()


def main() -> None:
    """Run them, then explain why the report ran."""
    with app:
        enough.wait(30)
        newest = app.runs.list(schedule="report", state="succeeded").runs[0]
        print(app.runs.explain(run=newest.id).because[-1])
    print("done")


if __name__ == "__main__":
    main()
