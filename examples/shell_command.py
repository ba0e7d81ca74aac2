"""Run a command on a schedule. Shell targets are disabled by default, and use no shell."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from timewright import Scheduler, Settings


def main() -> None:
    """Run a command that prints a variable of its run."""
    finished = threading.Event()
    app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db", settings=Settings(shell=True))
    app.on_completed(lambda _: finished.set())
    with app:
        program = "import os; print('attempt', os.environ['TIMEWRIGHT_RUN_ATTEMPT'])"
        app.schedules.create(
            name="report", trigger={"every": "1s"}, target={"shell": [sys.executable, "-c", program]}
        )
        finished.wait(10)
        (run,) = app.runs.list(schedule="report", state="succeeded", limit=1).runs
        print(app.runs.get(run=run.id).attempts[0].result)
    print("done")


if __name__ == "__main__":
    main()
