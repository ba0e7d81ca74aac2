"""Observe a scheduler: log lines, Prometheus metrics, and the findings of the doctor."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from timewright import Context, Scheduler, Settings, every
from timewright.core.facts import Fact

settings = Settings(log="text", log_level="warning", metrics=True)
app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db", settings=settings)
ended = threading.Event()


@app.schedule(every("1s"))
def refresh(ctx: Context) -> str:
    """Do something useful."""
    return f"attempt {ctx.attempt}"


@app.on_completed
def on_completed(_: Fact) -> None:
    """Called after every successful run."""
    ended.set()


def main() -> None:
    """Wait for the first run, then print a metric and the findings of the doctor."""
    with app:
        ended.wait(10)
        # Observers run on their own threads, so the metric may be updated slightly after the listener.
        counted = threading.Event()
        while not (found := [line for line in metric_lines() if "succeeded" in line]):
            counted.wait(0.05)
        print(found[0])
        for finding in app.call("doctor").findings:
            if finding.sentence == "nothing is overdue":
                print(f"{finding.severity:<5} {finding.sentence}")
    print("done")


def metric_lines() -> list[str]:
    """The Prometheus lines of the run counter."""
    text = app.instance.metrics_text()
    return [line for line in text.splitlines() if line.startswith("timewright_runs_total")]


if __name__ == "__main__":
    main()
