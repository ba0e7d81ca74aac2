"""Runs are leased only by instances that can run them, as real processes on real stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.tools.worker_fleet import WorkerFleet, outcomes, wait_until
from timewright import Scheduler
from timewright.operations.views import RunSummary

RUNS = 12
SECONDS = 60 if os.environ.get("TIMEWRIGHT_FULL") else 6


@pytest.fixture
def postgres_fleet(database: str, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Worker processes on PostgreSQL."""
    with WorkerFleet(database, tmp_path / "journal") as fleet:
        yield fleet


@contextmanager
def command(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `timewright` command that runs in a folder until the block ends."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    env.pop("TIMEWRIGHT_FULL", None)  # no setting
    with (folder / "command.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "timewright", *words], cwd=folder, stdout=log, stderr=log, env=env
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_up_beside_an_embedded_scheduler_takes_none_of_its_functions(tmp_path: Path) -> None:
    with command("up", "--port", "0", folder=tmp_path):
        wait_until((tmp_path / "timewright.db").exists, "the store")
        with Scheduler(tmp_path / "timewright.db") as app:

            @app.schedule(every="1s")
            def refresh() -> None:
                return

            wait_until(lambda: len(app.call("instance list").instances) == 2, "both instances")
            wait_until(lambda: len(succeeded(app)) >= SECONDS, "some runs to end", seconds=2 * SECONDS + 120)
            assert {run.state for run in ended(app)} == {"succeeded"}
            assert {len(app.runs.get(run=run.id).attempts) for run in succeeded(app)} == {1}
            assert app.schedules.get(schedule="refresh").progress.state == "active"


def succeeded(app: Scheduler) -> list[RunSummary]:
    return [run for run in ended(app) if run.state == "succeeded"]


def ended(app: Scheduler) -> list[RunSummary]:
    return [run for run in app.runs.list(schedule="refresh", limit=500).runs if run.finished_at is not None]


def test_two_programs_on_one_store_run_their_own_functions(fleet: WorkerFleet) -> None:
    fleet.schedule("a", "note", overlap="allow")
    fleet.schedule("b", "until_cancelled", overlap="allow", args={})
    (first,) = fleet.start(functions=["note"])
    (second,) = fleet.start(functions=["ignore_cancel"])
    fleet.schedule("c", "ignore_cancel", overlap="allow", args={"release_file": str(fleet.journal)})
    runs = {name: [fleet.run(name) for _ in range(RUNS)] for name in ("a", "c")}
    waiting = fleet.run("b")
    for name, worker in (("a", first), ("c", second)):
        for run in runs[name]:
            assert outcomes(fleet.wait_for_state(run)) == [("succeeded", 1, False)]
        assert {line.pid for line in fleet.journal_lines("began", schedule=name)} == {worker.pid}
    assert fleet.get(waiting).run.state == "ready", "nobody has its function, so it waits"


def test_a_rolling_deploy_runs_the_new_function_only_in_the_new_process(
    postgres_fleet: WorkerFleet,
) -> None:
    fleet = postgres_fleet
    old = fleet.start(3, functions=["note"])
    (new,) = fleet.start(functions=["note", "ignore_cancel"])
    fleet.schedule("new", "ignore_cancel", overlap="allow", args={"release_file": str(fleet.journal)})
    fleet.schedule("old", "note", overlap="allow")
    first = [fleet.run("new") for _ in range(RUNS)]
    for run in first:
        assert outcomes(fleet.wait_for_state(run)) == [("succeeded", 1, False)]
    new.send_signal(signal.SIGKILL)
    old[0].send_signal(signal.SIGKILL)
    second = [fleet.run("new") for _ in range(RUNS)]
    others = [fleet.run("old") for _ in range(RUNS)]
    for run in others:
        fleet.wait_for_state(run)
    assert {fleet.get(run).run.state for run in second} == {"ready"}, "they wait for a new process"
    old[1].send_signal(signal.SIGTERM)
    (newer,) = fleet.start(functions=["note", "ignore_cancel"])
    for run in second:
        assert outcomes(fleet.wait_for_state(run)) == [("succeeded", 1, False)]
    pids = {line.pid for line in fleet.journal_lines("began", schedule="new")}
    assert pids == {new.pid, newer.pid}
    assert fleet.app.schedules.get(schedule="new").progress.state == "active"


def test_a_due_schedule_waits_for_a_capable_process_and_starts_at_once_with_it(fleet: WorkerFleet) -> None:
    fleet.start(functions=[])
    fleet.schedule("tick", "note", every="1s", catch_up="none")
    waits = "no running instance has function 'note'"
    wait_until(
        lambda: any(waits in line for line in fleet.stderr_log.read_text().splitlines()), "the warning"
    )
    (worker,) = fleet.start(functions=["note"])
    began = fleet.wait_for_line("began", schedule="tick", seconds=5)
    assert began.pid == worker.pid
    assert not [row for row in fleet.rows("tick") if row.state in ("failed", "parked")]
    assert fleet.stderr_log.read_text().count(waits) == 1, "it is said once"


def test_labels_and_queues_decide_who_takes_a_run(file_fleet: WorkerFleet) -> None:
    fleet = file_fleet
    (mail,) = fleet.start(settings={"queues": ["mail"]})
    (gpu,) = fleet.start(settings={"labels": ["gpu"], "queues": ["reports", "other"]})
    fleet.schedule("sends", "note", queue="mail", overlap="allow")
    fleet.schedule("reports", "note", queue="reports", runs_on=["gpu"], overlap="allow")
    fleet.schedule("plain", "note", overlap="allow")
    for name, worker in (("sends", mail), ("reports", gpu)):
        fleet.wait_for_state(fleet.run(name))
        assert {line.pid for line in fleet.journal_lines(schedule=name)} == {worker.pid}
    plain = fleet.run("plain")
    (third,) = fleet.start()
    fleet.wait_for_state(plain)
    assert {line.pid for line in fleet.journal_lines(schedule="plain")} == {third.pid}


def test_process_calls_spread_over_workers_with_free_processes(
    postgres_fleet: WorkerFleet, tmp_path: Path
) -> None:
    fleet = postgres_fleet
    release = str(tmp_path / "release")
    fleet.schedule(
        "long", "ignore_cancel", overlap="allow", isolation="process", args={"release_file": release}
    )
    workers = fleet.start(3, settings={"workers": 2})
    runs = [fleet.run("long") for _ in range(8)]

    def holders() -> dict[str, int]:
        found = [fleet.get(run).run for run in runs]
        leased = [run.holder for run in found if run.state == "leased"]
        return {holder: leased.count(holder) for holder in leased}

    wait_until(lambda: sum(holders().values()) >= 6, "every worker process to be busy")
    assert sorted(holders().values()) == [2] * len(workers), "each leased what it could start"
    Path(release).touch()
    for run in runs:
        fleet.wait_for_state(run)
