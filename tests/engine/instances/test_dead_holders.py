"""A holder that is proven dead is replaced at once; one that is only silent keeps its leases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from msgspec.structs import replace

from tests.conformance.support.builders import NOON
from timewright.ledger.records.instances import InstanceRecord, ProcessIdentity
from timewright.targets.processes.table import CHILD_MARK_VARIABLE, mark_prefix, read_process
from timewright.wiring.process_identity import PROC, is_proven_dead, read_own_identity

SLEEPER = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def start(**env: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, env={**os.environ, **env})
    assert process.stdout is not None
    process.stdout.read(1)
    return process


def own() -> ProcessIdentity:
    found = read_own_identity()
    assert found is not None
    return found


def record(pid: int) -> InstanceRecord:
    seen = read_process(pid, proc=PROC)
    assert seen is not None
    return InstanceRecord(
        id="ins",
        host=os.uname().nodename,
        pid=pid,
        version="1",
        started_at=NOON,
        capacity=1,
        process=replace(own(), started=seen.started),
    )


def end(*processes: subprocess.Popen[bytes]) -> None:
    for one in processes:
        one.kill()
        one.communicate()


def test_only_a_process_that_has_ended_is_dead() -> None:
    process = start()
    try:
        held = record(process.pid)
        assert not is_proven_dead(held, own())
        process.send_signal(signal.SIGSTOP)
        assert not is_proven_dead(held, own())
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_proven_dead(held, own()), "a process that nobody waited for has ended too"
    finally:
        end(process)
    assert is_proven_dead(held, own())


def test_a_pid_that_another_process_has_now_is_dead() -> None:
    held = record(os.getpid())
    assert held.process is not None
    assert not is_proven_dead(held, own())
    assert is_proven_dead(replace(held, process=replace(held.process, started=1)), own())


def test_nothing_is_proven_about_another_host_boot_namespace_or_user() -> None:
    process = start()
    held = record(process.pid)
    end(process)
    here = own()
    assert is_proven_dead(held, here)
    assert not is_proven_dead(replace(held, host="elsewhere"), here)
    assert not is_proven_dead(replace(held, process=None), here)
    assert not is_proven_dead(held, None)
    for change in ({"boot": "another"}, {"pid_namespace": "pid:[1]"}):
        assert not is_proven_dead(held, replace(here, **change))
    assert held.process is not None
    of_another_user = replace(held, process=replace(held.process, user=here.user + 1))
    assert not is_proven_dead(of_another_user, replace(here, user=here.user + 2))


def test_a_command_that_outlives_its_scheduler_keeps_the_lease() -> None:
    scheduler = start()
    held = record(scheduler.pid)
    assert held.process is not None
    mark = mark_prefix(held.pid, held.process.started) + "0123"
    command = start(**{CHILD_MARK_VARIABLE: mark})
    try:
        end(scheduler)
        assert not is_proven_dead(held, own())
    finally:
        end(command)
    assert is_proven_dead(held, own())
