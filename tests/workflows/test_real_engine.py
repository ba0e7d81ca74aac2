"""Workflows in a real engine, with its threads and its clock."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.workflows.workflow_kit import call_step
from timewright import Scheduler

LONG = 12


def test_a_chain_of_steps_does_not_wait_for_the_next_tick(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "store.db")
    done = threading.Event()
    order: list[str] = []

    @app.task("step")
    def step(name: str) -> None:
        order.append(name)

    names = [f"s{n}" for n in range(LONG)]
    steps = [
        {
            **call_step(name, *names[n - 1 : n]),
            "target": {"kind": "call", "name": "step", "args": {"name": name}},
        }
        for n, name in enumerate(names)
    ]
    run: str
    with app:
        app.workflows.put(name="chain", steps=steps)
        app.on_completed(lambda fact: done.set() if getattr(fact, "run_id", "") == run else None)
        run = app.workflows.run(workflow="chain").run.id
        assert done.wait(45), "the engine rests up to a minute; nobody called it"
    assert order == names
