"""The main program of a worker process: runs one job at a time, and exits with the scheduler process.

Started as `python -m timewright.targets.call.worker FD`, where FD is its end of a socket pair.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import FrameType, ModuleType

from timewright.core.run.run import Failed, Outcome
from timewright.targets.call.messages import (
    FrameDecoder,
    FromWorker,
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
from timewright.targets.call.worker_state import WorkerState
from timewright.targets.context import Cancellation, Context
from timewright.targets.log_capture import print_run_log
from timewright.targets.outcomes import (
    MAX_ERROR_CHARS,
    call_function,
    failure_from_exception,
    to_storable_text,
)
from timewright.targets.processes.environment import run_environment
from timewright.targets.processes.table import set_subreaper

TERMINATED_EXIT_CODE = 128 + signal.SIGTERM


class JobRunner:
    """Receives jobs, calls the functions on the main thread, and sends the results."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[WorkerSetup | WorkerJob] = queue.SimpleQueue()
        self._cancelled = Cancellation()
        self._number = -1
        self._is_busy = False
        self._is_exiting = False
        self._known: dict[tuple[str, str], RegisteredFunction] = {}

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
        except OSError:
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
            return Failed(error=to_storable_text(error_text, limit=MAX_ERROR_CHARS), unresolved=True)

    def _call(self, registered: RegisteredFunction, job: WorkerJob) -> Outcome:
        os.environ.update(run_environment(job.info))
        self._send(JobStarted(job.number))
        return call_function(registered, Context.begin(job.info, cancelled=self._cancelled), job.args)

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
        with suppress(OSError):
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


if __name__ == "__main__":
    main()
