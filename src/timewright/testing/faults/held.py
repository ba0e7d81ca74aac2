"""The rows of the fault matrix that tests of the suite hold already: which, and where."""

from __future__ import annotations

from timewright.testing.faults.story import Held

PROCESSES = "tests/engine/test_processes.py::test_"
KILLED = "tests/stores/test_kill9.py::test_"

HELD = (
    Held(
        name="killed",
        row="A3",
        done="a worker is killed with kill -9 in the middle of its work",
        expected="the lease ends, an attempt is charged, another worker does it",
        tests=(f"{PROCESSES}a_worker_that_is_killed_costs_an_attempt_and_another_does_its_work",),
    ),
    Held(
        name="slept",
        row="A4",
        done="a worker is stopped with SIGSTOP past its lease, and continued",
        expected="another does the work, the late answer is refused and told",
        tests=(f"{PROCESSES}a_worker_that_slept_past_its_lease_is_not_heard_when_it_wakes",),
    ),
    Held(
        name="told-to-end",
        row="A12",
        done="SIGTERM with work in flight",
        expected="finishes what it can, gives back the rest uncharged, ends with 0",
        tests=(f"{PROCESSES}a_worker_told_to_end_finishes_what_it_can_and_gives_back_the_rest",),
    ),
    Held(
        name="told-twice",
        row="A13",
        done="a second SIGTERM, then SIGKILL, while it drains",
        expected="what is left is lost like any lease",
        tests=(f"{PROCESSES}a_second_signal_does_not_wait_and_what_was_left_is_lost_like_any_lease",),
    ),
    Held(
        name="file-locked",
        row="C6",
        done="another process holds the write lock of the file",
        expected="everything waits, work ends before its lease, nothing is lost",
        tests=(f"{PROCESSES}a_file_that_another_process_holds_delays_everything_and_loses_nothing",),
    ),
    Held(
        name="server-killed",
        row="D5",
        done="the server is killed with kill -9 under a worker, and recovers",
        expected="nothing acknowledged is lost, no second is lost",
        tests=(
            f"{PROCESSES}a_server_that_is_away_delays_everything_and_loses_nothing",
            f"{KILLED}a_server_that_is_killed_loses_nothing_it_had_acknowledged",
        ),
    ),
    Held(
        name="backends-ended",
        row="D1",
        done="pg_terminate_backend on every connection, again and again",
        expected="nothing happens twice",
        tests=(
            f"{PROCESSES}a_server_that_ends_our_connections_again_and_again_makes_nothing_happen_twice",
            f"{KILLED}a_server_whose_process_for_us_is_killed_loses_nothing_it_had_acknowledged",
        ),
    ),
    Held(
        name="writer-killed",
        row="A1, A2",
        done="a writer is killed with kill -9 at random moments, on both stores",
        expected="what was acknowledged is there, each commit whole",
        tests=(
            f"{KILLED}a_writer_to_a_file_that_is_killed_loses_nothing_it_had_acknowledged",
            f"{KILLED}a_writer_to_a_server_that_is_killed_loses_nothing_it_had_acknowledged",
        ),
    ),
    Held(
        name="interpreter-held",
        row="A6, A7",
        done="a function holds the interpreter for longer than its lease",
        expected="in a process of its own no lease is lost; on a thread the late answer is refused",
        tests=(
            f"{PROCESSES}a_function_that_holds_the_interpreter_loses_no_lease_in_a_process_of_its_own",
            f"{PROCESSES}a_function_that_holds_the_interpreter_on_a_thread_may_lose_its_lease_and_is_not_heard_twice",
        ),
    ),
)
