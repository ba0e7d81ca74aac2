"""Inside a worker subprocess: one job at a time, and away with its owner.

Started as `python -m timewright.targets.worker FD`, where FD is its end of a socket pair.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import FrameType

from timewright.core.run import Failed, Outcome
from timewright.targets.answers import LONGEST_ERROR, perform, plain_text
from timewright.targets.context import Cancellation, Context
from timewright.targets.environment import run_environment
from timewright.targets.messages import (
    Answer,
    Frames,
    FromWorker,
    Job,
    Start,
    Started,
    Stop,
    ToWorker,
    frame,
    to_worker,
)
from timewright.targets.overheard import show_run_log
from timewright.targets.registry import Registered, Registry, attribute, load_app

TERMINATED = 128 + signal.SIGTERM


class Worker:
    """Takes jobs from its owner, calls the functions on the main thread, and answers."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._pid = os.getpid()
        self._line: queue.SimpleQueue[Start | Job] = queue.SimpleQueue()
        self._cancelled = Cancellation()
        self._number = -1
        self._busy = False
        self._leaving = False
        self._known: dict[tuple[str, str], Registered] = {}

    def serve(self) -> None:
        """Do one job after the other until told to end."""
        faulthandler.enable()
        for stream in (sys.stdout, sys.stderr):
            # What a killed function printed last is worth most, and printing must never raise.
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        show_run_log()
        threading.Thread(target=self._listen, name="timewright-listen", daemon=True).start()
        signal.signal(signal.SIGTERM, self._terminate)
        while not self._leaving:
            message = self._line.get()
            if isinstance(message, Job):
                self._do(message)
            else:
                _prepare(message)

    def _listen(self) -> None:
        frames = Frames()
        while piece := self._receive():
            for body in frames.feed(piece):
                self._hear(to_worker(body))
        # Our owner is gone: nobody waits for an answer, and a new owner may already try again.
        if os.getpgrp() == self._pid:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    def _receive(self) -> bytes:
        try:
            return self._link.recv(256 * 1024)
        except OSError:
            return b""

    def _hear(self, message: ToWorker) -> None:
        if not isinstance(message, Stop):
            self._line.put(message)
        elif message.number == self._number:
            self._cancelled.set(message.reason)

    def _terminate(self, _signum: int, _frame: FrameType | None) -> None:
        """Leave as a program does when asked: `finally` is done, and then it is over."""
        self._leaving = True
        if self._busy:
            self._cancelled.set("asked to end")
        raise SystemExit(TERMINATED)

    def _do(self, job: Job) -> None:
        before = _Before()
        self._cancelled = Cancellation()
        self._number = job.number
        os.environ.update(run_environment(job.facts))
        outcome = self._call(job)
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked and both came back; only the first of them answers
        self._send(Answer(job.number, outcome, before.is_restored()))

    def _call(self, job: Job) -> Outcome:
        try:
            self._busy = True
            try:
                registered = self._find(job)
            except Exception as error:  # noqa: BLE001 - importing a user's module may raise anything
                told = f"cannot import {job.reference}: {type(error).__name__}: {error}"
                return Failed(error=plain_text(told, limit=LONGEST_ERROR), unresolved=True)
            self._send(Started(job.number))
            context = Context.begin(job.facts, cancelled=self._cancelled)
            return perform(registered, context, job.args)
        except SystemExit as leaving:
            return Failed(error=f"SystemExit: {leaving.code}")
        finally:
            self._busy = False

    def _find(self, job: Job) -> Registered:
        known = self._known.get((job.reference, job.name))
        if known is not None:
            return known
        module, _, path = job.reference.partition(":")
        found = attribute(import_module(module), path) if path else None
        if callable(found) and not isinstance(getattr(found, "registry", None), Registry):
            registered = Registry().add(found, name=job.name)
        else:
            registered = load_app(job.reference).resolve(job.name)
        self._known[job.reference, job.name] = registered
        return registered

    def _send(self, message: FromWorker) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a function may have closed it, or put anything in its place
                stream.flush()
        with suppress(OSError):
            self._link.sendall(frame(message))


def _prepare(start: Start) -> None:
    """Find modules where the owner finds them, and import early what most jobs will need."""
    sys.path[:] = start.path
    os.environ.pop("PYTHONPATH", None)
    if start.python_path is not None:
        os.environ["PYTHONPATH"] = start.python_path
    for module in start.preload:
        with suppress(Exception):  # said again, and heard, by the first job that needs it
            import_module(module.partition(":")[0])


class _Before:
    """How the process was before a job, to see whether it still is, and to put back what can be."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._environment: Mapping[str, str] = dict(os.environ)
        self._cwd = _cwd()
        self._terminate = signal.getsignal(signal.SIGTERM)
        self._streams = (sys.stdout, sys.stderr)
        self._outputs = _outputs()

    def is_restored(self) -> bool:
        """Whether nothing is left of the job: no thread, no process, and the output where it was."""
        os.environ.clear()
        os.environ.update(self._environment)
        with suppress(OSError):
            os.chdir(self._cwd)
        signal.signal(signal.SIGTERM, self._terminate)
        sys.stdout, sys.stderr = self._streams
        return (
            set(threading.enumerate()) <= self._threads
            and not _has_children()
            and _outputs() == self._outputs
            and not any(stream.closed for stream in self._streams)
        )


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a folder that was deleted raises here as well
    except OSError:
        return "/"


def _outputs() -> tuple[object, ...]:
    """Which files the two outputs are; None for one that was closed."""
    found: list[object] = []
    for fd in (1, 2):
        try:
            found.append(os.fstat(fd)[:3])
        except OSError:
            found.append(None)
    return tuple(found)


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def main() -> None:
    """Serve the owner at the other end of the socket."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    Worker(link).serve()


if __name__ == "__main__":
    main()
