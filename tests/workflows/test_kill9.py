"""A worker is killed during a fan-out: another continues within seconds, and every item counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.support.databases import Database
from timewright import Scheduler

DONE, WAITING = 6, 4
TIMEOUT_S = 60.0


def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, or fail."""
    pause, deadline = threading.Event(), time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        pause.wait(0.02)
    return found


def worker(place: str, journal: Path, *host: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.workflows.child", place, str(journal), *host],
        env={**os.environ, "PYTHONPATH": path},
    )


def lines(journal: Path) -> list[list[str]]:
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


def step(name: str, *needs: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "target": {"kind": "call", "name": "work", "args": {"step": name}},
        "needs": list(needs),
        **fields,
    }


def test_a_fan_out_goes_on_before_the_leases_of_a_killed_worker_end(
    database: Database, tmp_path: Path
) -> None:
    """With default settings: the process is provably dead, so nobody waits for the end of its 60 s leases."""
    kill_in_a_fan_out(database, tmp_path)


@pytest.mark.parametrize("kind", ["postgres"])
def test_on_a_server_another_host_goes_on_before_the_leases_of_a_killed_worker_end(
    database: Database, tmp_path: Path
) -> None:
    """The server has released the lock that all sessions of the killed process shared."""
    kill_in_a_fan_out(database, tmp_path, hosts=("one", "two"))


def kill_in_a_fan_out(database: Database, tmp_path: Path, *, hosts: tuple[str, ...] = ()) -> None:
    journal = tmp_path / "journal"
    items = [False] * DONE + [True] * WAITING
    fan = step("b", "a", each={"$from": "input.items"}, input={"waits": {"$from": "item"}})
    app = Scheduler(database.place)
    workers = []
    try:
        app.workflows.put(name="flow", steps=[step("a"), fan, step("c", "b")])
        run = app.workflows.run(workflow="flow", input={"items": items}).run.id
        workers.append(worker(database.place, journal, *hosts[:1]))
        succeeded = "SELECT count(*) FROM attempts WHERE outcome = 'succeeded' AND run_id <> ?"
        until(lambda: len(lines(journal)) == 1 + DONE + WAITING)
        until(lambda: database.sql(succeeded, [run]) == [(1 + DONE,)])
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait(TIMEOUT_S)
        workers.append(worker(database.place, journal, *hosts[1:]))
        until(lambda: app.runs.get(run=run).run.state == "succeeded")
    finally:
        for one in workers:
            one.kill()
            one.wait(TIMEOUT_S)
        app.stop()
    began = lines(journal)
    # Only the interrupted items started again, each once and in the second process.
    assert Counter(name for name, *_ in began) == {"a": 1, "b": DONE + 2 * WAITING, "c": 1}
    again = [(key, pid) for name, key, fence, pid in began if name == "b" and fence == "2"]
    assert len({key for key, _ in again}) == WAITING
    assert {pid for _, pid in again} == {str(workers[1].pid)}
    # Each was taken before its lease ended, because the process of its holder had ended.
    lost = database.sql("SELECT error, ended_at < lease_until FROM attempts WHERE outcome = 'lost'")
    assert [(error, bool(early)) for error, early in lost] == [
        ("the process of its holder has ended", True)
    ] * WAITING
