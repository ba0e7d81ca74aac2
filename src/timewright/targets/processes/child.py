"""A child process: what to start, its environment, its output, and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from timewright.core.moments import format_instant
from timewright.settings import EnvironmentRules
from timewright.targets.context import RunInfo
from timewright.targets.reports import OUTPUT_BYTES, HeadTailBuffer

if TYPE_CHECKING:
    from timewright.targets.io_thread import Timer

MIN_CHECK_INTERVAL_S = 0.01
KILL_SIGNALS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

# Paths, user, locale and time zone. Commands get no other variable of this process.
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
)
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN_PREFIX = "TIMEWRIGHT_"  # keys, and the address of the store with its password
RUN_VARIABLE_PREFIX = "TIMEWRIGHT_RUN_"
MAX_PAYLOAD_BYTES = 100_000


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """What to start: arguments and the complete environment. Stdin is empty; the session is new."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    output_bytes: int = OUTPUT_BYTES
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
        # Whether `on_end` was called: the tree is gone, or its end was given up.
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


def clean_environment(
    passed: Iterable[str] = (), *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a command: harmless variables, and those an administrator allows by name."""
    variables = os.environ if source is None else source
    kept = {name: variables[name] for name in (*INHERITED_VARIABLES, *passed) if name in variables}
    return {"PATH": DEFAULT_PATH, **kept}


def function_environment(
    rules: EnvironmentRules = EnvironmentRules(),  # noqa: B008 - frozen
    *,
    always: Collection[str] = (),
    withheld: Collection[str] = (),
    source: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a worker process: that of this process, within the rules and without our secrets.

    `withheld` are our secrets without our prefix; `pass` with their full name passes them.
    """
    variables = os.environ if source is None else source

    def is_passed(name: str) -> bool:
        if name.startswith(OWN_PREFIX) or _matches(name, rules.deny):
            return name in always
        if name in withheld:
            return name in rules.passed
        return name in INHERITED_VARIABLES or _matches(name, rules.passed)

    return {"PATH": DEFAULT_PATH, **{name: text for name, text in variables.items() if is_passed(name)}}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def run_environment(info: RunInfo) -> dict[str, str]:
    """The facts of a run as `TIMEWRIGHT_RUN_…` variables, without empty ones."""
    values: dict[str, Any] = {
        "ID": info.run_id,
        "NAMESPACE": info.namespace,
        "SCHEDULE": info.schedule_name,
        "SCHEDULE_ID": info.schedule_id,
        "KEY": info.key,
        "FENCE": info.fence,
        "ATTEMPT": info.attempt,
        "PLANNED_AT": format_instant(info.planned_at),
        "FIRE_AT": format_instant(info.fire_at),
        "PREVIOUS_AT": format_instant(info.previous_at) if info.previous_at else None,
        "NEXT_AT": format_instant(info.next_at) if info.next_at else None,
        "ZONE": info.zone,
        "MISSED": info.missed,
        "FIRED_BY": ",".join(map(str, info.fired_by)),
        "SOURCE": info.source,
        "TIME_LIMIT": f"{info.time_limit.total_seconds():g}" if info.time_limit is not None else None,
        "PAYLOAD": _payload(info.payload),
        "TOKEN": info.token,
    }
    named = {
        RUN_VARIABLE_PREFIX + name: _plain(value) for name, value in values.items() if value not in (None, "")
    }
    # Tracing libraries read this name.
    return {**named, "TRACEPARENT": info.traceparent} if info.traceparent else named


def _payload(payload: Any) -> str | None:
    """The payload as JSON, or None if it is too long for an environment."""
    if payload is None:
        return None
    encoded = msgspec.json.encode(payload)
    return encoded.decode() if len(encoded) <= MAX_PAYLOAD_BYTES else None


def _plain(value: object) -> str:
    # An environment cannot hold zero bytes or lone surrogates.
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()
