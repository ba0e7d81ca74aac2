"""Faults of the matrix that tests of the suite cover, and where."""

from __future__ import annotations

from tests.faults.scenario import CoveredFault

PROCESSES = "tests/engine/instances/test_processes.py::test_"
KILLED = "tests/stores/test_kill9.py::test_"

COVERED = (
    CoveredFault(
        name="killed",
        row="A3",
        action="a worker is killed with kill -9 in the middle of its work",
        expected="the lease ends, an attempt is charged, another worker does it",
        tests=(f"{PROCESSES}a_worker_that_is_killed_is_a_loss_and_another_does_its_work",),
    ),
    CoveredFault(
        name="suspended",
        row="A4",
        action="a worker is stopped with SIGSTOP past its lease, and continued",
        expected="another worker does the work, the late result is refused and reported",
        tests=(f"{PROCESSES}a_worker_that_wakes_after_its_lease_expired_changes_nothing",),
    ),
    CoveredFault(
        name="sigterm",
        row="A12",
        action="SIGTERM with work in flight",
        expected="finishes what it can, releases the rest uncharged, exits with 0",
        tests=(f"{PROCESSES}a_worker_that_is_stopped_finishes_or_releases_its_runs",),
    ),
    CoveredFault(
        name="second-sigterm",
        row="A13",
        action="a second SIGTERM, then SIGKILL, while it drains",
        expected="the remaining leases are lost like any other",
        tests=(f"{PROCESSES}a_second_signal_stops_at_once_and_the_leases_expire",),
    ),
    CoveredFault(
        name="file-locked",
        row="C6",
        action="another process holds the write lock of the file",
        expected="everything waits, work ends before its lease, nothing is lost",
        tests=(f"{PROCESSES}a_locked_file_delays_runs_and_loses_none",),
    ),
    CoveredFault(
        name="server-killed",
        row="D5",
        action="the server is killed with kill -9 under a worker, and recovers",
        expected="nothing acknowledged is lost, no second is lost",
        tests=(
            f"{PROCESSES}a_server_outage_delays_runs_and_loses_none",
            f"{KILLED}a_server_that_is_killed_loses_nothing_it_had_acknowledged",
        ),
    ),
    CoveredFault(
        name="backends-ended",
        row="D1",
        action="pg_terminate_backend on every connection, again and again",
        expected="nothing happens twice",
        tests=(
            f"{PROCESSES}a_server_that_ends_our_connections_again_and_again_makes_nothing_happen_twice",
            f"{KILLED}killing_a_backend_loses_no_acknowledged_commit",
        ),
    ),
    CoveredFault(
        name="writer-killed",
        row="A1, A2",
        action="a writer is killed with kill -9 at random moments, on both stores",
        expected="every acknowledged commit is there, and complete",
        tests=(
            f"{KILLED}a_writer_to_a_file_that_is_killed_loses_nothing_it_had_acknowledged",
            f"{KILLED}a_writer_to_a_server_that_is_killed_loses_nothing_it_had_acknowledged",
        ),
    ),
    CoveredFault(
        name="interpreter-held",
        row="A6, A7",
        action="a function holds the interpreter for longer than its lease",
        expected="in a worker process no lease is lost; on a thread the late result is refused",
        tests=(
            f"{PROCESSES}a_function_that_holds_the_interpreter_loses_no_lease_in_a_process_of_its_own",
            f"{PROCESSES}a_function_that_holds_the_gil_may_lose_its_lease_but_is_settled_once",
        ),
    ),
)
