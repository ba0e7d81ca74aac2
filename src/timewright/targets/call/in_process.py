"""Function calls in this process, on a thread or on the loop. They can be asked to stop, but not killed.

So a call reports its outcome when its function has returned, however long that takes. Only when its target
closes, which is when the process ends, a call is abandoned.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from timewright.core.run.run import Outcome
from timewright.errors import NotAllowed
from timewright.ports.attempt_output import OutputExcerpt, WorkReport
from timewright.targets.artifacts.store import ArtifactStore, AttemptArtifacts
from timewright.targets.call.registry import RegisteredFunction
from timewright.targets.call.threads import CALLS_BY_RUN, CallThreadPool, ForkCounter, WorkItem
from timewright.targets.context import Cancellation, Context
from timewright.targets.io_thread import IoThread, Timer
from timewright.targets.loop_thread import LoopTask, LoopThread, closed_error
from timewright.targets.outcomes import (
    FirstResult,
    call_async_function,
    call_function,
    cancelled,
    failed,
    failure_from_exception,
    released_on_close,
    stop_reason,
    thread_timed_out,
    timed_out,
    with_reports,
)
from timewright.targets.reports import CURRENT_LOG, HeadTailBuffer, install_log_capture
from timewright.targets.secret_references import RunTokens

_CANCELLED_ITSELF = "the function cancelled its own task; it may cancel only tasks that it created"

if TYPE_CHECKING:
    from asyncio import Task

    from timewright.ports import Launch


class InProcessCalls:
    """The running in-process calls of a target, with their threads and their loop."""

    def __init__(
        self,
        *,
        io_thread: IoThread,
        threads: CallThreadPool,
        loop: LoopThread | None,
        run_tokens: RunTokens | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self.run_tokens = run_tokens
        self.artifacts = artifacts
        self.io_thread = io_thread
        self.threads = threads
        self.loop = loop or LoopThread("timewright-calls")
        self._owns_loop = loop is None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: set[InProcessCall] = set()
        self._closed = False
        install_log_capture()

    @property
    def is_closing(self) -> bool:
        """Whether calls may be cancelled because this target or its loop closes."""
        return self._closed or self.loop.may_cancel_tasks

    def add(self, run: InProcessCall) -> None:
        """Register a call that starts. Raises NotAllowed after `close`.

        Adds the call before it checks `_closed`, so that a concurrent `close` cannot miss it.
        """
        self._running.add(run)
        if self._closed:
            self.remove(run)
            raise closed_error("target")

    def remove(self, run: InProcessCall) -> None:
        """Remove a call that finished or was abandoned."""
        self._running.discard(run)
        if self._closed:
            with self._changed:
                self._changed.notify_all()

    def close(self, *, grace: float) -> None:
        """Ask all calls to stop, abandon those that still run after `grace`, and free our own resources."""
        with self._changed:
            self._closed = True
            runs = list(self._running)
        for run in runs:
            run.stop_with(released_on_close())
            run.abandon_after(grace)
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=grace + 1.0)
        self.threads.close(grace=1.0)
        if self._owns_loop:
            self.loop.close()


class InProcessCall:
    """A running call. It has a time limit and can be asked to stop; it reports when it has returned."""

    must_return = True
    """Its run stays leased until it has returned, because it cannot be killed."""
    _stop_outcome: Outcome | None = None
    _call_context: Context | None = None
    _timers: tuple[Timer, ...] = ()
    _output: HeadTailBuffer | None = None

    def __init__(
        self,
        calls: InProcessCalls,
        registered: RegisteredFunction,
        *,
        launch: Launch,
        args: dict[str, Any],
        grace: float,
        result: FirstResult,
    ) -> None:
        self._calls = calls
        self._registered = registered
        self._launch = launch
        self._args = args
        self._grace = grace
        self._result = result
        limit = launch.time_limit
        self._limit = limit.total_seconds() if limit is not None else None
        self._artifacts = AttemptArtifacts(calls.artifacts, launch) if calls.artifacts is not None else None
        self._forks = ForkCounter.count
        self.run_id = launch.run_id

    def begin(self) -> Self:
        """Start the call, or let it wait for an earlier call of its run."""
        self._calls.add(self)
        if CALLS_BY_RUN.enter(self):
            try:
                self._submit()
            except BaseException:
                self._cleanup()
                raise
        return self

    def start(self) -> None:
        """Start a call that waited."""
        try:
            self._submit()
        except BaseException as error:  # noqa: BLE001 - boundary: the thread that ended the earlier call
            self._report(failure_from_exception(error))

    def read_output(self) -> OutputExcerpt | None:
        """The log lines so far. Thread-safe."""
        return self._output.snapshot() if self._output is not None else None

    def read_report(self) -> WorkReport | None:
        """What the function reported last. Thread-safe."""
        return self._call_context.report if self._call_context is not None else None

    def stop(self, reason: str) -> None:
        """Ask the function to stop; its run ends when it has returned."""
        self.stop_with(cancelled(reason))

    def stop_with(self, outcome: Outcome, *, detach_after: float | None = None) -> None:
        """Report this outcome when the function has returned. After its grace it frees its place."""
        if self._stop_outcome is not None or self._result.is_set:
            return
        self._stop_outcome = outcome
        if self._call_context is not None:
            self._call_context.cancelled.set(stop_reason(outcome))
        if CALLS_BY_RUN.withdraw(self):
            self._report(outcome)
        else:
            self._interrupt(detach_after=self._grace if detach_after is None else detach_after)

    def abandon_after(self, grace: float) -> None:
        """Report the outcome of the stop after `grace` seconds, if the function has not returned."""
        if not self._result.is_set:
            self._call_later(grace, self._abandon)

    def on_time_limit(self) -> None:
        """Stop the call: its time limit is reached."""
        raise NotImplementedError

    def _submit(self) -> None:
        """Give the call to its thread or loop."""
        raise NotImplementedError

    def _start_time_limit(self) -> None:
        if self._limit is not None:
            self._timers += (self._calls.io_thread.call_later(self._limit, self.on_time_limit),)

    def _call_later(self, seconds: float, action: Callable[[], None]) -> None:
        try:
            self._timers += (self._calls.io_thread.call_later(seconds, action),)
        except NotAllowed:  # the I/O thread is closed, so no timer can run
            action()

    def _capture_line(self, line: str) -> None:
        if self._output is None:
            self._output = HeadTailBuffer()
        self._output.feed(line.encode(errors="replace"))

    def _context(self) -> Context | None:
        """The context, if the function takes one."""
        if not self._registered.signature.takes_context:
            return None
        tokens = self._calls.run_tokens
        self._call_context = context = Context(
            self._launch, cancelled=Cancellation(), run_tokens=tokens, artifacts=self._artifacts
        )
        if self._stop_outcome is not None:
            # `stop_with` may have run before the context existed.
            context.cancelled.set(stop_reason(self._stop_outcome))
        return context

    def _interrupt(self, *, detach_after: float) -> None:
        """Try to end the call. If it still runs after some seconds, it frees its place."""
        raise NotImplementedError

    def _detach(self) -> None:
        """Free the place of a call that hangs: only a thread has one."""

    def _abandon(self) -> None:
        if self._stop_outcome is not None and self._result(
            with_reports(self._stop_outcome, self._call_context, self._artifacts)
        ):
            self._detach()
            self._cleanup(has_returned=False)

    def _report(self, outcome: Outcome) -> None:
        if self._stop_outcome is not None:
            outcome = with_reports(self._stop_outcome, self._call_context, self._artifacts)
        self._result(outcome)
        self._cleanup()

    def _cleanup(self, *, has_returned: bool = True) -> None:
        for timer in self._timers:
            timer.cancel()
        self._calls.remove(self)
        if has_returned:
            CALLS_BY_RUN.leave(self)

    def _exit_if_forked(self) -> None:
        # The function forked and both processes returned: only the original one reports.
        if ForkCounter.count != self._forks:
            os._exit(0)


class ThreadCall(InProcessCall, WorkItem):
    """A call on a thread. At its time limit it is asked to stop, because a thread cannot be killed."""

    def _submit(self) -> None:
        self._calls.threads.submit(self)

    def run(self) -> None:
        """Call the function on this thread."""
        if self._stop_outcome is not None:
            self._report(self._stop_outcome)
            return
        try:
            self._start_time_limit()
        except Exception as error:  # noqa: BLE001 - without its time limit the call must not start
            self._report(failure_from_exception(error))
            return
        CURRENT_LOG.set(self._capture_line)
        outcome = call_function(self._registered, self._context(), self._args, artifacts=self._artifacts)
        CURRENT_LOG.set(None)
        self._exit_if_forked()
        self._report(outcome)

    def on_time_limit(self) -> None:
        """Ask the function to stop, and replace its thread in the pool."""
        assert self._limit is not None
        self.stop_with(thread_timed_out(self._limit), detach_after=0.0)

    def _interrupt(self, *, detach_after: float) -> None:
        if not self._calls.threads.cancel_queued(self):
            self._call_later(detach_after, self._detach)
        elif self._stop_outcome is not None:
            self._report(self._stop_outcome)

    def _detach(self) -> None:
        if self.thread is not None:
            self._calls.threads.abandon(self)


class LoopCall(InProcessCall):
    """A call on the loop. It is cancelled, and may ignore that."""

    _task: LoopTask[Outcome] | None = None

    def _submit(self) -> None:
        self._start_time_limit()
        self._task = self._calls.loop.submit(self._run(), self._on_finished)
        if self._stop_outcome is not None:
            self._task.cancel()

    async def _run(self) -> Outcome:
        CURRENT_LOG.set(self._capture_line)
        outcome = await call_async_function(
            self._registered, self._context(), self._args, artifacts=self._artifacts
        )
        self._exit_if_forked()
        return outcome

    def _on_finished(self, task: Task[Outcome]) -> None:
        if task.cancelled():
            self._report(released_on_close() if self._calls.is_closing else failed(_CANCELLED_ITSELF))
        elif (error := task.exception()) is not None:
            self._report(failure_from_exception(error))
        else:
            self._report(task.result())

    def on_time_limit(self) -> None:
        """Cancel the task."""
        assert self._limit is not None
        self.stop_with(timed_out(self._limit))

    def _interrupt(self, *, detach_after: float) -> None:
        if self._task is not None:
            self._task.cancel()
