"""A nightly load of eight steps: a fan-out with a limit, a retry, templates, and a step that cleans up."""

from __future__ import annotations

import tempfile
from pathlib import Path

from timewright import Scheduler
from timewright.interfaces.python.workflow_builder import WorkflowBuilder

with tempfile.TemporaryDirectory() as folder:
    app = Scheduler(Path(folder) / "load.db")
    tries: list[str] = []

    @app.task()
    def tables(day: str) -> list[str]:
        return [f"{name}-{day}" for name in ("orders", "customers", "prices")]

    @app.task()
    def extract(table: str) -> dict[str, int]:
        return {"rows": len(table)}

    @app.task()
    def stage(parts: list[dict[str, int]]) -> int:
        return sum(part["rows"] for part in parts)

    @app.task()
    def load(rows: int) -> int:
        tries.append("load")
        if len(tries) == 1:
            raise ConnectionError("the warehouse is busy")
        return rows

    @app.task()
    def verify(rows: int, expected: int) -> bool:
        return rows == expected

    @app.task()
    def tidy() -> str:
        return "stage emptied"

    @app.workflow(deadline="6h")
    def nightly_load(wf: WorkflowBuilder, day: str) -> None:
        """Eight steps; what a step is given decides what it waits for."""
        found = wf.step("tables", input={"day": day})
        parts = wf.step("extract", each=found.result, max_running=2, input={"table": wf.item})
        staged = wf.step("stage", input={"parts": parts})
        loaded = wf.step("load", input={"rows": staged}, retry={"max_attempts": 3, "backoff": "0.1s"})
        checked = wf.step("verify", input={"rows": loaded, "expected": staged})
        wf.step("publish", {"note": f"{day}: {loaded.result} rows"}, when="steps.verify.result")
        wf.step("alarm", {"note": f"load {loaded.state}: {loaded.error}"}, run_if="failed")
        wf.step("tidy", needs=[checked], run_if="always")

    nightly_load.check()
    with app:
        run = nightly_load.run(day="2026-03-09").run.id
        print(app.result(run, timeout="60s"))
        drawn = app.workflows.graph(workflow="nightly-load", run=run)
    for step in drawn.steps:
        print(f"{step.step:8} {step.state}")
    print("done")
