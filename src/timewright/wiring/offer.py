"""What an instance offers, and the identity of its process, by which others prove that it has ended."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from timewright.core.run.needs import HOST, Needs, Offer
from timewright.engine.in_flight import SlotLimits
from timewright.ledger.records.instances import InstanceRecord, ProcessIdentity
from timewright.settings import Settings
from timewright.targets.processes.table import mark_prefix, read_mark, read_process

PROC = Path("/proc")


if TYPE_CHECKING:
    from timewright.targets.call.registry import FunctionRegistry

PROCESS, THREAD = "process", "thread"


class OfferSource:
    """The current offer of an instance; the same object until a function is added."""

    def __init__(self, settings: Settings, registry: FunctionRegistry, *, isolated: bool) -> None:
        self._settings = settings
        self._registry = registry
        self._isolated = isolated
        self._version = -1
        self._offer = Offer()
        self._slots: dict[Needs, str] = {}

    def current(self) -> Offer:
        """What the instance can run."""
        if self._version != self._registry.version:
            self._version = self._registry.version
            self._slots = {}
            self._offer = Offer(
                functions=tuple(sorted(one.name for one in self._registry)),
                queues=self._settings.queues or None,
                labels=self._settings.labels,
                programs=self._settings.shell and (self._settings.commands.programs or True),
                brokers=_usable_brokers(self._settings.publish),
            )
        return self._offer

    def slot_limits(self) -> SlotLimits:
        """The worker processes and threads that calls wait for."""
        counts = {PROCESS: self._settings.workers, THREAD: self._settings.threads}
        return SlotLimits(slot_of=self._slot_of, counts=counts, per_host=self._settings.egress.per_host)

    def _slot_of(self, needs: Needs) -> str:
        """The slot of a run: a process or a thread for a call that runs in one."""
        found = self._slots.get(needs)
        if found is None:
            found = self._slots[needs] = self._find_slot(dict(need.partition(":")[::2] for need in needs))
        return found

    def _find_slot(self, needs: dict[str, str]) -> str:
        if "host" in needs:
            return f"{HOST}{needs['host']}"
        if "call" not in needs or needs["call"] not in self._registry:
            return ""
        registered = self._registry.resolve(needs["call"])
        isolation = needs.get("isolation") or registered.isolation
        if isolation == "inherit" and self._isolated:
            return PROCESS
        if isolation == "inherit":
            return "" if registered.is_async else THREAD
        return isolation if isolation in (PROCESS, THREAD) else ""


def _usable_brokers(allowed: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the brokers that are allowed, by name or by an address, and whose client is installed."""
    if not allowed:
        return ()
    from timewright.targets.publish.broker_types import BROKER_TYPES

    schemes = {entry.partition("://")[0] for entry in allowed if "://" in entry}
    return tuple(
        name
        for name, kind in sorted(BROKER_TYPES.items())
        if (kind.name in allowed or schemes.intersection(kind.schemes))
        and all(find_spec(module) is not None for module in kind.modules)
    )


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


def has_ended(instance: InstanceRecord, own: ProcessIdentity | None, *, proc: Path = PROC) -> bool:
    """Whether the process of an instance has ended and left no process behind; False if that is not proven.

    A command outlives its scheduler by default, so it keeps the lease while it runs.
    """
    other = instance.process
    if own is None or other is None or instance.host != platform.node():
        return False
    if (own.boot, own.pid_namespace) != (other.boot, other.pid_namespace) or own.user not in (0, other.user):
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
