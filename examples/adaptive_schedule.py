"""Let the planner look at a schedule whose answers say that something grows; a bench moves the clock."""

from __future__ import annotations

from timewright.operations import Context, operations
from timewright.planner.advisors import Heuristic
from timewright.planner.watch import Planner
from timewright.testing.bench import Bench
from timewright.testing.targets import succeed

DEPTHS = (40, 160, 290, 410, 30, 25)


def main() -> None:
    """A queue that grows and drains: what the planner saw, and what the engine made of it."""
    bench = Bench()
    context = Context(store=bench.store, ids=bench.ids, tell=bench.loop.tell)
    asked = {
        "name": "orders",
        "every": "30m",
        "call": "orders.depth",
        "adaptive": True,
        "clamp": {"min": "5m"},
    }
    operations["schedule create"](context, asked)
    answers = [succeed({"queue_depth": depth, "critical_threshold": 500}) for depth in DEPTHS]
    bench.target.script("orders", *answers)
    planner = Planner(context, Heuristic(), clock=bench.clock)
    for _ in range(40):
        bench.advance(minutes=5)
        for seen in planner.look():
            print(f"{bench.now:%H:%M} {seen['reasoning']}")
    for run in bench.runs("orders"):
        print(f"{run.planned_at:%H:%M:%S} {run.source}")
    print("done")


if __name__ == "__main__":
    main()
