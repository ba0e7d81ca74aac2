"""The table of processes: who descends from whom, who carries our mark, and how to signal them safely."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

# In the environment of every process we start, and so of everything that grows out of it.
MARK = "TIMEWRIGHT_CHILD"

_SET_SUBREAPER = 36
_GET_SUBREAPER = 37
_GONE = frozenset("ZXx")
_PASSES = 20
_SOONER = 300


class Process(Struct, frozen=True):
    """One line of the table; `started` tells it from a later process with the same number."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    state: str

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, and only waits to be reaped."""
        return self.state in _GONE


class Table:
    """All processes at about one moment, for finding what grew out of one of them.

    It is `torn` when some ended while it was read: whatever they started meanwhile may be missing.
    """

    def __init__(
        self, processes: Iterable[Process], *, mark_of: Callable[[int], str | None], torn: bool = False
    ) -> None:
        self.torn = torn
        self.processes = {process.pid: process for process in processes}
        self._mark_of = mark_of
        self._marks: dict[int, str] = {}
        self._born_of: dict[int, list[Process]] = {}
        for process in self.processes.values():
            self._born_of.setdefault(process.parent, []).append(process)

    def kin(self, leader: int, *, started: int, mark: str) -> list[Process]:
        """What is alive and grew out of a leader: by session, by group, by mark, and by birth from those.

        The leader itself is not among them. Nothing older than the leader can be.
        """
        found: dict[int, Process] = {}
        line = [*self._born_of.get(leader, ()), *self._alike(leader, started=started, mark=mark)]
        while line:
            process = line.pop()
            if process.pid in found or process.pid == leader or process.started < started:
                continue
            found[process.pid] = process
            line += self._born_of.get(process.pid, ())
        return [process for process in found.values() if not process.is_gone]

    def dead(self, *, except_of: int) -> set[tuple[int, int]]:
        """Those that have ended and wait to be reaped by anyone but this parent."""
        gone = (process for process in self.processes.values() if process.is_gone)
        return {(process.pid, process.started) for process in gone if process.parent != except_of}

    def adopted(self, parent: int, *, known: Iterable[int]) -> list[Process]:
        """Children of `parent` that it did not start: in a session of their own, and unknown to it."""
        own = self.processes.get(parent)
        ours = set(known)
        return [
            process
            for process in self._born_of.get(parent, ())
            if own is not None and process.session != own.session and process.pid not in ours
        ]

    def _alike(self, leader: int, *, started: int, mark: str) -> list[Process]:
        young = (process for process in self.processes.values() if process.started >= started)
        return [
            process
            for process in young
            if leader in (process.session, process.group) or self._mark(process) == mark
        ]

    def _mark(self, process: Process) -> str:
        if process.pid not in self._marks:
            found = "" if process.is_gone else self._mark_of(process.pid)
            self.torn = self.torn or found is None
            self._marks[process.pid] = found or ""
        return self._marks[process.pid]


def read_table(proc: Path) -> Table:
    """The table as it is now; empty where there is none, OSError when it cannot be read just now."""
    try:
        numbers = [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - names are wanted, not paths
    except FileNotFoundError:
        numbers = []
    rows = [read_process(number, proc=proc) for number in numbers]
    found = [row for row in rows if row is not None]
    return Table(found, mark_of=lambda pid: read_mark(pid, proc=proc), torn=len(found) < len(rows))


def read_process(pid: int, *, proc: Path) -> Process | None:
    """One line of the table, or None if there is no such process."""
    try:
        line = _read(f"{proc}/{pid}/stat").decode("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The second field is the name in brackets, and the name may hold brackets and blanks.
    fields = line[line.rfind(")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, parent, group, session = fields[:4]
    return Process(pid, int(parent), int(group), int(session), int(fields[19]), state)


def read_mark(pid: int, *, proc: Path) -> str | None:
    """The mark a process was born with; "" for none or none we may read, None if it has just ended."""
    try:
        environment = _read(f"{proc}/{pid}/environ")
    except PermissionError:
        return ""
    except OSError:
        return None
    if not environment:  # one of the kernel's own has none, and one that has ended has none any more
        now = read_process(pid, proc=proc)
        return None if now is None or now.is_gone else ""
    named = f"{MARK}=".encode()
    marks = (item for item in environment.split(b"\0") if item.startswith(named))
    return next(marks, b"").removeprefix(named).decode("ascii", "replace")


def send(process: Process, signum: int, *, proc: Path) -> None:
    """Signal exactly this process: never one that has taken over its number."""
    with suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            now = read_process(process.pid, proc=proc)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def hunt(marks: Container[str], known: set[int], *, proc: Path) -> set[str]:
    """Kill what carries one of the marks among processes not known yet, as soon as it is seen; says which.

    One that starts another and ends before a whole table is read cannot be found in any table.
    """
    found: set[str] = set()
    with suppress(OSError):  # no table here, or no descriptor left to read it
        for _ in range(_PASSES):
            new = {int(name) for name in os.listdir(proc) if name.isdigit()} - known  # noqa: PTH208 - see above
            known |= new
            for pid in sorted(new, reverse=True):
                process, mark = read_process(pid, proc=proc), read_mark(pid, proc=proc)
                if process is not None and mark in marks:
                    send(process, signal.SIGKILL, proc=proc)
                    found.add(mark or "")
    return found


def offer_first(pid: int, *, proc: Path) -> None:
    """Where memory runs out, let the system end this process before us: it can be started again."""
    with suppress(OSError, ValueError):
        ours = int(_read(f"{proc}/self/oom_score_adj"))
        fd = os.open(f"{proc}/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(min(ours + _SOONER, 1000)).encode())
        finally:
            os.close(fd)


def adopt_orphans(wanted: bool) -> bool:
    """Whether orphans among our descendants come to us instead of to init; says what was so before.

    It holds for the whole process: only for one that is ours alone, where no orphan is a stranger's.
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
