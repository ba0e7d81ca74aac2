"""Kill a program in the middle of a run, and let the next program retry the run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from timewright import Context, LeaseTerms, Scheduler, Settings, every
from timewright.core.moments import SECOND


def build(store: str, *, crashes: bool, finished: threading.Event) -> Scheduler:
    """Build the scheduler; with `crashes` its function kills the process."""
    app = Scheduler(store, settings=Settings(max_sleep=SECOND))

    @app.schedule(
        every("1h"), catch_up="last", lease=LeaseTerms(length=2 * SECOND, time_limit=60 * SECOND), retry=3
    )
    def import_orders(ctx: Context) -> None:
        print(f"attempt {ctx.attempt}, fence {ctx.fence}", flush=True)
        if crashes:
            os._exit(9)

    app.on_completed(lambda _: finished.set())
    return app


def main() -> None:
    """Start the run in a program that crashes, then start a second program."""
    if len(sys.argv) > 1:
        with build(sys.argv[1], crashes=True, finished=threading.Event()) as app:
            app.schedules.run(schedule="import_orders")
            threading.Event().wait(10)
        return
    store = str(Path(tempfile.mkdtemp()) / "timewright.db")
    died = subprocess.run([sys.executable, __file__, store], check=False)
    print("the first program ended with", died.returncode)
    finished = threading.Event()
    with build(store, crashes=False, finished=finished) as app:
        finished.wait(20)
        (run,) = app.runs.list(schedule="import_orders", state="succeeded").runs
        outcomes = [attempt.outcome for attempt in app.runs.get(run=run.id).attempts]
        print("attempts:", outcomes)
    print("done")


if __name__ == "__main__":
    main()
