"""A house whose steps do as they are told: workflows by name, acts by step, time by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.operations.house import House
from timewright.core.run import Outcome, Run, RunState
from timewright.ledger.unfold_parts import part_of
from timewright.ports import Launch, Store
from timewright.testing.bench import KINDS
from timewright.testing.clock import ManualClock
from timewright.testing.targets import Act, ScriptedTarget, ScriptedWork

Plain = dict[str, Any]


class StepTarget(ScriptedTarget):
    """Plays a script for each step, by its name; what has none succeeds."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> ScriptedWork:
        step = launch.payload.get("step", "") if isinstance(launch.payload, dict) else ""
        script = self._scripts.get(step, [])
        if not script:
            return super().launch(launch, done)
        self._scripts[launch.schedule_name] = [script.pop(0) if len(script) > 1 else script[0]]
        try:
            return super().launch(launch, done)
        finally:
            del self._scripts[launch.schedule_name]


class Stage(House):
    """A house, its workflows, and what became of their runs."""

    def __init__(
        self, *, start: datetime, store: Store, clock: ManualClock, capacity: int = 100, name: str = "bench"
    ) -> None:
        super().__init__(start=start, store=store, clock=clock)
        self.target = StepTarget(clock)
        self.bench.target = self.target
        self.bench.loop.launcher._targets = dict.fromkeys(KINDS, self.target)
        self.bench._tick.holder = name

    def script(self, **acts: Act | list[Act]) -> None:
        """What the steps do."""
        for step, act in acts.items():
            self.target.script(step, *(act if isinstance(act, list) else [act]))

    def put(self, *steps: Plain, name: str = "flow", **fields: Any) -> Plain:
        return self.ask("workflow put", name=name, steps=list(steps), **fields)

    def start(self, name: str = "flow", **fields: Any) -> str:
        """Start a workflow by hand, and let what is due at this instant happen."""
        run_id = str(self.ask("workflow run", workflow=name, **fields)["run"]["id"])
        self.bench.tick()
        return run_id

    def run(self, run_id: str) -> Run:
        return self.store.read(lambda tx: tx.get_runs([run_id]))[run_id]

    def state(self, run_id: str) -> str:
        return self.run(run_id).state.value

    def children(self, run_id: str) -> list[Run]:
        return self.store.read(lambda tx: tx.child_runs(run_id))

    def steps(self, run_id: str) -> dict[str, str]:
        """The state of each step, as the drawing of the run shows it."""
        pin = part_of(self.run(run_id))
        assert pin is not None
        drawn = self.ask("workflow graph", workflow=(pin.runs or pin).workflow, run=run_id)
        return {view["step"]: view["state"] for view in drawn["steps"]}

    def step_run(self, run_id: str, step: str) -> Run:
        """The newest run of a step."""
        return [run for run in self.children(run_id) if run.payload["step"] == step][-1]

    def launches(self) -> Counter[str]:
        """How often each step was launched."""
        payloads = [launch.payload for launch in self.target.launched]
        return Counter(p["step"] for p in payloads if isinstance(p, dict) and p.get("step"))

    def given(self, step: str) -> list[Plain]:
        """The input of each launch of a step."""
        payloads = [launch.payload for launch in self.target.launched if isinstance(launch.payload, dict)]
        return [payload.get("input", {}) for payload in payloads if payload.get("step") == step]

    def result(self, run_id: str) -> Any:
        attempts = self.store.read(lambda tx: tx.get_attempts([run_id])).get(run_id, ())
        return attempts[-1].result if attempts else None

    def living(self) -> list[Run]:
        """Every run that is ready or leased."""
        rows = self.ask("run list", limit=1000)["runs"]
        return [self.run(row["id"]) for row in rows if row["state"] in (RunState.READY, RunState.LEASED)]


def note(name: str, *needs: str, **fields: Any) -> Plain:
    """A step that calls a function of its own name."""
    return {"name": name, "target": {"call": name}, "needs": list(needs), **fields}
