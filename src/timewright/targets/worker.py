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
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import FrameType

from timewright.core.run import Failed, Outcome
from timewright.targets.answers import LONGEST_ERROR, failure, perform, plain_text
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
from timewright.targets.process import adopt_orphans
from timewright.targets.registry import Registered, Registry, attribute, load_app
from timewright.targets.workplace import Workplace

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
        self._cancelled = Cancellation()
        self._number = job.number
        self._busy = True
        found = self._imported(job)
        before = Workplace()  # what a module sets up while it is imported is meant to stay
        outcome = found if isinstance(found, Failed) else self._call(found, job)
        self._busy = False
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked and both came back; only the first of them answers
        self._send(Answer(job.number, outcome, before.is_restored()))

    def _imported(self, job: Job) -> Registered | Failed:
        try:
            return self._find(job)
        except BaseException as error:  # importing a user's module may raise anything, an exit too
            if self._leaving:
                raise
            told = f"cannot import {job.reference}: {failure(error).error}"
            return Failed(error=plain_text(told, limit=LONGEST_ERROR), unresolved=True)

    def _call(self, registered: Registered, job: Job) -> Outcome:
        os.environ.update(run_environment(job.facts))
        self._send(Started(job.number))
        return perform(registered, Context.begin(job.facts, cancelled=self._cancelled), job.args)

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
        with suppress(BaseException):  # said again, and heard, by the first job that needs it
            import_module(module.partition(":")[0])


def main() -> None:
    """Serve the owner at the other end of the socket."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    adopt_orphans(True)  # what a function leaves behind comes to us, and is seen when it has returned
    Worker(link).serve()


if __name__ == "__main__":
    main()
