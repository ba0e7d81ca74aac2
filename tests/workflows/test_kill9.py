"""A worker process is killed during a workflow: another continues, and every step counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.support.databases import Database
from timewright import Scheduler

WAITING = 4
PATIENCE = 60.0


def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, or fail."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        pause.wait(0.02)
    return found


def worker(place: str, journal: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.workflows.child", place, str(journal)],
        env={**os.environ, "PYTHONPATH": path},
    )


def lines(journal: Path) -> list[list[str]]:
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


def step(name: str, *needs: str, **given: Any) -> dict[str, Any]:
    return {
        "name": name,
        "target": {"kind": "call", "name": "work", "args": {"step": name}},
        "needs": list(needs),
        "input": given,
        "retry": {"max_attempts": 3, "backoff": "0.01s"},
    }


def test_a_workflow_outlives_a_worker_that_is_killed(database: Database, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    middle = [f"b{n}" for n in range(WAITING)]
    app = Scheduler(database.place)
    workers = []
    try:
        steps = [step("a"), *(step(name, "a", waits=True) for name in middle), step("c", *middle)]
        app.workflows.put(name="flow", steps=steps)
        run = app.workflows.run(workflow="flow").run.id
        workers.append(worker(database.place, journal))
        until(lambda: len(lines(journal)) == 1 + WAITING)
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait(PATIENCE)
        assert app.runs.get(run=run).run.state == "leased"
        # Expire the leases of the killed worker now instead of waiting five minutes.
        database.sql("UPDATE runs SET lease_until = 1 WHERE state = 'leased' AND parent <> ''")
        workers.append(worker(database.place, journal))
        until(lambda: app.runs.get(run=run).run.state == "succeeded")
    finally:
        for one in workers:
            one.kill()
            one.wait(PATIENCE)
        app.stop()
    began = lines(journal)
    assert sorted(name for name, *_ in began) == sorted(["a", *middle, *middle, "c"])
    assert {(name, fence) for name, _, fence, _ in began if name in middle} == {
        (name, fence) for name in middle for fence in ("1", "2")
    }
    assert len({key for _, key, *_ in began}) == 2 + WAITING
    done = database.sql("SELECT run_id FROM attempts WHERE outcome = 'succeeded' AND run_id <> ?", [run])
    assert len(done) == len(set(done)) == 2 + WAITING
