"""The identity of this process, and the proof from /proc that the process of another instance has ended."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from timewright.ledger.records.instances import InstanceRecord, ProcessIdentity
from timewright.targets.processes.table import mark_prefix, read_mark, read_process

PROC = Path("/proc")


def read_own_identity(proc: Path = PROC) -> ProcessIdentity | None:
    """The identity of this process; None where there is no /proc."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError:
        return None
    own = read_process(os.getpid(), proc=proc)
    if own is None:
        return None
    return ProcessIdentity(boot=boot, pid_namespace=namespace, started=own.started, user=os.getuid())


def is_proven_dead(instance: InstanceRecord, own: ProcessIdentity | None, *, proc: Path = PROC) -> bool:
    """Whether it is proven that the process of an instance has ended, and that no child process of it runs.

    False also means that it is unknown. A command may outlive its scheduler; while one runs, the leases of
    the instance must not be taken.
    """
    other = instance.process
    if own is None or other is None or instance.host != platform.node():
        return False
    if (own.boot, own.pid_namespace) != (other.boot, other.pid_namespace):
        return False
    if own.user not in (0, other.user):  # only root can read the environment of another user's processes
        return False
    if not _is_gone(instance.pid, other.started, proc=proc):
        return False
    return not _has_children(mark_prefix(instance.pid, other.started), proc=proc)


def _is_gone(pid: int, started: int, *, proc: Path) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    found = read_process(pid, proc=proc)
    if found is None:
        return False
    if found.started != started:
        return True
    try:
        # Until its last thread has ended, a process whose first thread has ended looks dead too.
        return found.is_dead and len(list((proc / str(pid) / "task").iterdir())) <= 1
    except OSError:
        return False


def _has_children(prefix: str, *, proc: Path) -> bool:
    """Whether a process runs that was started by the process with these marks."""
    try:
        pids = [int(one.name) for one in proc.iterdir() if one.name.isdigit()]
    except OSError:
        return True
    return any((read_mark(pid, proc=proc) or "").startswith(prefix) for pid in pids)
