"""Real processes on real stores: killed, suspended, terminated and cut off; checks the rows afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.faults.tools.tick_schedules import assert_each_instant_once, wait_for_catch_up
from tests.faults.tools.worker_fleet import WorkerFleet, WorkerProcess, outcomes, wait_until
from timewright.core.run.run import LEASE_EXPIRED
from timewright.testing.postgres import PostgresServer, postgres_server

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
AWAY = 30.0 if FULL else 5.5
LEASE_SECONDS = 5.0


def test_a_worker_that_is_killed_is_a_loss_and_another_does_its_work(fleet: WorkerFleet) -> None:
    fleet.schedule("work", "until_cancelled")
    run = fleet.run("work")
    fleet.start(2)
    began = fleet.wait_for_line("began", schedule="work")
    first, second = fleet.writer_and_other(began)
    first.send_signal(signal.SIGKILL)
    done = fleet.wait_for_state(run)
    assert outcomes(done) == [("lost", 1, False), ("succeeded", 2, False)]
    assert (done.run.attempts, done.run.losses) == (0, 1)
    again = fleet.wait_for_line("began", schedule="work", fence=2)
    assert (again.pid, again.key) == (second.pid, began.key)
    assert second.output_starting("lease-lost") == [f"lease-lost {run} 1"]


def test_a_worker_that_wakes_after_its_lease_expired_changes_nothing(
    fleet: WorkerFleet, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    fleet.schedule("heeds", "until_cancelled")
    fleet.schedule("deaf", "ignore_cancel", args={"release_file": str(release)})
    runs = {name: fleet.run(name) for name in ("heeds", "deaf")}
    (first,) = fleet.start()
    for name in runs:
        fleet.wait_for_line("began", schedule=name)
    (second,) = fleet.start()
    first.send_signal(signal.SIGSTOP)
    for run in runs.values():
        fleet.wait_for_state(run)
    assert first.output_starting("answer-stale") == []
    release.touch()
    first.send_signal(signal.SIGCONT)
    assert fleet.wait_for_line("cancelled:_lease", schedule="heeds").pid == first.pid, (
        "its work was told to stop, and why"
    )
    wait_until(lambda: len(first.output_starting("answer-stale")) == 2, "both late answers to be refused")
    for name, run in runs.items():
        assert outcomes(fleet.get(run)) == [("lost", 1, False), ("succeeded", 2, False)]
        assert fleet.wait_for_line("began", schedule=name, fence=2).pid == second.pid
    assert len({line.key for line in fleet.journal_lines("began")}) == 2, "each run kept its key"
    assert fleet.get(runs["deaf"]).attempts[1].result == "fence 2"
    assert not first.has_ended, "it goes on with other work"


def test_a_worker_that_is_stopped_finishes_or_releases_its_runs(fleet: WorkerFleet, tmp_path: Path) -> None:
    release = tmp_path / "release"
    fleet.schedule("long", "until_cancelled", lease="30s")
    fleet.schedule("brief", "ignore_cancel", lease="30s", args={"release_file": str(release)})
    fleet.schedule("late", "note", lease="30s")
    long, brief = fleet.run("long"), fleet.run("brief")
    (worker,) = fleet.start(stop_wait=1)
    fleet.wait_for_line("began", schedule="long")
    fleet.wait_for_line("began", schedule="brief")
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_output("ending")
    late = fleet.run("late")
    release.touch()
    assert worker.wait_for_exit() == 0
    assert outcomes(fleet.get(brief)) == [("succeeded", 1, False)], "it waited for what was nearly done"
    given_back = fleet.get(long)
    assert outcomes(given_back) == [("released", 1, False)]
    assert given_back.attempts[0].error == "released at stop"
    assert (given_back.run.state, given_back.run.attempts) == ("ready", 0)
    assert [line.event for line in fleet.journal_lines("cancelled")] == ["cancelled:_stopping"]
    assert (fleet.get(late).run.state, fleet.get(late).run.fence) == ("ready", 0)
    fleet.start()
    assert outcomes(fleet.wait_for_state(long)) == [("released", 1, False), ("succeeded", 2, False)]
    fleet.wait_for_state(late)


def test_a_second_signal_stops_at_once_and_the_leases_expire(file_fleet: WorkerFleet, tmp_path: Path) -> None:
    runs = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        file_fleet.schedule(number.name, "ignore_cancel", args={"release_file": str(tmp_path / "release")})
        runs[number] = file_fleet.run(number.name)
        (worker,) = file_fleet.start(stop_wait=60)
        file_fleet.wait_for_line("began", schedule=number.name)
        worker.send_signal(signal.SIGTERM)
        worker.wait_for_output("ending")
        wait_until(lambda: insisted(worker, number), "the second signal to arrive")  # noqa: B023
        assert worker.wait_for_exit() == -number
    file_fleet.start()
    for run in runs.values():
        assert outcomes(file_fleet.wait_for_state(run)) == [("lost", 1, False), ("succeeded", 2, False)]


def insisted(worker: WorkerProcess, number: signal.Signals) -> bool:
    worker.send_signal(number)
    return worker.has_ended


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the write lock of a file, like another process with a long transaction."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def killed(server: PostgresServer) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


def cut_off(fleet: WorkerFleet, away: AbstractContextManager[None]) -> None:
    """Block the store for longer than the leases, and check that no run is lost or doubled."""
    names = [f"tick{number}" for number in range(3)]
    for name in names:
        fleet.schedule(name, "note", every="1s", catch_up="all")
    fleet.schedule("long", "until_cancelled", lease=f"{LEASE_SECONDS:g}s")
    run = fleet.run("long")
    (worker,) = fleet.start()
    for name in ("long", *names):
        fleet.wait_for_line("began", schedule=name)
    gone_at = time.monotonic()
    with away:
        fleet.wait_for_line("cancelled:_lease_not_renewed_in_time", schedule="long")
        assert time.monotonic() - gone_at < LEASE_SECONDS, "work is ended before anyone else may have its run"
        threading.Event().wait(gone_at + AWAY - time.monotonic())
        assert not worker.has_ended
    wait_for_catch_up(fleet, names)
    lost, done = outcomes(fleet.wait_for_state(run))
    assert (lost[1:], done) == ((1, False), ("succeeded", 2, False))
    fleet.stop()
    # With `all` nothing is missed; occurrences on time behind the catch-up are skipped for overlap.
    assert_each_instant_once(fleet, names, skipped={"overlap"})


def test_a_locked_file_delays_runs_and_loses_none(
    file_fleet: WorkerFleet,
) -> None:
    cut_off(file_fleet, locked(file_fleet.store_url))


def test_a_server_outage_delays_runs_and_loses_none(tmp_path: Path) -> None:
    with (
        postgres_server(durable=True) as server,
        WorkerFleet(server.url(), tmp_path / "journal") as fleet,
    ):
        cut_off(fleet, killed(server))


def test_a_server_that_ends_our_connections_again_and_again_makes_nothing_happen_twice(
    database: str, tmp_path: Path
) -> None:
    names = [f"tick{number}" for number in range(5)]
    with (
        WorkerFleet(database, tmp_path / "journal") as fleet,
        psycopg.connect(database, autocommit=True) as boss,
    ):
        for name in names:
            fleet.schedule(name, "note", every="1s", catch_up="all")
        fleet.start(2)
        ended = 0
        while ended < 12:
            ended += wait_until(lambda: hang_up(boss), "a worker to be connected")
        wait_for_catch_up(fleet, names)
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})


def hang_up(boss: psycopg.Connection) -> int:
    """Terminate every connection of the workers; return how many there were."""
    found = boss.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = 'timewright' AND datname = current_database()"
    ).fetchone()
    assert found is not None
    return int(found[0])


def test_a_function_that_holds_the_interpreter_loses_no_lease_in_a_process_of_its_own(
    database: str, tmp_path: Path
) -> None:
    with WorkerFleet(database, tmp_path / "journal") as fleet:
        fleet.schedule("grind", "hold_interpreter", isolation="process", args={"seconds": 2.5})
        run = fleet.run("grind")
        (worker,) = fleet.start()
        assert fleet.wait_for_line("began", schedule="grind").pid != worker.pid
        done = fleet.wait_for_state(run)
        assert outcomes(done) == [("succeeded", 1, False)]
        assert done.attempts[0].result >= 2.0, "one call was as long as the lease"
        assert worker.output_starting("lease-lost") == []


def test_a_function_that_holds_the_gil_may_lose_its_lease_but_is_settled_once(
    file_fleet: WorkerFleet,
) -> None:
    file_fleet.schedule("grind", "hold_interpreter", isolation="thread", args={"seconds": 4.5})
    run = file_fleet.run("grind")
    file_fleet.start(2)
    first, _ = file_fleet.writer_and_other(file_fleet.wait_for_line("began", schedule="grind"))
    ended = outcomes(file_fleet.wait_for_state(run))
    assert ended[0] == ("lost", 1, False)
    # Else it resumed before the run could be reclaimed: suspended inside a write, it locks the file.
    if file_fleet.get(run).attempts[0].error == LEASE_EXPIRED:
        first.wait_for_output("answer-stale")
    assert outcomes(file_fleet.get(run)) == [ended[0], ("succeeded", 2, False)]
    assert [line.fence for line in file_fleet.journal_lines("began")] == [1, 2]


@pytest.mark.parametrize(("where", "processes"), [("file", 2), ("database", 4)])
def test_many_processes_admit_and_launch_every_occurrence_once(
    where: str, processes: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    names = [f"tick{number}" for number in range(50)]
    with WorkerFleet(str(request.getfixturevalue(where)), tmp_path / "journal") as fleet:
        for name in names:
            fleet.schedule(name, "note", every="1s", lease="30s")
        fleet.start(processes)
        wait_until(lambda: len(fleet.journal_lines("began")) > 50 * 5, "five seconds of work")
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap", "missed"})
        assert {line.fence for line in fleet.journal_lines("began")} == {1}
