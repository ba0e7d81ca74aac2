"""Worker subprocesses, from outside: one job at a time each; they can be killed, and the dead are replaced.

Everything here happens on the watch's thread; only `run`, `stop`, `said` and `close` come from elsewhere.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from timewright.core.run import Failed, Outcome
from timewright.errors import NotAllowed
from timewright.ports.said import Spoken
from timewright.targets.answers import (
    LONGEST_ERROR,
    cancelled,
    closing,
    failed,
    plain_text,
    reason_of,
    timed_out,
    with_output,
)
from timewright.targets.child import Child, Spawn, Status
from timewright.targets.children import Children
from timewright.targets.context import Facts
from timewright.targets.ending import GIVE_UP
from timewright.targets.environment import clean_environment
from timewright.targets.excerpt import Excerpt
from timewright.targets.link import Link
from timewright.targets.messages import Answer, FromWorker, Job, Start, Started, Stop, frame
from timewright.targets.once import Once
from timewright.targets.watch import Timer

# What a worker may take to come up and import the function, before the time limit begins to count.
START_LIMIT = 60.0
# A worker that dies before the function was called did no harm: the job may be given to one other.
MOST_STARTS = 2
# What a worker that nobody waits for gets between TERM and KILL.
LAST_WORD = 1.0
# How long after the line broke we wait for the exit code that mostly explains it.
EXPLAINS = 0.25
OUTPUT_BYTES = 64 * 1024
_ROOT = str(Path(__file__).resolve().parents[2])


class Task:
    """A job on its way: waiting in line, with a worker, or answered."""

    def __init__(self, workers: Workers, job: Job, *, grace: float, once: Once) -> None:
        self._workers = workers
        self.number = job.number
        self.frame = frame(job)
        self.grace = grace
        self.once = once
        self.limit = job.facts.time_limit.total_seconds()
        self.worker: _Worker | None = None
        self.timer: Timer | None = None
        self.starts = 0
        self.was_called = False
        self.verdict: Outcome | None = None
        self.answer: Outcome | None = None

    def stop(self, reason: str) -> None:
        """Ask it to end: TERM, then KILL after its grace; the answer is the reason."""
        self._workers.stop(self, cancelled(reason))

    def said(self) -> Spoken | None:
        """What the function has printed so far; from any thread."""
        worker = self.worker
        if worker is None or not self.was_called or not worker.child.output.size:
            return None
        return worker.child.output.spoken()

    def clock(self, timer: Timer | None) -> None:
        """Count another time from now on, or none."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class _Worker:
    """One subprocess, the line to it, and the task it has."""

    child: Child
    link: Link

    def __init__(self) -> None:
        self.task: Task | None = None
        self.idle: Timer | None = None
        self.retired = False


class Workers:
    """A pool of at most `limit` subprocesses; idle ones are kept for a while, dead ones are replaced."""

    def __init__(
        self,
        children: Children,
        *,
        limit: int = 8,
        idle_seconds: float = 300.0,
        preload: Sequence[str] = (),
        passed: Sequence[str] = (),
        python: str = sys.executable,
    ) -> None:
        self._children = children
        self._watch = children.watch
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._preload = tuple(preload)
        self._passed = tuple(passed)
        self._python = python
        self._numbers = itertools.count()
        self._line: deque[Task] = deque()
        self._workers: set[_Worker] = set()
        self._resting: list[_Worker] = []
        self._closed = False
        self._empty = threading.Event()

    def run(
        self,
        name: str,
        reference: str,
        *,
        args: dict[str, Any],
        facts: Facts,
        grace: float,
        done: Callable[[Outcome], object],
    ) -> Task:
        """Call a function in a worker; `done` is told how it ended, once, from the watch's thread."""
        job = Job(number=next(self._numbers), name=name, reference=reference, args=args, facts=facts)
        task = Task(self, job, grace=grace, once=Once(done))
        self._watch.call(lambda: self._queue(task))
        return task

    def stop(self, task: Task, verdict: Outcome) -> None:
        """End a task with this outcome, unless it has answered; from any thread."""
        try:
            self._watch.call(lambda: self._stop(task, verdict))
        except NotAllowed:  # the watch is closed, and no worker is left
            task.once(verdict)

    def close(self, *, grace: float) -> None:
        """Give back what is under way, end every worker, and wait until they are gone."""
        if not self._workers and not self._line:
            self._closed = True
            return
        self._watch.call(lambda: self._close(grace))
        self._empty.wait(grace + GIVE_UP + 1.0)

    @property
    def count(self) -> int:
        """How many subprocesses there are."""
        return len(self._workers)

    def _queue(self, task: Task) -> None:
        if self._closed:
            task.once(closing())
        else:
            self._line.append(task)
            self._hand_out()

    def _hand_out(self) -> None:
        """Give waiting tasks to resting workers, and to new ones while there may be more."""
        while self._line and (self._resting or len(self._workers) < self._limit):
            try:
                worker = self._resting.pop() if self._resting else self._hire()
            except OSError as error:  # no process, no descriptor, no memory
                if self._workers:
                    return  # one that is busy now will do it
                self._line.popleft().once(failed(f"cannot start a worker: {error}"))
            else:
                self._assign(worker, self._line.popleft())

    def _hire(self) -> _Worker:
        ours, theirs = socket.socketpair()
        worker = _Worker()
        outside = os.environ.get("PYTHONPATH")
        python_path = os.pathsep.join(filter(None, (_ROOT, outside)))
        spawn = Spawn(
            argv=(self._python, "-P", "-m", "timewright.targets.worker", str(theirs.fileno())),
            env={**clean_environment(self._passed), "PYTHONPATH": python_path},
            keep_fd=theirs.fileno(),
            output_bytes=OUTPUT_BYTES,
        )
        try:
            worker.child = self._children.start(spawn, on_end=lambda _: self._bury(worker))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._workers.add(worker)
        worker.link = Link(
            self._watch,
            ours,
            on_message=lambda message: self._hear(worker, message),
            on_nonsense=lambda what: self._break_off(worker, f"the worker sent what is no message: {what}"),
            on_hang_up=lambda: self._ask_why(worker),
        )
        worker.link.send(frame(Start(tuple(sys.path), self._preload, outside)))
        return worker

    def _assign(self, worker: _Worker, task: Task) -> None:
        if worker.idle is not None:
            worker.idle.cancel()
        # What came between two jobs belongs to neither.
        self._children.drain(worker.child)
        worker.child.output = Excerpt(OUTPUT_BYTES)
        worker.task, task.worker = task, worker
        task.starts += 1
        late = Failed(error=f"the worker did not begin within {START_LIMIT:g} s")
        task.clock(self._watch.later(START_LIMIT, lambda: self._stop(task, late)))
        worker.link.send(task.frame)

    def _ask_why(self, worker: _Worker) -> None:
        """The line is dead: the exit code will say why, and if there is none the worker is ended."""

        def act() -> None:
            if worker.child.status is None:
                self._break_off(worker, "the worker hung up")

        self._watch.later(EXPLAINS, act)

    def _break_off(self, worker: _Worker, why: str) -> None:
        if worker.task is not None:
            self._stop(worker.task, failed(why))
        self._retire(worker, grace=LAST_WORD)

    def _hear(self, worker: _Worker, message: FromWorker) -> None:
        task = worker.task
        if task is None or message.number != task.number:
            return
        if isinstance(message, Started):
            task.was_called = True
            if task.verdict is None:
                overdue = timed_out(task.limit)
                task.clock(self._watch.later(task.limit, lambda: self._stop(task, overdue)))
        elif task.verdict is None:
            self._answer(worker, task, message)

    def _answer(self, worker: _Worker, task: Task, message: Answer) -> None:
        task.clock(None)
        self._children.drain(worker.child)
        task.answer = with_output(message.outcome, worker.child.output.text())
        if message.is_clean and not worker.retired and worker.child.status is None:
            worker.task = None
            self._rest(worker)
            task.once(task.answer)
            self._hand_out()
        else:
            # Something of the job is still there; the answer is given when it is gone.
            self._retire(worker, grace=min(task.grace, LAST_WORD))

    def _rest(self, worker: _Worker) -> None:
        self._resting.append(worker)
        worker.idle = self._watch.later(self._idle_seconds, lambda: self._retire(worker, grace=LAST_WORD))

    def _retire(self, worker: _Worker, *, grace: float) -> None:
        worker.retired = True
        if worker in self._resting:
            self._resting.remove(worker)
        if worker.idle is not None:
            worker.idle.cancel()
        self._children.end(worker.child, grace=grace)

    def _stop(self, task: Task, verdict: Outcome) -> None:
        if task.verdict is not None or task.answer is not None or task.once.spoken:
            return
        task.clock(None)
        if task.worker is None:
            with suppress(ValueError):
                self._line.remove(task)
            task.once(verdict)
            return
        task.verdict = verdict
        why = plain_text(reason_of(verdict), limit=LONGEST_ERROR)
        task.worker.link.send(frame(Stop(task.number, why)))
        self._retire(task.worker, grace=task.grace)

    def _bury(self, worker: _Worker) -> None:
        """A worker is gone: its task gets what it had said, or why it said nothing; the line moves on."""
        worker.link.close()
        self._workers.discard(worker)
        if worker in self._resting:
            self._resting.remove(worker)
        if worker.idle is not None:
            worker.idle.cancel()
        if worker.task is not None:
            self._conclude(worker.task, worker.child)
        self._hand_out()
        if self._closed and not self._workers:
            self._empty.set()

    def _conclude(self, task: Task, child: Child) -> None:
        task.clock(None)
        task.worker = None
        if task.answer is not None:
            task.once(task.answer)
        elif task.verdict is not None:
            task.once(with_output(task.verdict, child.output.text()))
        elif not task.was_called and task.starts < MOST_STARTS and not self._closed:
            self._line.appendleft(task)
        else:
            task.once(with_output(_death(child.status, was_called=task.was_called), child.output.text()))

    def _close(self, grace: float) -> None:
        self._closed = True
        for task in list(self._line):
            self._stop(task, closing())
        for worker in list(self._workers):
            if worker.task is not None:
                worker.task.grace = min(worker.task.grace, grace)
                self._stop(worker.task, closing())
            self._retire(worker, grace=min(grace, LAST_WORD) if worker.task is None else grace)
        if not self._workers:
            self._empty.set()


def _death(status: Status | None, *, was_called: bool) -> Failed:
    if status is None:
        return failed("the worker could not be ended")
    if status.signal == 9:
        how = "worker was killed by SIGKILL, and not by us: out of memory, perhaps"
    elif status.signal is not None:
        how = f"worker was {status.describe()}"
    elif status.code is None:
        how = f"worker {status.describe()}"
    else:
        how = f"worker exited with code {status.code}"
    return failed(how if was_called else f"{how}, before it could begin")
