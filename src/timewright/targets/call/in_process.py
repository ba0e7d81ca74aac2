"""Function calls in this process, on a thread or on the loop. They can be asked to stop, but not killed."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from timewright.core.run.run import Outcome
from timewright.errors import NotAllowed
from timewright.ports.attempt_output import OutputExcerpt
from timewright.targets.call.deadlines import Deadlines
from timewright.targets.call.registry import RegisteredFunction
from timewright.targets.call.threads import CallThreadPool, WorkItem
from timewright.targets.context import Cancellation, Context
from timewright.targets.first_result import FirstResult
from timewright.targets.head_tail_buffer import HeadTailBuffer
from timewright.targets.io_thread import IoThread, Timer
from timewright.targets.log_capture import CURRENT_LOG, install_log_capture
from timewright.targets.outcomes import (
    call_async_function,
    call_function,
    cancelled,
    failed,
    failure_from_exception,
    released_on_close,
    stop_reason,
    timed_out,
    with_cost,
)

OUTPUT_BYTES = 64 * 1024
_CANCELLED_ITSELF = "the function cancelled its own task; it may cancel only tasks that it created"

if TYPE_CHECKING:
    from asyncio import Task

    from timewright.ports import Launch
    from timewright.targets.loop_thread import LoopTask, LoopThread


class InProcessCalls:
    """The running in-process calls of a target, with their threads and their loop."""

    def __init__(self, *, io_thread: IoThread, threads: CallThreadPool, loop: LoopThread | None) -> None:
        self.io_thread = io_thread
        self.deadlines = Deadlines(io_thread)
        self.threads = threads
        self._loop = loop
        self._owns_loop = loop is None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: set[InProcessCall] = set()
        self._stuck = 0
        self._closed = False
        install_log_capture()

    @property
    def leaked(self) -> int:
        """How many abandoned calls still run."""
        return self.threads.leaked + self._stuck

    @property
    def is_closing(self) -> bool:
        """Whether calls may be cancelled because this target or its loop closes."""
        return self._closed or (self._loop is not None and self._loop.may_cancel_tasks)

    @property
    def loop(self) -> LoopThread:
        """The loop, started for the first async function."""
        with self._changed:
            if self._loop is None:
                from timewright.targets.loop_thread import LoopThread

                self._loop = LoopThread("timewright-calls")
            return self._loop

    def add(self, run: InProcessCall) -> None:
        """Register a call that starts. Raises NotAllowed after `close`.

        Adds the call before it checks `_closed`, so that a concurrent `close` cannot miss it.
        """
        self._running.add(run)
        if self._closed:
            self.remove(run)
            raise NotAllowed(
                "the target is closed",
                field="target",
                rule="a closed target accepts no work",
                fix="start a new scheduler",
            )

    def remove(self, run: InProcessCall) -> None:
        """Remove a call that finished or was abandoned."""
        self._running.discard(run)
        if self._closed:
            with self._changed:
                self._changed.notify_all()

    def change_stuck_count(self, change: int) -> None:
        """Count a loop task that was abandoned (+1) or returned after all (-1)."""
        with self._changed:
            self._stuck += change

    def close(self, *, grace: float) -> None:
        """Ask all calls to stop, abandon those that still run after `grace`, and free our own resources."""
        with self._changed:
            self._closed = True
            runs = list(self._running)
        for run in runs:
            run.stop_with(released_on_close(), grace=grace)
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=grace + 1.0)
        self.threads.close(grace=1.0)
        if self._owns_loop and self._loop is not None:
            self._loop.close(grace=timedelta(0))


class ForkCounter:
    """How many forks separate this process from the one that imported this module."""

    count = 0

    @classmethod
    def count_fork(cls) -> None:
        """Runs in the child after a fork."""
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ForkCounter.count_fork)


class InProcessCall:
    """A running call. It has a time limit, can be asked to stop, and is abandoned if it does not."""

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
        self._limit = launch.time_limit.total_seconds()
        self._forks = ForkCounter.count

    def read_output(self) -> OutputExcerpt | None:
        """The log lines so far. Thread-safe."""
        return self._output.snapshot() if self._output is not None else None

    def stop(self, reason: str) -> None:
        """Ask the function to stop; abandon it after its grace."""
        self.stop_with(cancelled(reason), grace=self._grace)

    def stop_with(self, outcome: Outcome, *, grace: float) -> None:
        """Report this outcome when the function stops, at the latest after `grace` seconds."""
        if self._stop_outcome is not None or self._result.is_set:
            return
        self._stop_outcome = outcome
        if self._call_context is not None:
            self._call_context.cancelled.set(stop_reason(outcome))
        if self._interrupt():
            return
        try:
            self._timers += (self._calls.io_thread.call_later(grace, self._abandon_now),)
        except NotAllowed:  # the I/O thread is closed, so no timer can run
            self._abandon_now()

    @property
    def is_finished(self) -> bool:
        """Whether it has reported its outcome."""
        return self._result.is_set

    def on_time_limit(self) -> None:
        """Stop the call: its time limit is reached."""
        raise NotImplementedError

    def _capture_line(self, line: str) -> None:
        if self._output is None:
            self._output = HeadTailBuffer(OUTPUT_BYTES)
        self._output.feed(line.encode(errors="replace"))

    def _context(self) -> Context | None:
        """The context, if the function takes one."""
        if not self._registered.signature.takes_context:
            return None
        self._call_context = context = Context.begin(self._launch, cancelled=Cancellation())
        if self._stop_outcome is not None:
            # `stop_with` may have run before the context existed.
            context.cancelled.set(stop_reason(self._stop_outcome))
        return context

    def _interrupt(self) -> bool:
        """Try to end the call; returns True if it had not started and now never will."""
        raise NotImplementedError

    def _abandon(self) -> None:
        """Count the call as abandoned."""
        raise NotImplementedError

    def _abandon_now(self) -> None:
        if self._stop_outcome is not None and self._result(with_cost(self._stop_outcome, self._call_context)):
            self._abandon()
            self._cleanup()

    def _report(self, outcome: Outcome) -> None:
        self._result(
            outcome if self._stop_outcome is None else with_cost(self._stop_outcome, self._call_context)
        )
        self._cleanup()

    def _cleanup(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._calls.remove(self)

    def _exit_if_forked(self) -> None:
        # The function forked and both processes returned: only the original one reports.
        if ForkCounter.count != self._forks:
            os._exit(0)


class ThreadCall(InProcessCall, WorkItem):
    """A call on a thread. It is abandoned at its time limit, because a thread cannot be killed."""

    def begin(self) -> ThreadCall:
        """Queue the call for a thread."""
        self._calls.add(self)
        try:
            self._calls.threads.submit(self)
        except BaseException:
            self._cleanup()
            raise
        return self

    def run(self) -> None:
        """Call the function on this thread."""
        if self._stop_outcome is not None:
            self._report(self._stop_outcome)
            return
        try:
            self._calls.deadlines.add(self, self._limit)
        except Exception as error:  # noqa: BLE001 - without a time limit the call must not start
            self._report(failure_from_exception(error))
            return
        CURRENT_LOG.set(self._capture_line)
        outcome = call_function(self._registered, self._context(), self._args)
        CURRENT_LOG.set(None)
        self._exit_if_forked()
        self._report(outcome)

    def on_time_limit(self) -> None:
        """Abandon the thread, because it cannot be killed."""
        self.stop_with(timed_out(self._limit), grace=0.0)

    def _interrupt(self) -> bool:
        withdrawn = self._calls.threads.cancel_queued(self)
        if withdrawn and self._stop_outcome is not None:
            self._report(self._stop_outcome)
        return withdrawn

    def _abandon(self) -> None:
        self._calls.threads.abandon(self)


class LoopCall(InProcessCall):
    """A call on the loop. It is cancelled, and abandoned if it ignores that."""

    _task: LoopTask[Outcome] | None = None
    _is_stuck = False

    def begin(self) -> LoopCall:
        """Submit the call to the loop."""
        self._calls.add(self)
        try:
            self._calls.deadlines.add(self, self._limit)
            self._task = self._calls.loop.submit(self._run(), self._on_finished)
        except BaseException:
            self._cleanup()
            raise
        if self._stop_outcome is not None:
            self._task.cancel()
        return self

    async def _run(self) -> Outcome:
        CURRENT_LOG.set(self._capture_line)
        outcome = await call_async_function(self._registered, self._context(), self._args)
        self._exit_if_forked()
        return outcome

    def _on_finished(self, task: Task[Outcome]) -> None:
        if self._is_stuck:
            self._calls.change_stuck_count(-1)
        if task.cancelled():
            self._report(released_on_close() if self._calls.is_closing else failed(_CANCELLED_ITSELF))
        elif (error := task.exception()) is not None:
            self._report(failure_from_exception(error))
        else:
            self._report(task.result())

    def on_time_limit(self) -> None:
        """Cancel the task, and abandon it after its grace."""
        self.stop_with(timed_out(self._limit), grace=self._grace)

    def _interrupt(self) -> bool:
        if self._task is not None:
            self._task.cancel()
        return False

    def _abandon(self) -> None:
        self._is_stuck = True
        self._calls.change_stuck_count(+1)
