"""One process we started: what it was asked to run, what it said, how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping

from msgspec import Struct

from timewright.targets.excerpt import Excerpt
from timewright.targets.watch import Timer

FIRST_LOOK = 0.01


class Spawn(Struct, frozen=True, kw_only=True):
    """What to start: an argument vector and a whole environment; stdin is empty, the session is new."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    output_bytes: int = 64 * 1024
    keep_fd: int | None = None


class Status(Struct, frozen=True):
    """How a process ended: by an exit code, by a signal, or nobody knows."""

    code: int | None = None
    signal: int | None = None

    def describe(self) -> str:
        """In words: `exit 3`, `killed by SIGSEGV`."""
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        if self.code is None:
            return "ended, and something else in this program took its exit code"
        return f"exit {self.code}"


def signal_name(number: int) -> str:
    """`SIGTERM` for 15; a number without a name as `signal 63`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Child:
    """One process we started, with everything that grew out of it."""

    def __init__(
        self, process: subprocess.Popen[bytes], *, mark: str, output: Excerpt, on_end: Callable[[Child], None]
    ) -> None:
        self.pid = process.pid
        self.output = output
        self.status: Status | None = None
        self.survivors = 0
        self.process = process
        self.mark = mark
        self.started = 0
        self.on_end = on_end
        self.handle: int | None = None
        self.kill_at: float | None = None
        self.doubted_at: float | None = None
        self.traced_at = 0.0
        self.pause = FIRST_LOOK
        self.told: set[int] = set()
        self.look: Timer | None = None
        self.is_over = False

    @property
    def is_silent(self) -> bool:
        """Whether nobody holds its output open any more."""
        return self.process.stdout is None or self.process.stdout.closed

    @property
    def is_reaped(self) -> bool:
        """Whether its number may belong to somebody else by now."""
        return self.process.returncode is not None or self.status == Status()


# Every process that was started by any `Children` of this process, and is thus nobody's orphan.
STARTED: dict[int, Child] = {}
STARTING = threading.Lock()


def status_of(process: subprocess.Popen[bytes]) -> Status | None:
    """How it ended, or None while it lives; where the system can, without reaping it yet."""
    if not hasattr(os, "waitid"):
        code = process.poll()
        return None if code is None else Status(code=code) if code >= 0 else Status(signal=-code)
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return Status()
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return Status(code=found.si_status)
    return Status(signal=found.si_status)
