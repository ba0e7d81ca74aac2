"""Workers that settle steps of one workflow concurrently start every step exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from tests.conformance.support.builders import NOON
from tests.conformance.support.databases import Database
from tests.operations.harness import OperationsHarness
from tests.workflows.workflow_kit import StepWorker
from timewright.ports import Store
from timewright.testing.clock import ManualClock

WORKERS, LAYERS, WIDE = 4, 5, 20


def dag() -> list[dict[str, Any]]:
    """Layers in which every step needs two steps of the layer before, and a final step that needs all."""
    steps = []
    for n in range(LAYERS * WIDE):
        layer, place = divmod(n, WIDE)
        above = [(layer - 1) * WIDE + place, (layer - 1) * WIDE + (place + 1) % WIDE] if layer else []
        steps.append({"name": f"s{n}", "target": "work", "needs": [f"s{i}" for i in above]})
    return [*steps, {"name": "join", "target": "work", "needs": [f"s{n}" for n in range(LAYERS * WIDE)]}]


def work(store: Store, launched: Counter[str], run_id: str, clock: ManualClock, *, name: str) -> None:
    worker = StepWorker(store, launched, name=name, capacity=3)
    for _ in range(2000):
        worker.run_pass(clock.now())
        if store.read(lambda tx: tx.get_runs([run_id]))[run_id].state.value not in ("ready", "leased"):
            return


def test_steps_that_end_concurrently_start_their_successors_once(
    database: Database, clock: ManualClock
) -> None:
    harness = OperationsHarness(start=NOON, store=database.open(), clock=clock)
    harness.ask("workflow put", name="wide", steps=dag())
    run_id = harness.ask("workflow run", workflow="wide")["run"]["id"]
    launched: list[Counter[str]] = [Counter() for _ in range(WORKERS)]
    threads = [
        threading.Thread(target=work, args=(database.open(), mine, run_id, clock), kwargs={"name": f"w{n}"})
        for n, mine in enumerate(launched)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert harness.ask("run get", run=run_id)["run"]["state"] == "succeeded"
    assert set(sum(launched, Counter()).values()) == {1}
    assert len(sum(launched, Counter())) == LAYERS * WIDE + 2
    total = harness.store.read(lambda tx: tx.get_steps(run_id, [""]))[""]
    assert (total.met, total.live, total.parked) == (LAYERS * WIDE + 1, 0, 0)
