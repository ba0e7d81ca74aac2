"""Stop while a run is active: it is released and keeps all its attempts."""

from __future__ import annotations

import tempfile
import threading
from datetime import timedelta
from pathlib import Path

from timewright import Context, Scheduler, every

store = Path(tempfile.mkdtemp()) / "timewright.db"
app = Scheduler(store)
started = threading.Event()


@app.schedule(every("1s"))
def long_work(ctx: Context) -> None:
    """Work until asked to stop."""
    started.set()
    ctx.cancelled.wait(30)


def main() -> None:
    """Stop during the run, then inspect it."""
    app.start()
    started.wait(10)
    app.stop(wait=timedelta(seconds=0.2))
    later = Scheduler(store)
    (run,) = later.runs.list(schedule="long_work", state="ready").runs
    print("released:", run.state, "attempts used:", run.attempts)
    later.stop()
    print("done")


if __name__ == "__main__":
    main()
