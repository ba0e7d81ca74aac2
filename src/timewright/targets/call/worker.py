"""The main program of a worker process: runs one job at a time, and exits with the scheduler process.

Started as `python -m timewright.targets.call.worker FD`, where FD is its end of a socket pair.
"""

from __future__ import annotations

import errno
import faulthandler
import gc
import locale
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import FrameType, ModuleType

from timewright.core.run.run import Failed, Outcome
from timewright.ports.attempt_output import WorkReport
from timewright.targets.artifacts.store import ArtifactStore, AttemptArtifacts, open_artifact_store
from timewright.targets.call.messages import (
    FrameDecoder,
    FromWorker,
    JobReport,
    JobResult,
    JobStarted,
    StopJob,
    ToWorker,
    WorkerJob,
    WorkerSetup,
    decode_for_worker,
    encode_frame,
)
from timewright.targets.call.registry import (
    FunctionRegistry,
    RegisteredFunction,
    importing_for_worker,
    load_app,
    resolve_attribute,
)
from timewright.targets.context import Cancellation, Context
from timewright.targets.outcomes import (
    MAX_ERROR_CHARS,
    call_function,
    failure_from_exception,
    to_storable_text,
)
from timewright.targets.processes.child import OWN_PREFIX, run_environment
from timewright.targets.processes.table import set_subreaper
from timewright.targets.reports import print_run_log

TERMINATED_EXIT_CODE = 128 + signal.SIGTERM

_CATCHABLE = tuple(set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_RESOURCES = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


class JobRunner:
    """Receives jobs, calls the functions on the main thread, and sends the results."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._send_lock = threading.Lock()
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[WorkerSetup | WorkerJob] = queue.SimpleQueue()
        self._cancelled = Cancellation()
        self._number = -1
        self._is_busy = False
        self._is_exiting = False
        self._known: dict[tuple[str, str], RegisteredFunction] = {}
        self._artifacts: ArtifactStore | None = None

    def serve(self) -> None:
        """Run jobs one after another until asked to exit."""
        faulthandler.enable()
        for stream in (sys.stdout, sys.stderr):
            # Flush each line, because the last lines before a kill matter most; printing must never raise.
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        print_run_log()
        threading.Thread(target=self._receive_messages, name="timewright-listen", daemon=True).start()
        signal.signal(signal.SIGTERM, self._terminate)
        while not self._is_exiting:
            message = self._queue.get()
            if isinstance(message, WorkerJob):
                self._run_job(message)
            else:
                _prepare(message)
                self._artifacts = open_artifact_store(message.artifacts) if message.artifacts else None

    def _receive_messages(self) -> None:
        frames = FrameDecoder()
        while piece := self._receive():
            for body in frames.feed(piece):
                self._handle_message(decode_for_worker(body))
        # The scheduler process has ended, and another may already retry this run.
        if os.getpgrp() == self._pid:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(256 * 1024)
        except OSError as error:
            if error.errno in (errno.EBADF, errno.ENOTSOCK):
                # The function closed the socket. The scheduler is there, and ends the rest of the tree.
                os.write(2, b"the function closed the connection of its worker\n")
                os._exit(1)
            return b""

    def _handle_message(self, message: ToWorker) -> None:
        if not isinstance(message, StopJob):
            self._queue.put(message)
        elif message.number == self._number:
            self._cancelled.set(message.reason)

    def _terminate(self, _signum: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM: raise SystemExit, so that `finally` blocks run."""
        self._is_exiting = True
        if self._is_busy:
            self._cancelled.set("asked to stop")
        raise SystemExit(TERMINATED_EXIT_CODE)

    def _run_job(self, job: WorkerJob) -> None:
        self._cancelled = Cancellation()
        self._number = job.number
        self._is_busy = True
        found = self._imported(job)
        before = WorkerState()  # taken after the import, because changes made by importing a module are kept
        outcome = found if isinstance(found, Failed) else self._call(found, job)
        self._is_busy = False
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked and both processes returned; only the original reports
        self._send(JobResult(job.number, outcome, before.restore()))

    def _imported(self, job: WorkerJob) -> RegisteredFunction | Failed:
        try:
            return self._find(job)
        except BaseException as error:  # importing a user's module may raise anything, also SystemExit
            if self._is_exiting:
                raise
            error_text = f"cannot import {job.reference}: {failure_from_exception(error).error}"
            if isinstance(error, KeyError) and str(error).startswith(f"'{OWN_PREFIX}"):
                error_text += f"; functions get no {OWN_PREFIX} variables: give it a name of your own"
            return Failed(error=to_storable_text(error_text, limit=MAX_ERROR_CHARS), unresolved=True)

    def _call(self, registered: RegisteredFunction, job: WorkerJob) -> Outcome:
        os.environ.update(run_environment(job.info))
        self._send(JobStarted(job.number))

        def send_report(report: WorkReport) -> None:
            if os.getpid() == self._pid:  # a forked process must not write to this socket
                self._send_frame(JobReport(job.number, report))

        artifacts = AttemptArtifacts(self._artifacts, job.info)
        context = Context(job.info, cancelled=self._cancelled, on_report=send_report, artifacts=artifacts)
        return call_function(registered, context, job.args, artifacts=artifacts)

    def _find(self, job: WorkerJob) -> RegisteredFunction:
        known = self._known.get((job.reference, job.name))
        if known is not None:
            return known
        module, _, path = job.reference.partition(":")
        found = resolve_attribute(_import(module), path) if path else None
        if callable(found) and not isinstance(getattr(found, "registry", None), FunctionRegistry):
            registered = FunctionRegistry().add(found, name=job.name)
        else:
            registered = load_app(job.reference).resolve(job.name)
        self._known[job.reference, job.name] = registered
        return registered

    def _send(self, message: FromWorker) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a function may have closed or replaced the stream
                stream.flush()
        self._send_frame(message)

    def _send_frame(self, message: FromWorker) -> None:
        # A function may report from several threads.
        with self._send_lock, suppress(OSError):
            self._sock.sendall(encode_frame(message))


def _prepare(start: WorkerSetup) -> None:
    """Use the sys.path of the scheduler process, and import the preloaded modules."""
    sys.path[:] = start.path
    os.environ.pop("PYTHONPATH", None)
    if start.python_path is not None:
        os.environ["PYTHONPATH"] = start.python_path
    for module in start.preload:
        with suppress(BaseException):  # the first job that needs the module reports the error
            _import(module.partition(":")[0])


def _import(module: str) -> ModuleType:
    """Import a module of the user. If it is a script that starts a scheduler, that is refused meanwhile."""
    with importing_for_worker():
        return import_module(module)


def main() -> None:
    """Run jobs from the socket whose descriptor is the first argument."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    set_subreaper(True)  # adopt orphans of a function, so that we see them after it returned
    JobRunner(sock).serve()


class WorkerState:
    """The process state before a job. Restores what it can, and detects what it cannot restore."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._environment: Mapping[str, str] = dict(os.environ)
        self._cwd = _cwd()
        self._umask = _umask()
        self._signals = {number: signal.getsignal(number) for number in _CATCHABLE}
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._streams = (sys.stdout, sys.stderr)
        self._files = _standard_files()
        self._recursion_limit = sys.getrecursionlimit()
        self._switch_interval = sys.getswitchinterval()
        self._hooks = (sys.excepthook, sys.unraisablehook, threading.excepthook)
        self._default_timeout = socket.getdefaulttimeout()
        self._locale = locale.setlocale(locale.LC_ALL)
        self._limits = _limits()
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)

    def restore(self) -> bool:
        """Restore the state. Returns False if a thread, a process or another change remains."""
        self._restore_process()
        self._restore_interpreter()
        return (
            set(threading.enumerate()) <= self._threads
            and not _has_children()
            and _standard_files() == self._files
            and not any(stream.closed for stream in self._streams)
            and _limits() == self._limits
            and os.getpriority(os.PRIO_PROCESS, 0) == self._niceness
            and _has_free_descriptors()
        )

    def _restore_process(self) -> None:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, action in self._signals.items():
            if action is not None and signal.getsignal(number) is not action:
                signal.signal(number, action)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.umask(self._umask)
        self._restore_environment()
        with suppress(OSError):
            os.chdir(self._cwd)

    def _restore_environment(self) -> None:
        now = dict(os.environ)
        for name in now.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update({name: text for name, text in self._environment.items() if now.get(name) != text})

    def _restore_interpreter(self) -> None:
        sys.stdout, sys.stderr = self._streams
        sys.excepthook, sys.unraisablehook, threading.excepthook = self._hooks
        sys.setrecursionlimit(self._recursion_limit)
        sys.setswitchinterval(self._switch_interval)
        gc.enable()
        socket.setdefaulttimeout(self._default_timeout)
        locale.setlocale(locale.LC_ALL, self._locale)


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - raises if the folder was deleted
    except OSError:
        return "/"


def _umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _standard_files() -> tuple[object, ...]:
    """Identify the files behind stdin, stdout and stderr; None for a closed one."""
    found: list[object] = []
    for fd in (0, 1, 2):
        try:
            found.append(os.fstat(fd)[:3])
        except OSError:
            found.append(None)
    return tuple(found)


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, _RESOURCES))


def _has_free_descriptors() -> bool:
    """Whether earlier jobs have left at least half of the allowed descriptors free."""
    try:
        count = len(os.listdir("/dev/fd"))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return False
    return count <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main()
