"""Targets that follow a script (succeed, fail, hang, vanish), for tests that move the clock by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct

from timewright.core.budgets.costs import Cost
from timewright.core.input.input_errors import input_error
from timewright.core.moments import DAY, ZERO, as_duration, check_duration
from timewright.core.run.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Call
from timewright.errors import NotFound
from timewright.ports import Clock, Launch, RunHandle
from timewright.ports.attempt_output import WorkReport
from timewright.targets import context as calls
from timewright.targets.call.registry import FunctionRegistry, RegisteredFunction
from timewright.targets.outcomes import FINISHED_WORK, call_function, timed_out
from timewright.testing.clock import to_instant

# A function without a time limit may wait this long by the bench's clock; a longer wait would never end.
MAX_INLINE_WAIT = DAY


class ScriptedOutcome(Struct, frozen=True, kw_only=True):
    """What a scripted target does with one launch: finish after a while, or never."""

    outcome: Outcome | None = None
    after: timedelta = ZERO
    heeds_stop: bool = True


def succeed(
    result: Any = None, *, outcome_label: str = "", after: timedelta | str = ZERO, cost: Cost | None = None
) -> ScriptedOutcome:
    """Succeed, at once or after a while, with a result and a cost."""
    words: dict[str, Succeeded] = {
        "": Succeeded(result=result, cost=cost),
        "useful": Succeeded(outcome_label="useful", result=result, cost=cost),
        "noop": Succeeded(outcome_label="noop", result=result, cost=cost),
        "skipped": Succeeded(outcome_label="skipped", result=result, cost=cost),
    }
    if outcome_label not in words:
        raise input_error(
            "outcome_label",
            outcome_label,
            "is not an outcome label",
            rule="useful, noop or skipped",
            fix="outcome_label='useful'",
        )
    return ScriptedOutcome(outcome=words[outcome_label], after=_parse_delay(after))


def fail(
    error: str = "it failed", *, after: timedelta | str = ZERO, not_before: datetime | str | None = None
) -> ScriptedOutcome:
    """Fail; `not_before` asks for no retry before that instant."""
    until = None if not_before is None else to_instant(not_before, field="not_before")
    return ScriptedOutcome(outcome=Failed(error=error, not_before=until), after=_parse_delay(after))


def hang() -> ScriptedOutcome:
    """Never finish, but stop when cancelled or at the time limit."""
    return ScriptedOutcome()


def vanish() -> ScriptedOutcome:
    """Never finish and never stop, as a machine that lost power."""
    return ScriptedOutcome(heeds_stop=False)


def _parse_delay(after: timedelta | str) -> timedelta:
    return check_duration(as_duration(after, field="after"), field="after")


class ScriptedWork:
    """One launch under way."""

    def __init__(
        self, launch: Launch, act: ScriptedOutcome, done: Callable[[Outcome], None], *, began: datetime
    ) -> None:
        self.launch = launch
        self.act = act
        self.began = began
        self.over = False
        self._done = done

    @property
    def ends_at(self) -> datetime | None:
        """When it ends by itself: after its own duration or at its time limit; None if never."""
        limit = None if self.launch.time_limit is None else self.began + self.launch.time_limit
        if self.act.outcome is not None:
            ends = self.began + self.act.after
            return ends if limit is None else min(ends, limit)
        return limit if self.act.heeds_stop else None

    def stop(self, reason: str) -> None:
        """End as cancelled, unless it ignores cancellation."""
        if self.act.heeds_stop:
            self.end(Cancelled(reason=reason))

    def end(self, outcome: Outcome) -> None:
        """Report the outcome, once."""
        if not self.over:
            self.over = True
            self._done(outcome)


class ScriptedTarget:
    """Plays a script for each schedule, one outcome a launch; the last one repeats.

    Without a script it succeeds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scripts: dict[str, list[ScriptedOutcome]] = {}
        self._unplayed: set[str] = set()
        self.launched: list[Launch] = []
        self.under_way: list[ScriptedWork] = []

    def script(self, schedule_name: str, *acts: ScriptedOutcome) -> None:
        """Set what the runs of a schedule do, one outcome a launch."""
        rule, fix = (
            "succeed(), fail(), hang() or vanish(), one for each launch",
            f"script({schedule_name!r}, fail())",
        )
        for number, act in enumerate(acts or (None,)):
            if not isinstance(act, ScriptedOutcome):
                raise input_error(f"acts[{number}]", act, "is not a scripted outcome", rule=rule, fix=fix)
        self._scripts[schedule_name] = list(acts)
        self._unplayed.add(schedule_name)

    def pop_unused_scripts(self) -> set[str]:
        """Return and forget the schedules whose scripts are new and were not used yet."""
        unplayed, self._unplayed = self._unplayed, set()
        return unplayed

    def has_script(self, schedule_name: str) -> bool:
        """Whether the runs of a schedule follow a script."""
        return schedule_name in self._scripts

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> ScriptedWork:
        """Begin the next scripted outcome."""
        script = self._scripts.get(launch.schedule_name, [])
        act = (script.pop(0) if len(script) > 1 else script[0]) if script else succeed()
        work = ScriptedWork(launch, act, done, began=self._clock.now())
        self.launched.append(launch)
        self.under_way.append(work)
        self.finish_due()
        return work

    def finish_due(self) -> None:
        """End all work whose time has come."""
        now = self._clock.now()
        for work in list(self.under_way):
            if not work.over and work.ends_at is not None and work.ends_at <= now:
                in_time = work.act.outcome is not None and work.began + work.act.after <= work.ends_at
                work.end(work.act.outcome if in_time and work.act.outcome is not None else TimedOut())
        self.under_way = [work for work in self.under_way if not work.over]

    def next_end(self) -> datetime | None:
        """The earliest instant at which work here ends by itself."""
        return min((work.ends_at for work in self.under_way if work.ends_at is not None), default=None)

    def close(self, *, grace: timedelta) -> None:
        """Drop all work."""
        self.under_way.clear()


class CountingCancellation(calls.Cancellation):
    """A cancellation whose `wait` returns at once and counts the time, so a waiting function reaches its
    time limit.
    """

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: timedelta) -> None:
        super().__init__()
        self._limit = self._left = limit.total_seconds()

    def wait(self, timeout: float | None = None) -> bool:
        """Count the seconds as waited; return whether the time limit is reached."""
        self._left -= self._limit if timeout is None else timeout
        if self._left <= 0:
            self.set(f"time limit of {self._limit:g} s reached")
        return self.is_set()


class InlineCall:
    """A call that has returned; its context has what it reported."""

    def __init__(self, context: calls.Context) -> None:
        self._context = context

    def stop(self, reason: str) -> None:
        """Do nothing: the call has returned."""

    def read_report(self) -> WorkReport | None:
        """What the function reported last."""
        return self._context.report


class InlineCallTarget:
    """Calls registered functions inside `launch`, so the outcome is known when `launch` returns."""

    def __init__(self, *, scripted: ScriptedTarget) -> None:
        self.registries: list[FunctionRegistry] = []
        self._scripted = scripted

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Call the function, unless its schedule has a script."""
        if self._scripted.has_script(launch.schedule_name) or not isinstance(launch.target, Call):
            return self._scripted.launch(launch, done)
        self._scripted.launched.append(launch)
        try:
            registered = self._resolve(launch.target.name)
        except NotFound as error:
            done(Failed(error=error.message, unresolved=True))
            return FINISHED_WORK
        limit = launch.time_limit or MAX_INLINE_WAIT
        cancellation = CountingCancellation(limit)
        context = calls.Context(launch, cancelled=cancellation)
        outcome = run_outside_event_loop(partial(call_function, registered, context, launch.target.args))
        done(timed_out(limit.total_seconds()) if cancellation else outcome)
        return InlineCall(context)

    def close(self, *, grace: timedelta) -> None:
        """Nothing to stop."""

    def _resolve(self, name: str) -> RegisteredFunction:
        has_it = [registry for registry in self.registries if name in registry]
        return (has_it or self.registries)[-1].resolve(name)


def run_outside_event_loop(work: Callable[[], Outcome]) -> Outcome:
    """Run the work here, or on a thread if an event loop is running already, as in an async test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(work).result()
