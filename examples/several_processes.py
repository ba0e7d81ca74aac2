"""Several processes on one store: each occurrence is admitted once.

python several_processes.py                          # two processes on one SQLite file
python several_processes.py postgresql://… 4         # four on one PostgreSQL database
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from timewright import Scheduler

NAMES = [f"job{number}" for number in range(5)]
SECONDS = 4


def work(store: str) -> None:
    """Run due schedules in this process for a few seconds."""
    with Scheduler(store):
        threading.Event().wait(SECONDS)


def main() -> None:
    """Create the schedules, start the processes, and check the runs."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
        return
    store = sys.argv[1] if len(sys.argv) > 1 else str(Path(tempfile.mkdtemp()) / "timewright.db")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    app = Scheduler(store)
    for name in NAMES:
        app.schedules.put(name=name, trigger={"every": "1s"}, target={"note": name})
    command = [sys.executable, __file__, "--work", store]
    processes = [subprocess.Popen(command) for _ in range(count)]
    for process in processes:
        process.wait(timeout=60)
    total = 0
    for name in NAMES:
        runs = app.runs.list(schedule=name, limit=100).runs
        assert len({run.planned_at for run in runs}) == len(runs), "an occurrence was admitted twice"
        total += sum(run.state == "succeeded" for run in runs)
    print(f"{count} processes, {total >= len(NAMES)} that everything ran, no occurrence twice")
    app.stop()
    print("done")


if __name__ == "__main__":
    main()
