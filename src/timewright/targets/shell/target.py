"""The shell target: runs commands without a shell, with limits on time, output and resources."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from timewright.core.input.input_errors import show_value
from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.core.target import RUN_TOKEN, Shell, secret_destination
from timewright.errors import NotAllowed, NotFound, TimewrightError
from timewright.ports import Launch, RunHandle
from timewright.ports.attempt_output import OutputExcerpt
from timewright.settings import CommandRules
from timewright.targets.context import RunInfo
from timewright.targets.io_thread import Timer
from timewright.targets.outcomes import (
    FINISHED_WORK,
    FirstResult,
    cancelled,
    failed,
    failure_from_exception,
    lost,
    released_on_close,
    timed_out,
    with_result,
)
from timewright.targets.processes.child import (
    ChildProcess,
    ProcessSpec,
    clean_environment,
    run_environment,
    signal_name,
)
from timewright.targets.processes.children import ChildProcesses
from timewright.targets.processes.termination import KILL_TIMEOUT_S
from timewright.targets.secret_references import (
    RevealedSecrets,
    RunTokens,
    SecretLookup,
    find_references,
    reveal_secrets,
    with_run_token,
)
from timewright.targets.shell.validation import check_shell, describe_start_error, is_allowed, resolve_cwd

__all__ = ["ShellTarget", "check_shell"]

# A process with threads must not run Python between fork and exec, so a second program sets the limits and
# then executes the command. It runs with -I -S, so that it imports nothing from the command's folder.
_SOURCE = """
import json, os, resource, sys
options = json.loads(sys.argv[1])
if options["privileges"] or options["parent"]:
    import ctypes
    libc = ctypes.CDLL(None)
    if options["privileges"] and libc.prctl(38, 1, 0, 0, 0):
        sys.exit("cannot set no_new_privs")
    if options["parent"]:
        libc.prctl(1, 9, 0, 0, 0)
        if os.getppid() != options["parent"]:
            sys.exit("the scheduler process has ended")
for name, amount in options["limits"].items():
    soft, hard = resource.getrlimit(getattr(resource, name))
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(getattr(resource, name), (amount, amount))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"cannot start {sys.argv[2]!r}: {error.strerror}", file=sys.stderr)
    sys.exit(127)
"""


class ShellTarget:
    """Starts commands, if the administrator allows them.

    `allowed` is False (the default), True, or a list of programs: names, full paths, or folders with a
    trailing slash.
    """

    def __init__(
        self,
        *,
        allowed: bool | Sequence[str] = False,
        rules: CommandRules = CommandRules(),  # noqa: B008 - frozen
        children: ChildProcesses | None = None,
        own_process: bool = False,
        secrets: SecretLookup | None = None,
        run_tokens: RunTokens | None = None,
    ) -> None:
        self._run_tokens = run_tokens
        self._allowed = allowed if isinstance(allowed, bool) else tuple(allowed)
        self.rules = rules
        self.root = rules.folder or None
        self._secrets = secrets
        self._owns_children = children is None
        self._children = children or ChildProcesses(own_process=own_process)
        self._commands: set[_Command] = set()
        self._empty = threading.Event()
        self._closed = False

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start the command on the I/O thread and return immediately."""
        result = FirstResult(done)
        try:
            refusal = self._refusal(launch.target)
            if refusal is None:
                command = _Command(self, launch, result, self._reveal(launch))
                self._children.io_thread.call_soon(command.start)
                return command
            result(refusal)
        except NotAllowed:
            result(released_on_close())
        except NotFound as error:
            result(Failed(error=error.message))
        except TimewrightError as error:
            result(Failed(error=f"{error.message}; {error.fix}", final=True))
        except Exception as error:  # noqa: BLE001 - boundary: a launch reports a failure, it never raises
            result(failure_from_exception(error))
        return FINISHED_WORK

    def close(self, *, grace: timedelta) -> None:
        """End all running commands with their process trees, and free our own resources."""
        seconds = grace.total_seconds()
        self._closed = True
        if self._commands:
            self._children.io_thread.call_soon(lambda: self._end_all(seconds))
            self._empty.wait(seconds + KILL_TIMEOUT_S + 1.0)
        if self._owns_children:
            self._children.close(grace=seconds)

    def build_spec(self, launch: Launch, target: Shell, revealed: RevealedSecrets) -> ProcessSpec:
        """Build the process of a launch. Raises OSError if its folder does not exist."""
        folder, why = resolve_cwd(target.cwd, root=self.root)
        if why:
            raise OSError(why)
        facts = run_environment(RunInfo.from_launch(launch, token=revealed.values.get(RUN_TOKEN, "")))
        return ProcessSpec(
            argv=_with_limits(target.command, self.rules),
            env={**clean_environment(self.rules.environment), **revealed.fill_data(target.env), **facts},
            cwd=folder,
            output_bytes=target.output_kb * 1024,
        )

    @property
    def children(self) -> ChildProcesses:
        """Starts and ends the processes."""
        return self._children

    def add_command(self, command: _Command) -> bool:
        """Register a command that starts; returns False if the target is closed."""
        if not self._closed:
            self._commands.add(command)
        return not self._closed

    def remove_command(self, command: _Command) -> None:
        """Forget a command that has finished."""
        self._commands.discard(command)
        if self._closed and not self._commands:
            self._empty.set()

    def _reveal(self, launch: Launch) -> RevealedSecrets:
        """Look up the secrets that the environment of a command refers to, for this launch only."""
        target = launch.target
        if not isinstance(target, Shell):
            return RevealedSecrets()
        own = {RUN_TOKEN} if self._run_tokens is not None and launch.schedule_id else set()
        return reveal_secrets(
            find_references(target.env) | own,
            namespace=launch.namespace,
            lookup=with_run_token(self._secrets, self._run_tokens, launch),
            destination=secret_destination(target),
            multiline=True,
        )

    def _refusal(self, target: object) -> Failed | None:
        if not isinstance(target, Shell):
            return Failed(error=f"a {type(target).__name__} is not a shell command", final=True)
        if self._allowed is False or self._allowed == ():
            return Failed(
                error="shell targets are disabled; enable them with the setting `shell`", final=True
            )
        check_shell(target)
        if not is_allowed(target.command, self._allowed):
            return Failed(
                error=f"{target.command[0]!r} is not an allowed program; see the setting `commands.programs`",
                final=True,
            )
        return None

    def _end_all(self, grace: float) -> None:
        for command in list(self._commands):
            command.end(released_on_close(), grace=min(grace, command.grace))
        if not self._commands:
            self._empty.set()


class _Command:
    """A running command. All methods but `stop` and `read_output` run on the I/O thread."""

    def __init__(
        self, shell: ShellTarget, launch: Launch, result: FirstResult, revealed: RevealedSecrets
    ) -> None:
        self._shell = shell
        self._children = shell.children
        self._launch = launch
        self._result = result
        self._revealed = revealed
        self.grace = launch.grace.total_seconds()
        self._child: ChildProcess | None = None
        self._timer: Timer | None = None
        self._stop_outcome: Outcome | None = None
        self._is_stopped = False

    def stop(self, reason: str) -> None:
        """Send SIGTERM to the tree and SIGKILL after the grace. The outcome is `cancelled`."""
        self._is_stopped = True
        try:
            self._children.io_thread.call_soon(lambda: self.end(cancelled(reason), grace=self.grace))
        except NotAllowed:  # the I/O thread is closed, so no process is left
            self._result(cancelled(reason))

    def read_output(self) -> OutputExcerpt | None:
        """The output so far, without secrets. Thread-safe."""
        child = self._child
        if child is None or not child.output.size:
            return None
        return child.output.snapshot(self._revealed)

    def start(self) -> None:
        """Start the process, unless `stop` was called before; then the queued stop reports the outcome."""
        if self._is_stopped:
            return
        if not self._shell.add_command(self):
            self._result(released_on_close())
            return
        target = self._launch.target
        assert isinstance(target, Shell)
        try:
            spec = self._shell.build_spec(self._launch, target, self._revealed)
            self._child = self._children.start(spec, on_end=self._on_end)
        except (OSError, ValueError) as error:
            why = describe_start_error(target.command[0], error, folder=target.cwd or self._shell.root)
            self._report(failed(f"cannot start {show_value(target.command[0])}: {why}"))
            return
        if self._launch.time_limit is not None:
            limit = self._launch.time_limit.total_seconds()
            self._timer = self._children.io_thread.call_later(
                limit, lambda: self.end(timed_out(limit), grace=self.grace)
            )

    def end(self, outcome: Outcome, *, grace: float) -> None:
        """End the process with this outcome. If it has already exited, only end its descendants sooner."""
        if self._result.is_set or self._stop_outcome is not None:
            return
        if self._child is None:
            self._stop_outcome = outcome
            self._report(outcome)
            return
        if self._child.status is None:
            self._stop_outcome = outcome
        self._children.terminate(self._child, grace=grace)

    def _on_end(self, child: ChildProcess) -> None:
        outcome = self._stop_outcome or _exit_outcome(child, self._shell.rules)
        self._report(with_result(outcome, _build_result(child, self._revealed)))

    def _report(self, outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._result(outcome)
        self._shell.remove_command(self)


def _exit_outcome(child: ChildProcess, rules: CommandRules) -> Outcome:
    if child.status is None:
        return failed("the command could not be ended", unknown=True)
    if child.status.signal == signal.SIGKILL and rules.cpu_seconds is not None:
        how = "killed by SIGKILL, but not by Timewright: perhaps out of memory or over cpu_seconds"
        return failed(how, unknown=True)
    if child.status.is_killed:
        hint = ": perhaps out of memory" if child.status.signal == signal.SIGKILL else ""
        return lost(f"{child.status.describe()}, but not by Timewright{hint}")
    if child.status.code == 0:
        return Succeeded()
    return failed(child.status.describe(), unknown=child.status.code is None)


def _build_result(child: ChildProcess, revealed: RevealedSecrets) -> dict[str, Any]:
    """The result of a command: exit code or signal, and the head and tail of its output."""
    result: dict[str, Any] = {
        "exit": child.status.code if child.status is not None else None,
        "output": child.output.text(revealed),
        "output_bytes": child.output.size,
    }
    if child.status is not None and child.status.signal is not None:
        result["signal"] = signal_name(child.status.signal)
    if child.output.omitted_bytes:
        result["truncated"] = True
    if child.survivors:
        result["survivors"] = child.survivors
    return result


def _with_limits(argv: tuple[str, ...], rules: CommandRules) -> tuple[str, ...]:
    """Prefix the command with the program that sets the limits; unchanged if there are none."""
    megabyte = 1024 * 1024
    limits = {
        "RLIMIT_NPROC": rules.processes,
        "RLIMIT_AS": rules.memory_mb and rules.memory_mb * megabyte,
        "RLIMIT_NOFILE": rules.open_files,
        "RLIMIT_CPU": rules.cpu_seconds,
        "RLIMIT_FSIZE": rules.file_mb and rules.file_mb * megabyte,
    }
    options = {
        "limits": {name: amount for name, amount in limits.items() if amount is not None},
        "privileges": not rules.new_privileges,
        "parent": 0 if rules.outlives_parent else os.getpid(),
    }
    if not any(options.values()):
        return argv
    return (sys.executable, "-I", "-S", "-c", _SOURCE, msgspec.json.encode(options).decode(), *argv)
