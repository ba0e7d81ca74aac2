"""Calls inside this process: on a thread or on the loop, where they can be asked to stop but not killed."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from timewright.core.run import Outcome
from timewright.errors import NotAllowed
from timewright.ports.said import Spoken
from timewright.targets.answers import (
    cancelled,
    closing,
    failed,
    failure,
    perform,
    perform_async,
    reason_of,
    timed_out,
    with_cost,
)
from timewright.targets.context import Cancellation, Context
from timewright.targets.deadlines import Deadlines
from timewright.targets.excerpt import Excerpt
from timewright.targets.once import Once
from timewright.targets.overheard import EAR, listen
from timewright.targets.registry import Registered
from timewright.targets.threads import Piece, Threads
from timewright.targets.watch import Timer, Watch

OUTPUT_BYTES = 64 * 1024
_NOT_BY_US = "a function cancelled its task, and not we; a function may cancel only what it started"

if TYPE_CHECKING:
    from asyncio import Task

    from timewright.ports import Launch
    from timewright.targets.loop import Errand, LoopThread


class Site:
    """Where calls of one target run, and which are under way."""

    def __init__(self, *, watch: Watch, threads: Threads, loop: LoopThread | None) -> None:
        self.watch = watch
        self.deadlines = Deadlines(watch)
        self.threads = threads
        self._loop = loop
        self._owns_loop = loop is None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._runs: set[InProcess] = set()
        self._stuck = 0
        self._closed = False
        listen()

    @property
    def leaked(self) -> int:
        """How many calls were given up, and go on."""
        return self.threads.leaked + self._stuck

    @property
    def is_closing(self) -> bool:
        """Whether calls may be cut short because this target or its loop closes."""
        return self._closed or (self._loop is not None and self._loop.cuts_short)

    @property
    def loop(self) -> LoopThread:
        """The loop; started when the first async function comes."""
        with self._changed:
            if self._loop is None:
                from timewright.targets.loop import LoopThread

                self._loop = LoopThread("timewright-calls")
            return self._loop

    def begin(self, run: InProcess) -> None:
        """A call is under way; refused when the site is closed.

        It is counted before it is asked whether we are closed: whoever closes sees it, or it sees that.
        """
        self._runs.add(run)
        if self._closed:
            self.ended(run)
            raise NotAllowed(
                "the target is closed",
                field="target",
                rule="after close nothing more is taken on",
                fix="start a new scheduler",
            )

    def ended(self, run: InProcess) -> None:
        """A call is over, or was given up."""
        self._runs.discard(run)
        if self._closed:
            with self._changed:
                self._changed.notify_all()

    def stuck(self, change: int) -> None:
        """A task on the loop was given up, or came back after all."""
        with self._changed:
            self._stuck += change

    def close(self, *, grace: float) -> None:
        """Ask all calls to stop, give up those that go on after the grace, and free what is ours."""
        with self._changed:
            self._closed = True
            runs = list(self._runs)
        for run in runs:
            run.end(closing(), grace=grace)
        with self._changed:
            self._changed.wait_for(lambda: not self._runs, timeout=grace + 1.0)
        self.threads.close(grace=1.0)
        if self._owns_loop and self._loop is not None:
            self._loop.close(grace=timedelta(0))


class Forks:
    """How often this process came about by a fork of another that had called functions."""

    count = 0

    @classmethod
    def note(cls) -> None:
        """This is the fork."""
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Forks.note)


class InProcess:
    """A call under way: its time limit counts, it can be asked to stop, and in the end it is given up."""

    _verdict: Outcome | None = None
    _given: Context | None = None
    _timers: tuple[Timer, ...] = ()
    _output: Excerpt | None = None

    def __init__(
        self,
        site: Site,
        registered: Registered,
        *,
        launch: Launch,
        args: dict[str, Any],
        grace: float,
        once: Once,
    ) -> None:
        self._site = site
        self._registered = registered
        self._launch = launch
        self._args = args
        self._grace = grace
        self._once = once
        self._limit = launch.time_limit.total_seconds()
        self._forks = Forks.count

    def said(self) -> Spoken | None:
        """What the function has logged so far; from any thread."""
        return self._output.spoken() if self._output is not None else None

    def stop(self, reason: str) -> None:
        """Ask the function to stop; if it goes on after its grace it is given up."""
        self.end(cancelled(reason), grace=self._grace)

    def end(self, verdict: Outcome, *, grace: float) -> None:
        """Answer with this when the function stops, and at the latest after the grace."""
        if self._verdict is not None or self._once.spoken:
            return
        self._verdict = verdict
        if self._given is not None:
            self._given.cancelled.set(reason_of(verdict))
        if self._interrupt():
            return
        try:
            self._timers += (self._site.watch.later(grace, self._give_up),)
        except NotAllowed:  # the watch is closed: nobody would count the grace
            self._give_up()

    @property
    def is_over(self) -> bool:
        """Whether it has answered, or was given up."""
        return self._once.spoken

    def overdue(self) -> None:
        """Its time limit is reached."""
        raise NotImplementedError

    def _hear(self, line: str) -> None:
        if self._output is None:
            self._output = Excerpt(OUTPUT_BYTES)
        self._output.feed(line.encode(errors="replace"))

    def _context(self) -> Context | None:
        """What the function is told, if it wants to know."""
        if not self._registered.takes.context:
            return None
        self._given = given = Context.begin(self._launch, cancelled=Cancellation())
        if self._verdict is not None:
            # Whoever ended it a moment ago may not have seen whom to tell.
            given.cancelled.set(reason_of(self._verdict))
        return given

    def _interrupt(self) -> bool:
        """Do what can be done to end it; says whether it has not even begun, and now never will."""
        raise NotImplementedError

    def _abandon(self) -> None:
        """Count it among those that never came back."""
        raise NotImplementedError

    def _give_up(self) -> None:
        if self._verdict is not None and self._once(with_cost(self._verdict, self._given)):
            self._abandon()
            self._forget()

    def _answer(self, outcome: Outcome) -> None:
        self._once(outcome if self._verdict is None else with_cost(self._verdict, self._given))
        self._forget()

    def _forget(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._site.ended(self)

    def _leave_if_forked(self) -> None:
        # The function forked and both came back: only the first of them answers.
        if Forks.count != self._forks:
            os._exit(0)


class OnThread(InProcess, Piece):
    """A call on a thread; at its time limit it is given up at once, because a thread cannot be ended."""

    def begin(self) -> OnThread:
        """Hand it to a thread."""
        self._site.begin(self)
        try:
            self._site.threads.give(self)
        except BaseException:
            self._forget()
            raise
        return self

    def work(self) -> None:
        """Call the function, on the thread that took it."""
        if self._verdict is not None:
            self._answer(self._verdict)
            return
        try:
            self._site.deadlines.add(self, self._limit)
        except Exception as error:  # noqa: BLE001 - nobody would count its time: no descriptor, no thread
            self._answer(failure(error))
            return
        EAR.set(self._hear)
        outcome = perform(self._registered, self._context(), self._args)
        EAR.set(None)
        self._leave_if_forked()
        self._answer(outcome)

    def overdue(self) -> None:
        """A thread cannot be ended, so it is given up."""
        self.end(timed_out(self._limit), grace=0.0)

    def _interrupt(self) -> bool:
        withdrawn = self._site.threads.withdraw(self)
        if withdrawn and self._verdict is not None:
            self._answer(self._verdict)
        return withdrawn

    def _abandon(self) -> None:
        self._site.threads.abandon(self)


class OnLoop(InProcess):
    """A call on the loop; it is cancelled, and given up if it does not mind."""

    _errand: Errand[Outcome] | None = None
    _is_stuck = False

    def begin(self) -> OnLoop:
        """Hand it to the loop."""
        self._site.begin(self)
        try:
            self._site.deadlines.add(self, self._limit)
            self._errand = self._site.loop.submit(self._run(), self._over)
        except BaseException:
            self._forget()
            raise
        if self._verdict is not None:
            self._errand.cancel()
        return self

    async def _run(self) -> Outcome:
        EAR.set(self._hear)
        outcome = await perform_async(self._registered, self._context(), self._args)
        self._leave_if_forked()
        return outcome

    def _over(self, task: Task[Outcome]) -> None:
        if self._is_stuck:
            self._site.stuck(-1)
        if task.cancelled():
            self._answer(closing() if self._site.is_closing else failed(_NOT_BY_US))
        elif (error := task.exception()) is not None:
            self._answer(failure(error))
        else:
            self._answer(task.result())

    def overdue(self) -> None:
        """It is cancelled, and has its grace."""
        self.end(timed_out(self._limit), grace=self._grace)

    def _interrupt(self) -> bool:
        if self._errand is not None:
            self._errand.cancel()
        return False

    def _abandon(self) -> None:
        self._is_stuck = True
        self._site.stuck(+1)
