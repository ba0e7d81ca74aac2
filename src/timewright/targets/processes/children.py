"""Starts child processes, reads their output, and ends whole process trees."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from timewright.targets.io_thread import IoThread, Timer
from timewright.targets.processes.child import (
    LIVE_CHILDREN,
    MIN_CHECK_INTERVAL_S,
    START_LOCK,
    ChildProcess,
    ProcessSpec,
    read_exit_status,
)
from timewright.targets.processes.table import (
    CHILD_MARK_VARIABLE,
    own_mark_prefix,
    prefer_for_oom_kill,
    read_process,
    read_table,
    set_subreaper,
)
from timewright.targets.processes.termination import KILL_TIMEOUT_S, TreeTerminator
from timewright.targets.reports import HeadTailBuffer

# How long to read output after the first process ended, while a descendant holds the pipe open.
OUTPUT_LINGER_S = 1.0
POLL_INTERVAL_S = 0.05
REAP_INTERVAL_S = 30.0
_READ_BYTES = 256 * 1024

# One entry per open `ChildProcesses` with own_process: whether this process was a subreaper before it.
_SUBREAPER_BEFORE: list[bool] = []


class ChildProcesses:
    """Starts processes and ends whole process trees. All methods but `close` run on the I/O thread.

    With `own_process` this process becomes a subreaper: it adopts orphans, so even a daemon that left its
    session and cleared its environment is found. An embedding program must not adopt orphans it does not
    know; there a tree is recognised by parent, session, group and the mark in its environment.
    """

    def __init__(self, *, own_process: bool = False, proc: Path = Path("/proc")) -> None:
        self.io_thread = IoThread()
        self._own_process = own_process
        self._proc = proc
        self._children: set[ChildProcess] = set()
        self._terminator = TreeTerminator(
            self.io_thread, own_process=own_process, proc=proc, drain=self.drain, finish=self._finish
        )
        self._reap_timer: Timer | None = None
        if own_process:
            with START_LOCK:
                _SUBREAPER_BEFORE.append(set_subreaper(True))

    def start(self, spec: ProcessSpec, *, on_end: Callable[[ChildProcess], None]) -> ChildProcess:
        """Start a process. `on_end` is called once, when the process and all its descendants are gone."""
        mark = own_mark_prefix(self._proc) + os.urandom(8).hex()
        with START_LOCK:
            process = subprocess.Popen(
                spec.argv,
                env={**spec.env, CHILD_MARK_VARIABLE: mark},
                cwd=spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                pass_fds=() if spec.keep_fd is None else (spec.keep_fd,),
            )
            child = ChildProcess(process, mark=mark, output=HeadTailBuffer(spec.output_bytes), on_end=on_end)
            LIVE_CHILDREN[process.pid] = child
        self._children.add(child)
        try:
            self._watch_child(child)
        except BaseException:
            self._abort(child)
            raise
        return child

    def terminate(self, child: ChildProcess, *, grace: float) -> None:
        """Send SIGTERM to the tree, and SIGKILL after `grace`. A second call can only shorten the grace."""
        self._terminator.terminate(child, grace=grace)

    def drain(self, child: ChildProcess) -> None:
        """Read buffered output. At most 4 reads, because the process may keep writing."""
        for _ in range(4):
            if not self._read_output(child):
                return

    def close(self, *, grace: float) -> None:
        """End all children, wait until they are gone, and close the I/O thread."""
        ended = threading.Event()

        def finish() -> None:
            for child in self._children:
                self.terminate(child, grace=grace)
            self._when_empty(ended.set)

        if self._children:
            self.io_thread.call_soon(finish)
            ended.wait(grace + KILL_TIMEOUT_S + 2 * OUTPUT_LINGER_S)
        if self._reap_timer is not None:
            self._reap_timer.cancel()
        if self._own_process:
            self._own_process = False
            with START_LOCK:
                before = _SUBREAPER_BEFORE.pop(0)
                if _SUBREAPER_BEFORE:
                    _SUBREAPER_BEFORE[0] = before  # the last one to close restores the original state
                else:
                    set_subreaper(before)
        self.io_thread.close()

    def _when_empty(self, action: Callable[[], None]) -> None:
        if self._children:
            self.io_thread.call_later(MIN_CHECK_INTERVAL_S, lambda: self._when_empty(action))
        else:
            action()

    def _watch_child(self, child: ChildProcess) -> None:
        prefer_for_oom_kill(child.pid, proc=self._proc)
        info = read_process(child.pid, proc=self._proc)
        child.started = info.started if info is not None else 0
        assert child.process.stdout is not None
        pipe = child.process.stdout.fileno()
        os.set_blocking(pipe, False)
        enlarge_pipe(pipe)
        self.io_thread.watch_readable(pipe, lambda: self._read_output(child))
        try:
            child.pidfd = os.pidfd_open(child.pid)
        except (OSError, AttributeError):
            self._poll(child)  # no pidfd here, or no descriptor left: poll instead
        else:
            self.io_thread.watch_readable(child.pidfd, lambda: self._check_exit(child))
        if self._own_process and self._reap_timer is None:
            self._reap_timer = self.io_thread.call_later(REAP_INTERVAL_S, self._reap_orphans)

    def _abort(self, child: ChildProcess) -> None:
        """Kill a process whose start could not be completed, and forget it."""
        child.is_finished = True
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.process.stdout is not None:
            self.io_thread.unwatch(child.process.stdout.fileno())
            child.process.stdout.close()
        self._reap(child)

    def _read_output(self, child: ChildProcess) -> bool:
        """Read once; returns whether more may be available."""
        pipe = child.process.stdout
        if pipe is None or pipe.closed:
            return False
        try:
            data = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            child.output.feed(data)
            return True
        self.io_thread.unwatch(pipe.fileno())
        pipe.close()
        if child.status is not None:
            self._terminator.check_tree_soon(child)
        return False

    def _poll(self, child: ChildProcess) -> None:
        self._check_exit(child)
        if child.status is None:
            self.io_thread.call_later(POLL_INTERVAL_S, lambda: self._poll(child))

    def _check_exit(self, child: ChildProcess) -> None:
        """Handle the exit of the main process; processes it started may still run or hold its output open.

        If its output is still open, wait OUTPUT_LINGER_S for it to close; then end what is left of the tree.
        """
        child.status = read_exit_status(child.process)
        if child.status is None:
            return
        if child.pidfd is not None:
            self.io_thread.unwatch(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = None
        if child.is_finished:  # its end was reported before: only the process table entry is left
            self._reap(child)
            return
        self.drain(child)
        if child.kill_at is not None or child.is_output_closed:
            self._terminator.check_tree_soon(child)
        else:
            child.check_timer = self.io_thread.call_later(
                OUTPUT_LINGER_S, lambda: self._terminator.check_tree_soon(child)
            )

    def _finish(self, child: ChildProcess, survivors: int) -> None:
        child.is_finished = True
        child.survivors = survivors
        if child.check_timer is not None:
            child.check_timer.cancel()
        if not self._proc.is_dir():
            # Without /proc we cannot see what is left of the group, so kill all of it.
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
        self.drain(child)
        pipe = child.process.stdout
        if pipe is not None and not pipe.closed:
            self.io_thread.unwatch(pipe.fileno())
            pipe.close()
        if child.status is not None:
            self._reap(child)
        child.on_end(child)

    def _reap(self, child: ChildProcess) -> None:
        """Reap the main process, which `read_exit_status` left unreaped so that its pid stays its own."""
        child.process.wait()
        self._children.discard(child)
        with START_LOCK:
            LIVE_CHILDREN.pop(child.pid, None)

    def _reap_orphans(self) -> None:
        self._reap_timer = None
        if self._children:
            self._reap_timer = self.io_thread.call_later(REAP_INTERVAL_S, self._reap_orphans)
            with suppress(OSError):
                self._terminator.reap_adopted(read_table(self._proc))


def enlarge_pipe(pipe: int) -> None:
    """Enlarge the pipe buffer where the system allows it, to need fewer reads for a large output."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _READ_BYTES)
