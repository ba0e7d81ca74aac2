"""A daily budget of tokens: runs beyond it wait for the next day instead of failing."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from timewright import Context, Scheduler, every

app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
app.budgets.set(budget="inference", unit="tokens", limit=3500, period="day", zone="Europe/Berlin")
enough = threading.Event()


@app.schedule(every("1s"), overlap="allow", budgets=["inference"], estimate={"tokens": 1000}, max_runs=4)
def summarise(ctx: Context) -> str:
    """Call a model, and report the cost."""
    ctx.cost(tokens=1000, money="0.02")
    return "useful"


def waiting() -> list[str]:
    """The reasons of waiting runs."""
    return [run.reason for run in app.runs.list(state="ready").runs if run.reason]


@app.on_completed
def check(_: object) -> None:
    """Stop when three have run; the fourth is due a second later."""
    if len(app.runs.list(state="succeeded").runs) == 3:
        enough.set()


def main() -> None:
    """Run them, and show what the last one waits for."""
    with app:
        enough.wait(30)
        for _ in range(100):
            if waiting():
                break
            threading.Event().wait(0.1)
        print("waiting:", *waiting())
        print("left in the budget:", app.budgets.get(budget="inference").left)
    print("done")


if __name__ == "__main__":
    main()
