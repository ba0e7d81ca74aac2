"""Watch a scheduler: a line per fact, numbers for Prometheus, and a look at everything by the doctor."""

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
def told(_: Fact) -> None:
    """Hear of every run that succeeded."""
    ended.set()


def main() -> None:
    """Wait for the first run, then read what was counted and what the doctor says."""
    with app:
        ended.wait(10)
        # Facts are told on threads of their own: the counter may be a moment behind the listener.
        counted = threading.Event()
        while not (found := [line for line in numbers() if "succeeded" in line]):
            counted.wait(0.05)
        print(found[0])
        for finding in app.call("doctor")["findings"]:
            if finding["check"] in ("due", "schedules"):
                print(f"{finding['status']:<5} {finding['says'].partition(',')[0]}")
    print("done")


def numbers() -> list[str]:
    """The lines that count runs, as Prometheus reads them."""
    text = app.house.metrics_text()
    return [line for line in text.splitlines() if line.startswith("timewright_runs_total")]


if __name__ == "__main__":
    main()
