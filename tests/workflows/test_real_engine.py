"""Workflows under the engine as an application runs it: its own threads, its own clock."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.workflows.stage import note
from timewright import Scheduler

LONG = 12


def test_a_chain_does_not_wait_for_the_engine_to_look_again(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "store.db")
    done = threading.Event()
    order: list[str] = []

    @app.task("step")
    def step(name: str) -> None:
        order.append(name)

    names = [f"s{n}" for n in range(LONG)]
    steps = [
        {**note(name, *names[n - 1 : n]), "target": {"kind": "call", "name": "step", "args": {"name": name}}}
        for n, name in enumerate(names)
    ]
    run: str
    with app:
        app.workflows.put(name="chain", steps=steps)
        app.on_completed(lambda fact: done.set() if getattr(fact, "run_id", "") == run else None)
        run = app.workflows.run(workflow="chain")["run"]["id"]
        assert done.wait(45), "the engine rests up to a minute; nobody called it"
    assert order == names
