"""Reads the process table from /proc: parents, sessions, our marks; and signals processes safely."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

# In the environment of every process we start; its descendants inherit it.
CHILD_MARK_VARIABLE = "TIMEWRIGHT_CHILD"

_SET_SUBREAPER = 36
_GET_SUBREAPER = 37
_GONE = frozenset("ZXx")
_MAX_PASSES = 20
_OOM_SCORE_INCREASE = 300


class ProcessInfo(Struct, frozen=True):
    """One process. `started` distinguishes it from a later process with the same pid."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    state: str

    @property
    def is_dead(self) -> bool:
        """Whether it is a zombie: ended but not reaped."""
        return self.state in _GONE


class ProcessTable:
    """All processes at about one moment, to find the descendants of one of them.

    It `is_incomplete` when a process ended while it was read: its children may be missing.
    """

    def __init__(
        self,
        processes: Iterable[ProcessInfo],
        *,
        read_mark: Callable[[int], str | None],
        is_incomplete: bool = False,
    ) -> None:
        self.is_incomplete = is_incomplete
        self.processes = {process.pid: process for process in processes}
        self._mark_of = read_mark
        self._marks: dict[int, str] = {}
        self._children_of: dict[int, list[ProcessInfo]] = {}
        for process in self.processes.values():
            self._children_of.setdefault(process.parent, []).append(process)

    def descendants(self, leader: int, *, started: int, mark: str) -> list[ProcessInfo]:
        """Running descendants of a leader: by session, group, mark, and by parent of those.

        Without the leader itself, and without processes older than the leader.
        """
        found: dict[int, ProcessInfo] = {}
        queue = [*self._children_of.get(leader, ()), *self._related(leader, started=started, mark=mark)]
        while queue:
            process = queue.pop()
            if process.pid in found or process.pid == leader or process.started < started:
                continue
            found[process.pid] = process
            queue += self._children_of.get(process.pid, ())
        return [process for process in found.values() if not process.is_dead]

    def unreaped(self, *, except_parent: int) -> set[tuple[int, int]]:
        """Zombies whose parent is another process than `except_parent`."""
        dead = (process for process in self.processes.values() if process.is_dead)
        return {(process.pid, process.started) for process in dead if process.parent != except_parent}

    def adopted_orphans(self, parent: int, *, known: Iterable[int]) -> list[ProcessInfo]:
        """Children that `parent` did not start: in another session, and not among `known`."""
        own = self.processes.get(parent)
        known_pids = set(known)
        return [
            process
            for process in self._children_of.get(parent, ())
            if own is not None and process.session != own.session and process.pid not in known_pids
        ]

    def _related(self, leader: int, *, started: int, mark: str) -> list[ProcessInfo]:
        candidates = (process for process in self.processes.values() if process.started >= started)
        return [
            process
            for process in candidates
            if leader in (process.session, process.group) or self._mark(process) == mark
        ]

    def _mark(self, process: ProcessInfo) -> str:
        if process.pid not in self._marks:
            found = "" if process.is_dead else self._mark_of(process.pid)
            self.is_incomplete = self.is_incomplete or found is None
            self._marks[process.pid] = found or ""
        return self._marks[process.pid]


def read_table(proc: Path) -> ProcessTable:
    """Read the current table. Empty where /proc does not exist; raises OSError if it cannot be read now."""
    try:
        numbers = [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - names are wanted, not paths
    except FileNotFoundError:
        numbers = []
    rows = [read_process(number, proc=proc) for number in numbers]
    found = [row for row in rows if row is not None]
    return ProcessTable(
        found, read_mark=lambda pid: read_mark(pid, proc=proc), is_incomplete=len(found) < len(rows)
    )


def read_process(pid: int, *, proc: Path) -> ProcessInfo | None:
    """Read one process, or None if it does not exist."""
    try:
        queue = _read(f"{proc}/{pid}/stat").decode("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The second field is the name in brackets, and a name may contain brackets and spaces.
    fields = queue[queue.rfind(")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, parent, group, session = fields[:4]
    return ProcessInfo(pid, int(parent), int(group), int(session), int(fields[19]), state)


def read_mark(pid: int, *, proc: Path) -> str | None:
    """The mark in the environment of a process; "" if none or not readable, None if it has just ended."""
    try:
        environment = _read(f"{proc}/{pid}/environ")
    except PermissionError:
        return ""
    except OSError:
        return None
    if not environment:  # empty for kernel threads and for ended processes
        now = read_process(pid, proc=proc)
        return None if now is None or now.is_dead else ""
    named = f"{CHILD_MARK_VARIABLE}=".encode()
    marks = (item for item in environment.split(b"\0") if item.startswith(named))
    return next(marks, b"").removeprefix(named).decode("ascii", "replace")


def mark_prefix(pid: int, started: int) -> str:
    """What the marks of all processes begin with that one process started."""
    return f"{pid}.{started}."


def own_mark_prefix(proc: Path) -> str:
    """The `mark_prefix` of this process."""
    own = read_process(os.getpid(), proc=proc)
    return mark_prefix(os.getpid(), own.started if own is not None else 0)


def send_signal(process: ProcessInfo, signum: int, *, proc: Path) -> None:
    """Signal exactly this process, never a later one that reuses its pid."""
    with suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            now = read_process(process.pid, proc=proc)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def kill_marked(marks: Container[str], known: set[int], *, proc: Path) -> set[str]:
    """Kill processes with one of the marks that are not known yet; returns the marks found.

    Reads in passes without a full table, because a process that forks and exits quickly is in no table.
    """
    found: set[str] = set()
    with suppress(OSError):  # no /proc, or no descriptor left
        for _ in range(_MAX_PASSES):
            new = {int(name) for name in os.listdir(proc) if name.isdigit()} - known  # noqa: PTH208 - see above
            known |= new
            for pid in sorted(new, reverse=True):
                process, mark = read_process(pid, proc=proc), read_mark(pid, proc=proc)
                if process is not None and mark in marks:
                    send_signal(process, signal.SIGKILL, proc=proc)
                    found.add(mark or "")
    return found


def prefer_for_oom_kill(pid: int, *, proc: Path) -> None:
    """Let the OOM killer prefer this process over ours, because it can be started again."""
    with suppress(OSError, ValueError):
        known_pids = int(_read(f"{proc}/self/oom_score_adj"))
        fd = os.open(f"{proc}/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(min(known_pids + _OOM_SCORE_INCREASE, 1000)).encode())
        finally:
            os.close(fd)


def set_subreaper(wanted: bool) -> bool:
    """Set whether this process adopts orphaned descendants; returns the previous state.

    It affects the whole process, so use it only in a process that runs nothing but Timewright.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_SET_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, 65_536):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)
