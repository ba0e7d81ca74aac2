"""A workflow of functions: fetch orders, price each, add up. A retry continues at the failed step."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

from timewright import Scheduler

STEPS: list[dict[str, Any]] = [
    {"name": "fetch", "target": "fetch", "input": {"day": {"$from": "input.day"}}},
    {
        "name": "price",
        "target": "price",
        "needs": ["fetch"],
        "each": {"$from": "steps.fetch.result.orders"},
        "input": {"order": {"$from": "item"}},
    },
    {
        "name": "total",
        "target": "total",
        "needs": ["price"],
        "input": {"prices": {"$from": "steps.price.result"}},
        "retry": {"max_attempts": 1},
    },
    {"name": "tell", "target": {"note": "the day is done"}, "needs": ["total"]},
]


def main() -> None:
    """Create a workflow, run it until a step fails, fix the cause, and retry it."""
    app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
    finished, fixed = threading.Event(), threading.Event()

    @app.task("fetch")
    def fetch(day: str) -> dict[str, Any]:
        return {"day": day, "orders": [{"id": n, "pieces": n + 1} for n in range(3)]}

    @app.task("price")
    def price(order: dict[str, int]) -> int:
        return 10 * order["pieces"]

    @app.task("total")
    def total(prices: list[int]) -> int:
        if not fixed.is_set():
            raise RuntimeError("the price list is missing")
        return sum(prices)

    def ended(fact: Any) -> None:
        if fact.run_id == run:
            finished.set()

    app.on_completed(ended)
    app.on_exhausted(ended)
    with app:
        app.workflows.put(name="orders", input={"day": "today"}, steps=STEPS)
        run = app.workflows.run(workflow="orders", input={"day": "monday"}).run.id
        finished.wait(20)
        print(app.workflows.graph(workflow="orders", run=run).text)
        finished.clear()
        fixed.set()
        app.runs.retry(run=run)
        finished.wait(20)
        print(app.workflows.graph(workflow="orders", run=run).text)
        print("result:", app.runs.get(run=run).attempts[-1].result)
    print("done")


if __name__ == "__main__":
    main()
