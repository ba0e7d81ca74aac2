"""Run a function every second inside this program. A file stores the schedule and its history."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from timewright import Context, Scheduler, every

app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
enough = threading.Event()
completed: list[int] = []


@app.schedule(every("1s"), overlap="skip", retry=3)
def refresh(ctx: Context) -> str:
    """Print the occurrence. The return value is stored with the run."""
    print(f"refresh planned at {ctx.planned_at:%H:%M:%S}, attempt {ctx.attempt}")
    return "useful"


@app.on_completed
def count(_: object) -> None:
    """Count successful runs. Called after a run is recorded."""
    completed.append(1)
    if len(completed) == 2:
        enough.set()


def main() -> None:
    """Run it twice, then list the stored runs."""
    with app:
        enough.wait(10)
        for run in app.runs.list(schedule="refresh", state="succeeded").runs:
            print(run.state, run.planned_at)
    print("done")


if __name__ == "__main__":
    main()
