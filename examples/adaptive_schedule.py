"""Let the planner adapt a schedule to its results. A test bench advances the clock."""

from __future__ import annotations

from timewright.operations import OperationContext, operations
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.planner.planner_loop import Planner
from timewright.testing import Bench, succeed

DEPTHS = (40, 160, 290, 410, 30, 25)


def main() -> None:
    """Simulate a queue that grows and drains; print what the planner saw and which runs resulted."""
    bench = Bench()
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    schedule = {
        "name": "orders",
        "every": "30m",
        "call": "orders.depth",
        "adaptive": True,
        "clamp": {"min": "5m"},
    }
    operations["schedule create"](context, schedule)
    results = [succeed({"queue_depth": depth, "critical_threshold": 500}) for depth in DEPTHS]
    bench.target.script("orders", *results)
    planner = Planner(context, HeuristicAdvisor(), clock=bench.clock)
    for _ in range(40):
        bench.advance(minutes=5)
        for analysis in planner.run_once():
            print(f"{bench.now:%H:%M} {analysis['reasoning']}")
    for run in bench.runs("orders"):
        print(f"{run.planned_at:%H:%M:%S} {run.source}")
    print("done")


if __name__ == "__main__":
    main()
