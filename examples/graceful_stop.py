"""Stop while work is under way: what can end does, what cannot is given back without costing an attempt."""

from __future__ import annotations

import tempfile
import threading
from datetime import timedelta
from pathlib import Path

from timewright import Context, Scheduler, every

place = Path(tempfile.mkdtemp()) / "timewright.db"
app = Scheduler(place)
started = threading.Event()


@app.schedule(every("1s"))
def long_work(ctx: Context) -> None:
    """Work until asked to stop."""
    started.set()
    ctx.cancelled.wait(30)


def main() -> None:
    """Stop in the middle, then look at what is left."""
    app.start()
    started.wait(10)
    app.stop(wait=timedelta(seconds=0.2))
    later = Scheduler(place)
    (run,) = later.runs.list(schedule="long_work", state="ready")["runs"]
    print("given back:", run["state"], "attempts charged:", run["attempts"])
    later.stop()
    print("done")


if __name__ == "__main__":
    main()
