"""Real processes on real stores: killed, stopped, told to end, cut off; and what the rows say afterwards."""

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

from tests.engine.fleet import Fleet, Worker, outcomes, until
from timewright.testing.faults.ticking import accepted_once, catch_up
from timewright.testing.postgres import PostgresServer, postgres_server

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
AWAY = 30.0 if FULL else 5.5
LEASE_SECONDS = 5.0


def test_a_worker_that_is_killed_costs_an_attempt_and_another_does_its_work(fleet: Fleet) -> None:
    fleet.schedule("work", "until_told")
    run = fleet.run("work")
    fleet.start(2)
    began = fleet.find("began", schedule="work")
    first, second = fleet.apart(began)
    first.send(signal.SIGKILL)
    done = fleet.settled(run)
    assert outcomes(done) == [("lost", 1, True), ("succeeded", 2, False)]
    assert done["run"]["attempts"] == 1
    again = fleet.find("began", schedule="work", fence=2)
    assert (again.pid, again.key) == (second.pid, began.key)
    assert second.said("lease-lost") == [f"lease-lost {run} 1"]


def test_a_worker_that_slept_past_its_lease_is_not_heard_when_it_wakes(fleet: Fleet, tmp_path: Path) -> None:
    door = tmp_path / "door"
    fleet.schedule("heeds", "until_told")
    fleet.schedule("deaf", "deaf", args={"door": str(door)})
    runs = {name: fleet.run(name) for name in ("heeds", "deaf")}
    (first,) = fleet.start()
    for name in runs:
        fleet.find("began", schedule=name)
    (second,) = fleet.start()
    first.send(signal.SIGSTOP)
    for run in runs.values():
        fleet.settled(run)
    assert first.said("answer-stale") == []
    door.touch()
    first.send(signal.SIGCONT)
    assert fleet.find("told:_lease", schedule="heeds").pid == first.pid, "its work was told to stop, and why"
    until(lambda: len(first.said("answer-stale")) == 2, "both late answers to be refused")
    for name, run in runs.items():
        assert outcomes(fleet.get(run)) == [("lost", 1, True), ("succeeded", 2, False)]
        assert fleet.find("began", schedule=name, fence=2).pid == second.pid
    assert len({line.key for line in fleet.written("began")}) == 2, "each run kept its key"
    assert fleet.get(runs["deaf"])["attempts"][1]["result"] == "fence 2"
    assert not first.ended, "it goes on with other work"


def test_a_worker_told_to_end_finishes_what_it_can_and_gives_back_the_rest(
    fleet: Fleet, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    fleet.schedule("long", "until_told", lease="30s")
    fleet.schedule("brief", "deaf", lease="30s", args={"door": str(door)})
    fleet.schedule("late", "note", lease="30s")
    long, brief = fleet.run("long"), fleet.run("brief")
    (worker,) = fleet.start(stop_wait=1)
    fleet.find("began", schedule="long")
    fleet.find("began", schedule="brief")
    worker.send(signal.SIGTERM)
    worker.hear("ending")
    late = fleet.run("late")
    door.touch()
    assert worker.end() == 0
    assert outcomes(fleet.get(brief)) == [("succeeded", 1, False)], "it waited for what was nearly done"
    given_back = fleet.get(long)
    assert outcomes(given_back) == [("released", 1, False)]
    assert given_back["attempts"][0]["error"] == "released at stop"
    assert (given_back["run"]["state"], given_back["run"]["attempts"]) == ("ready", 0)
    assert [line.word for line in fleet.written("told")] == ["told:_stopping"]
    assert (fleet.get(late)["run"]["state"], fleet.get(late)["run"]["fence"]) == ("ready", 0)
    fleet.start()
    assert outcomes(fleet.settled(long)) == [("released", 1, False), ("succeeded", 2, False)]
    fleet.settled(late)


def test_a_second_signal_does_not_wait_and_what_was_left_is_lost_like_any_lease(
    file_fleet: Fleet, tmp_path: Path
) -> None:
    runs = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        file_fleet.schedule(number.name, "deaf", args={"door": str(tmp_path / "door")})
        runs[number] = file_fleet.run(number.name)
        (worker,) = file_fleet.start(stop_wait=60)
        file_fleet.find("began", schedule=number.name)
        worker.send(signal.SIGTERM)
        worker.hear("ending")
        until(lambda: insisted(worker, number), "the second signal to be heard")  # noqa: B023
        assert worker.end() == -number
    file_fleet.start()
    for run in runs.values():
        assert outcomes(file_fleet.settled(run)) == [("lost", 1, True), ("succeeded", 2, False)]


def insisted(worker: Worker, number: signal.Signals) -> bool:
    worker.send(number)
    return worker.ended


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the write lock of a file, as another process that takes long over its transaction."""
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


def cut_off(fleet: Fleet, away: AbstractContextManager[None]) -> None:
    """Take the store away from a worker for longer than its leases, and see that nobody notices later."""
    names = [f"tick{number}" for number in range(3)]
    for name in names:
        fleet.schedule(name, "note", every="1s", catch_up="all")
    fleet.schedule("long", "until_told", lease=f"{LEASE_SECONDS:g}s")
    run = fleet.run("long")
    (worker,) = fleet.start()
    for name in ("long", *names):
        fleet.find("began", schedule=name)
    gone_at = time.monotonic()
    with away:
        fleet.find("told:_lease_not_renewed_in_time", schedule="long")
        assert time.monotonic() - gone_at < LEASE_SECONDS, "work is ended before anyone else may have its run"
        threading.Event().wait(gone_at + AWAY - time.monotonic())
        assert not worker.ended
    catch_up(fleet, names)
    lost, done = outcomes(fleet.settled(run))
    assert (lost[1:], done) == ((1, True), ("succeeded", 2, False))
    fleet.stop()
    # Nothing is missed under `all`; but what comes on time behind those that catch up is passed over.
    accepted_once(fleet, names, skipped={"overlap"})


def test_a_file_that_another_process_holds_delays_everything_and_loses_nothing(file_fleet: Fleet) -> None:
    cut_off(file_fleet, locked(file_fleet.place))


def test_a_server_that_is_away_delays_everything_and_loses_nothing(tmp_path: Path) -> None:
    with (
        postgres_server(durable=True) as server,
        Fleet(server.url(), tmp_path / "journal") as fleet,
    ):
        cut_off(fleet, killed(server))


def test_a_server_that_ends_our_connections_again_and_again_makes_nothing_happen_twice(
    database: str, tmp_path: Path
) -> None:
    names = [f"tick{number}" for number in range(5)]
    with Fleet(database, tmp_path / "journal") as fleet, psycopg.connect(database, autocommit=True) as boss:
        for name in names:
            fleet.schedule(name, "note", every="1s", catch_up="all")
        fleet.start(2)
        ended = 0
        while ended < 12:
            ended += until(lambda: hang_up(boss), "a worker to be connected")
        catch_up(fleet, names)
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})


def hang_up(boss: psycopg.Connection) -> int:
    """End every connection of the workers, whatever it is doing; gives back how many there were."""
    found = boss.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = 'timewright' AND datname = current_database()"
    ).fetchone()
    assert found is not None
    return int(found[0])


def test_a_function_that_holds_the_interpreter_loses_no_lease_in_a_process_of_its_own(
    database: str, tmp_path: Path
) -> None:
    with Fleet(database, tmp_path / "journal") as fleet:
        fleet.schedule("grind", "grind", isolation="process", args={"seconds": 2.5})
        run = fleet.run("grind")
        (worker,) = fleet.start()
        assert fleet.find("began", schedule="grind").pid != worker.pid
        done = fleet.settled(run)
        assert outcomes(done) == [("succeeded", 1, False)]
        assert done["attempts"][0]["result"] >= 2.0, "one call was as long as the lease"
        assert worker.said("lease-lost") == []


def test_a_function_that_holds_the_interpreter_on_a_thread_may_lose_its_lease_and_is_not_heard_twice(
    file_fleet: Fleet,
) -> None:
    file_fleet.schedule("grind", "grind", isolation="thread", args={"seconds": 4.5})
    run = file_fleet.run("grind")
    file_fleet.start(2)
    first, _ = file_fleet.apart(file_fleet.find("began", schedule="grind"))
    ended = outcomes(file_fleet.settled(run))
    if ended[0] == ("lost", 1, True):
        first.hear("answer-stale")
    else:
        # It came to before anyone could take the run: held within a write it keeps the file from all.
        assert ended[0] == ("failed", 1, True)
        assert "lease" in file_fleet.get(run)["attempts"][0]["error"]
    assert outcomes(file_fleet.get(run)) == [ended[0], ("succeeded", 2, False)]
    assert [line.fence for line in file_fleet.written("began")] == [1, 2]


@pytest.mark.parametrize(("where", "processes"), [("file", 2), ("database", 4)])
def test_many_processes_decide_every_instant_once_and_call_for_it_once(
    where: str, processes: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    names = [f"tick{number}" for number in range(50)]
    with Fleet(str(request.getfixturevalue(where)), tmp_path / "journal") as fleet:
        for name in names:
            fleet.schedule(name, "note", every="1s", lease="30s")
        fleet.start(processes)
        until(lambda: len(fleet.written("began")) > 50 * 5, "five seconds of work")
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap", "missed"})
        assert {line.fence for line in fleet.written("began")} == {1}
