"""A pool of worker processes that run one job at a time each. They can be killed, and are replaced.

All code here runs on the I/O thread, except `run`, `stop`, `read_output` and `close`, which are thread-safe.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from timewright.core.run.run import Failed, Outcome
from timewright.errors import NotAllowed
from timewright.ports.attempt_output import OutputExcerpt, WorkReport
from timewright.targets.call.messages import (
    FromWorker,
    JobReport,
    JobResult,
    JobStarted,
    StopJob,
    WorkerConnection,
    WorkerJob,
    WorkerSetup,
    encode_frame,
)
from timewright.targets.context import RunInfo
from timewright.targets.io_thread import Timer
from timewright.targets.outcomes import (
    MAX_ERROR_CHARS,
    FirstResult,
    cancelled,
    failed,
    lost,
    released_on_close,
    stop_reason,
    timed_out,
    to_storable_text,
    with_output,
)
from timewright.targets.processes.child import ChildProcess, ExitStatus, ProcessSpec, function_environment
from timewright.targets.processes.children import ChildProcesses
from timewright.targets.processes.termination import KILL_TIMEOUT_S
from timewright.targets.reports import HeadTailBuffer

# Time for a worker to start and import the function; the time limit of the run starts after that.
START_TIMEOUT_S = 60.0
# If a worker dies before the function was called, one other worker gets the job.
MAX_STARTS = 2
# Time between SIGTERM and SIGKILL for a worker without a job.
TERM_GRACE_S = 1.0
# After a disconnect, wait this long for the exit status, which usually explains it.
EXIT_STATUS_WAIT_S = 0.25
_ROOT = str(Path(__file__).resolve().parents[3])


class WorkerTask:
    """A job: queued, at a worker, or finished."""

    def __init__(self, workers: WorkerPool, job: WorkerJob, *, grace: float, result: FirstResult) -> None:
        self._workers = workers
        self.number = job.number
        self.frame = encode_frame(job)
        self.grace = grace
        self.result = result
        limit = job.info.time_limit
        self.limit = limit.total_seconds() if limit is not None else None
        self.worker: _WorkerHandle | None = None
        self.timer: Timer | None = None
        self.starts = 0
        self.was_called = False
        self.stop_outcome: Outcome | None = None
        self.outcome: Outcome | None = None
        self.report: WorkReport | None = None

    def stop(self, reason: str) -> None:
        """Stop the job: SIGTERM, then SIGKILL after its grace. The outcome is `cancelled`."""
        self._workers.stop(self, cancelled(reason))

    def read_output(self) -> OutputExcerpt | None:
        """The output of the function so far. Thread-safe."""
        worker = self.worker
        if worker is None or not self.was_called or not worker.child.output.size:
            return None
        return worker.child.output.snapshot()

    def read_report(self) -> WorkReport | None:
        """What the function reported last. Thread-safe."""
        return self.report

    def set_timer(self, timer: Timer | None) -> None:
        """Replace the timer of this job."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class _WorkerHandle:
    """One worker process, its connection, and its current job."""

    child: ChildProcess
    connection: WorkerConnection

    def __init__(self) -> None:
        self.task: WorkerTask | None = None
        self.idle: Timer | None = None
        self.retired = False


class WorkerPool:
    """A pool of at most `limit` worker processes. Idle ones are kept for a time."""

    def __init__(
        self,
        children: ChildProcesses,
        *,
        limit: int = 8,
        idle_seconds: float = 300.0,
        preload: Sequence[str] = (),
        environment: Callable[[], Mapping[str, str]] = function_environment,
        python: str = sys.executable,
        artifacts: str = "",
    ) -> None:
        self._artifacts = artifacts
        self._children = children
        self._io_thread = children.io_thread
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._preload = tuple(preload)
        self._environment = environment
        self._python = python
        self._numbers = itertools.count()
        self._queue: deque[WorkerTask] = deque()
        self._workers: set[_WorkerHandle] = set()
        self._idle: list[_WorkerHandle] = []
        self._closed = False
        self._empty = threading.Event()

    def run(
        self,
        name: str,
        reference: str,
        *,
        args: dict[str, Any],
        info: RunInfo,
        grace: float,
        done: Callable[[Outcome], object],
    ) -> WorkerTask:
        """Call a function in a worker process. `done` gets the outcome once, on the I/O thread."""
        job = WorkerJob(number=next(self._numbers), name=name, reference=reference, args=args, info=info)
        task = WorkerTask(self, job, grace=grace, result=FirstResult(done))
        self._io_thread.call_soon(lambda: self._enqueue(task))
        return task

    def warm_up(self) -> None:
        """Start idle workers up to the limit, so that the first calls do not wait for processes to start."""
        self._io_thread.call_soon(self._start_idle)

    def stop(self, task: WorkerTask, outcome: Outcome) -> None:
        """End a task with this outcome, unless it has finished. Thread-safe."""
        try:
            self._io_thread.call_soon(lambda: self._stop(task, outcome))
        except NotAllowed:  # the I/O thread is closed, so no worker is left
            task.result(outcome)

    def close(self, *, grace: float) -> None:
        """Release running tasks, end all workers, and wait until they are gone."""
        if not self._workers and not self._queue:
            self._closed = True
            return
        self._io_thread.call_soon(lambda: self._close(grace))
        self._empty.wait(grace + KILL_TIMEOUT_S + 1.0)

    @property
    def count(self) -> int:
        """The number of worker processes."""
        return len(self._workers)

    def _enqueue(self, task: WorkerTask) -> None:
        if self._closed:
            task.result(released_on_close())
        else:
            self._queue.append(task)
            self._assign_tasks()

    def _assign_tasks(self) -> None:
        """Assign queued tasks to idle workers, and start new workers up to the limit."""
        while self._queue and (self._idle or len(self._workers) < self._limit):
            try:
                worker = self._idle.pop() if self._idle else self._start_worker()
            except OSError as error:  # no process, descriptor or memory available
                if self._workers:
                    return  # a busy worker takes the task later
                self._queue.popleft().result(failed(f"cannot start a worker: {error}"))
            else:
                self._assign(worker, self._queue.popleft())

    def _start_idle(self) -> None:
        with suppress(OSError):  # no process, descriptor or memory available: a call will report it
            while not self._closed and len(self._workers) < self._limit:
                self._set_idle(self._start_worker())

    def _start_worker(self) -> _WorkerHandle:
        ours, theirs = socket.socketpair()
        worker = _WorkerHandle()
        outside = os.environ.get("PYTHONPATH")
        python_path = os.pathsep.join(filter(None, (_ROOT, outside)))
        spec = ProcessSpec(
            argv=(self._python, "-P", "-m", "timewright.targets.call.worker", str(theirs.fileno())),
            env={**self._environment(), "PYTHONPATH": python_path},
            keep_fd=theirs.fileno(),
        )
        try:
            worker.child = self._children.start(spec, on_end=lambda _: self._on_worker_end(worker))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._workers.add(worker)
        worker.connection = WorkerConnection(
            self._io_thread,
            ours,
            on_message=lambda message: self._on_message(worker, message),
            on_invalid_frame=lambda what: self._fail_worker(
                worker, f"the worker sent an invalid message: {what}"
            ),
            on_disconnect=lambda: self._on_disconnect(worker),
        )
        setup = WorkerSetup(tuple(sys.path), self._preload, outside, self._artifacts)
        worker.connection.send(encode_frame(setup))
        return worker

    def _assign(self, worker: _WorkerHandle, task: WorkerTask) -> None:
        if worker.idle is not None:
            worker.idle.cancel()
        # Output between two jobs belongs to neither of them.
        self._children.drain(worker.child)
        worker.child.output = HeadTailBuffer()
        worker.task, task.worker = task, worker
        task.starts += 1
        late = Failed(error=f"the worker did not start the function within {START_TIMEOUT_S:g} s")
        task.set_timer(self._io_thread.call_later(START_TIMEOUT_S, lambda: self._stop(task, late)))
        worker.connection.send(task.frame)

    def _on_disconnect(self, worker: _WorkerHandle) -> None:
        """The connection is closed: wait for the exit status, and end the worker if there is none."""

        def act() -> None:
            if worker.child.status is None:
                self._fail_worker(worker, "the worker closed its connection")

        self._io_thread.call_later(EXIT_STATUS_WAIT_S, act)

    def _fail_worker(self, worker: _WorkerHandle, why: str) -> None:
        if worker.task is not None:
            self._stop(worker.task, failed(why, unknown=worker.task.was_called))
        self._retire(worker, grace=TERM_GRACE_S)

    def _on_message(self, worker: _WorkerHandle, message: FromWorker) -> None:
        task = worker.task
        if task is None or message.number != task.number:
            return
        if isinstance(message, JobStarted):
            task.was_called = True
            if task.stop_outcome is None:
                task.set_timer(self._limit_timer(task, task.limit) if task.limit is not None else None)
        elif isinstance(message, JobReport):
            task.report = message.report
        elif task.stop_outcome is None:
            self._answer(worker, task, message)

    def _limit_timer(self, task: WorkerTask, seconds: float) -> Timer:
        return self._io_thread.call_later(seconds, lambda: self._stop(task, timed_out(seconds)))

    def _answer(self, worker: _WorkerHandle, task: WorkerTask, message: JobResult) -> None:
        task.set_timer(None)
        self._children.drain(worker.child)
        task.outcome = with_output(message.outcome, worker.child.output.text())
        if message.is_clean and not worker.retired and worker.child.status is None:
            worker.task = None
            self._set_idle(worker)
            task.result(task.outcome)
            self._assign_tasks()
        else:
            # The job left something behind; the outcome is reported when the worker's process tree is gone.
            self._retire(worker, grace=min(task.grace, TERM_GRACE_S))

    def _set_idle(self, worker: _WorkerHandle) -> None:
        self._idle.append(worker)
        worker.idle = self._io_thread.call_later(
            self._idle_seconds, lambda: self._retire(worker, grace=TERM_GRACE_S)
        )

    def _retire(self, worker: _WorkerHandle, *, grace: float) -> None:
        worker.retired = True
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.idle is not None:
            worker.idle.cancel()
        self._children.terminate(worker.child, grace=grace)

    def _stop(self, task: WorkerTask, outcome: Outcome) -> None:
        if task.stop_outcome is not None or task.outcome is not None or task.result.is_set:
            return
        task.set_timer(None)
        if task.worker is None:
            with suppress(ValueError):
                self._queue.remove(task)
            task.result(outcome)
            return
        task.stop_outcome = outcome
        why = to_storable_text(stop_reason(outcome), limit=MAX_ERROR_CHARS)
        task.worker.connection.send(encode_frame(StopJob(task.number, why)))
        self._retire(task.worker, grace=task.grace)

    def _on_worker_end(self, worker: _WorkerHandle) -> None:
        """A worker has ended: finish or requeue its task, then assign queued tasks."""
        worker.connection.close()
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.idle is not None:
            worker.idle.cancel()
        if worker.task is not None:
            self._finish_task(worker.task, worker.child)
        self._assign_tasks()
        if self._closed and not self._workers:
            self._empty.set()

    def _finish_task(self, task: WorkerTask, child: ChildProcess) -> None:
        task.set_timer(None)
        task.worker = None
        if task.outcome is not None:
            task.result(task.outcome)
        elif task.stop_outcome is not None:
            task.result(with_output(task.stop_outcome, child.output.text()))
        elif not task.was_called and task.starts < MAX_STARTS and not self._closed:
            self._queue.appendleft(task)
        else:
            task.result(
                with_output(_death_outcome(child.status, was_called=task.was_called), child.output.text())
            )

    def _close(self, grace: float) -> None:
        self._closed = True
        for task in list(self._queue):
            self._stop(task, released_on_close())
        for worker in list(self._workers):
            if worker.task is not None:
                worker.task.grace = min(worker.task.grace, grace)
                self._stop(worker.task, released_on_close())
            self._retire(worker, grace=min(grace, TERM_GRACE_S) if worker.task is None else grace)
        if not self._workers:
            self._empty.set()


def _death_outcome(status: ExitStatus | None, *, was_called: bool) -> Outcome:
    if status is None:
        return failed("the worker could not be killed", unknown=was_called)
    if status.signal == 9:
        how = "worker was killed by SIGKILL, but not by Timewright: perhaps out of memory"
    elif status.signal is not None:
        how = f"worker was {status.describe()}"
    elif status.code is None:
        how = f"worker {status.describe()}"
    else:
        how = f"worker exited with code {status.code}"
    how = how if was_called else f"{how}, before it called the function"
    return lost(how) if status.is_killed else failed(how, unknown=was_called)
