"""A harness for workflows: scripted steps, a clock that moves by hand, and a minimal worker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.operations.harness import OperationsHarness
from timewright.core.run.run import Attempt, Outcome, Run, RunState, Succeeded
from timewright.ids import TimedIds
from timewright.ledger.lease import lease_ready
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import reclaim, settle_results
from timewright.ledger.workflow_runs.records import workflow_context
from timewright.ports import Launch, Store
from timewright.ports.rows import StepRuns
from timewright.testing.bench import TARGET_KINDS
from timewright.testing.clock import ManualClock
from timewright.testing.targets import ScriptedOutcome, ScriptedTarget, ScriptedWork

JsonObject = dict[str, Any]
# How many items the step `source` returns for a fan-out.
FAN_OUT_ITEMS = 37


class StepTarget(ScriptedTarget):
    """Plays a script for each step by name; a step without a script succeeds."""

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


class WorkflowHarness(OperationsHarness):
    """An instance with scripted steps, and queries about its workflow runs."""

    def __init__(
        self, *, start: datetime, store: Store, clock: ManualClock, capacity: int = 100, name: str = "bench"
    ) -> None:
        super().__init__(start=start, store=store, clock=clock)
        self.target = StepTarget(clock)
        self.bench.target = self.target
        self.bench.loop.launcher._targets = dict.fromkeys(TARGET_KINDS, self.target)
        self.bench._tick.holder = name

    def script(self, **acts: ScriptedOutcome | list[ScriptedOutcome]) -> None:
        """Set the outcomes of steps."""
        for step, act in acts.items():
            self.target.script(step, *(act if isinstance(act, list) else [act]))

    def put(self, *steps: JsonObject, name: str = "flow", **fields: Any) -> JsonObject:
        return self.ask("workflow put", name=name, steps=list(steps), **fields)

    def start(self, name: str = "flow", **fields: Any) -> str:
        """Start a workflow, and run one tick."""
        run_id = str(self.ask("workflow run", workflow=name, **fields)["run"]["id"])
        self.bench.tick()
        return run_id

    def run(self, run_id: str) -> Run:
        return self.store.read(lambda tx: tx.get_runs([run_id]))[run_id]

    def state(self, run_id: str) -> str:
        return self.run(run_id).state.value

    def children(self, run_id: str) -> list[Run]:
        return self.store.read(lambda tx: tx.select(StepRuns(run_id)))

    def steps(self, run_id: str) -> dict[str, str]:
        """The state of each step, as the graph of the run shows it."""
        pin = workflow_context(self.run(run_id))
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

    def given(self, step: str) -> list[JsonObject]:
        """The input of each launch of a step."""
        payloads = [launch.payload for launch in self.target.launched if isinstance(launch.payload, dict)]
        return [payload.get("input", {}) for payload in payloads if payload.get("step") == step]

    def result(self, run_id: str) -> Any:
        attempts = self.store.read(lambda tx: tx.get_run_rows(Attempt, [run_id])).get(run_id, ())
        return attempts[-1].result if attempts else None

    def living(self) -> list[Run]:
        """Every run that is ready or leased."""
        rows = self.ask("run list", limit=1000)["runs"]
        return [self.run(row["id"]) for row in rows if row["state"] in (RunState.READY, RunState.LEASED)]


class StepWorker:
    """Settles its results, reclaims expired leases, leases runs, and ends every step at once."""

    def __init__(self, store: Store, launched: Counter[str], *, name: str, capacity: int = 25) -> None:
        self._store = store
        self._launched = launched
        self._name = name
        self._capacity = capacity
        self._ids = TimedIds(random.Random(name).randbytes)
        self._results: list[AttemptResult] = []

    def run_pass(self, now: datetime) -> None:
        """One pass; results that are not written yet are lost if the worker dies."""
        settle_results(self._store, self._results, now=now)
        reclaim(self._store, now=now, limit=100)
        found = lease_ready(self._store, ids=self._ids, holder=self._name, capacity=self._capacity, now=now)
        self._results = [self._run(lease.run, now=now) for lease in found.leases]

    def _run(self, run: Run, *, now: datetime) -> AttemptResult:
        self._launched[run.id] += 1
        result = list(range(FAN_OUT_ITEMS)) if run.payload.get("step") == "source" else 1
        return AttemptResult(run=run, outcome=Succeeded(result=result), started_at=now)


def call_step(name: str, *needs: str, **fields: Any) -> JsonObject:
    """A step that calls a function of its own name."""
    return {"name": name, "target": {"call": name}, "needs": list(needs), **fields}
