"""A child process: what to start, its output, and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping

from msgspec import Struct

from timewright.targets.head_tail_buffer import HeadTailBuffer
from timewright.targets.io_thread import Timer

MIN_CHECK_INTERVAL_S = 0.01
KILL_SIGNALS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """What to start: arguments and the complete environment. Stdin is empty; the session is new."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    output_bytes: int = 64 * 1024
    keep_fd: int | None = None


class ExitStatus(Struct, frozen=True):
    """How a process ended: an exit code, a signal, or unknown (both None)."""

    code: int | None = None
    signal: int | None = None

    @property
    def is_killed(self) -> bool:
        """Whether another process ended it, or the system did; a crash has other signals."""
        return self.signal in KILL_SIGNALS

    def describe(self) -> str:
        """Describe it for messages: `exit 3`, `killed by SIGSEGV`."""
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        if self.code is None:
            return "ended, but its exit code is unknown: other code in this program reaped it"
        return f"exit {self.code}"


def signal_name(number: int) -> str:
    """`SIGTERM` for 15; a number without a name as `signal 63`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ChildProcess:
    """A started process and the state of ending its tree."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        mark: str,
        output: HeadTailBuffer,
        on_end: Callable[[ChildProcess], None],
    ) -> None:
        self.pid = process.pid
        self.output = output
        self.status: ExitStatus | None = None
        self.survivors = 0
        self.process = process
        self.mark = mark
        self.started = 0
        self.on_end = on_end
        self.pidfd: int | None = None
        self.kill_at: float | None = None
        self.uncertain_since: float | None = None
        self.last_seen_at = 0.0
        self.check_interval_s = MIN_CHECK_INTERVAL_S
        self.signalled_pids: set[int] = set()
        self.check_timer: Timer | None = None
        self.is_finished = False

    @property
    def is_output_closed(self) -> bool:
        """Whether no process holds the output pipe open any more."""
        return self.process.stdout is None or self.process.stdout.closed

    @property
    def is_reaped(self) -> bool:
        """Whether the pid may belong to another process by now."""
        return self.process.returncode is not None or self.status == ExitStatus()


# Every process started by any `ChildProcesses` here; it must not be taken for an orphan.
LIVE_CHILDREN: dict[int, ChildProcess] = {}
START_LOCK = threading.Lock()


def read_exit_status(process: subprocess.Popen[bytes]) -> ExitStatus | None:
    """The exit status, or None while it runs. Does not reap the process where `waitid` exists."""
    if not hasattr(os, "waitid"):
        code = process.poll()
        return None if code is None else ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code)
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ExitStatus()
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return ExitStatus(code=found.si_status)
    return ExitStatus(signal=found.si_status)
