"""Targets that do as they are told: succeed, fail, hang, vanish; for tests that move time by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from timewright.core.costs import Cost
from timewright.core.moments import ZERO
from timewright.core.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Call
from timewright.errors import NotFound
from timewright.ports import Clock, Launch, Work
from timewright.targets import context as calls
from timewright.targets.answers import perform
from timewright.targets.once import ENDED
from timewright.targets.registry import Registry


class Act(Struct, frozen=True, kw_only=True):
    """What a scripted target does with one launch: answer after a while, or never."""

    outcome: Outcome | None = None
    after: timedelta = ZERO
    heeds_stop: bool = True


def succeed(result: Any = None, *, word: str = "", after: timedelta = ZERO, cost: Cost | None = None) -> Act:
    """Do the work, at once or after a while, and say what it cost."""
    words: dict[str, Succeeded] = {
        "": Succeeded(result=result, cost=cost),
        "useful": Succeeded(word="useful", result=result, cost=cost),
        "noop": Succeeded(word="noop", result=result, cost=cost),
        "skipped": Succeeded(word="skipped", result=result, cost=cost),
    }
    return Act(outcome=words[word], after=after)


def fail(error: str = "it failed", *, after: timedelta = ZERO, not_before: datetime | None = None) -> Act:
    """Try, and fail."""
    return Act(outcome=Failed(error=error, not_before=not_before), after=after)


def hang() -> Act:
    """Never answer, but stop when asked or when the time limit is reached."""
    return Act()


def vanish() -> Act:
    """Never answer and never stop, as a machine that lost its power."""
    return Act(heeds_stop=False)


class ScriptedWork:
    """One launch under way."""

    def __init__(self, launch: Launch, act: Act, done: Callable[[Outcome], None], *, began: datetime) -> None:
        self.launch = launch
        self.act = act
        self.began = began
        self.over = False
        self._done = done

    @property
    def ends_at(self) -> datetime | None:
        """When it answers by itself: its own time, or its time limit; never if it vanished."""
        limit = self.began + self.launch.time_limit
        if self.act.outcome is not None:
            return min(self.began + self.act.after, limit)
        return limit if self.act.heeds_stop else None

    def stop(self, reason: str) -> None:
        """End, if it is the kind that listens."""
        if self.act.heeds_stop:
            self.end(Cancelled(reason=reason))

    def end(self, outcome: Outcome) -> None:
        """Answer, once."""
        if not self.over:
            self.over = True
            self._done(outcome)


class ScriptedTarget:
    """Plays a script for each schedule, in order; the last act repeats. Without a script it succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scripts: dict[str, list[Act]] = {}
        self.launched: list[Launch] = []
        self.under_way: list[ScriptedWork] = []

    def script(self, schedule_name: str, *acts: Act) -> None:
        """What the runs of a schedule do, one act a launch."""
        self._scripts[schedule_name] = list(acts)

    def has_script(self, schedule_name: str) -> bool:
        """Whether the runs of a schedule follow a script."""
        return schedule_name in self._scripts

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> ScriptedWork:
        """Begin the next act."""
        script = self._scripts.get(launch.schedule_name, [])
        act = (script.pop(0) if len(script) > 1 else script[0]) if script else succeed()
        work = ScriptedWork(launch, act, done, began=self._clock.now())
        self.launched.append(launch)
        self.under_way.append(work)
        self.finish_due()
        return work

    def finish_due(self) -> None:
        """End every act whose time has come."""
        now = self._clock.now()
        for work in list(self.under_way):
            if not work.over and work.ends_at is not None and work.ends_at <= now:
                in_time = work.act.outcome is not None and work.began + work.act.after <= work.ends_at
                work.end(work.act.outcome if in_time and work.act.outcome is not None else TimedOut())
        self.under_way = [work for work in self.under_way if not work.over]

    def next_end(self) -> datetime | None:
        """The earliest instant at which something here ends by itself."""
        return min((work.ends_at for work in self.under_way if work.ends_at is not None), default=None)

    def close(self, *, grace: timedelta) -> None:
        """Let everything go."""
        self.under_way.clear()


class CallingTarget:
    """Calls registered functions where it stands, and answers before the launch is over."""

    def __init__(self, registry: Registry, *, scripted: ScriptedTarget) -> None:
        self._registry = registry
        self._scripted = scripted

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Call the function, unless its schedule follows a script."""
        if self._scripted.has_script(launch.schedule_name) or not isinstance(launch.target, Call):
            return self._scripted.launch(launch, done)
        self._scripted.launched.append(launch)
        try:
            registered = self._registry.resolve(launch.target.name)
        except NotFound as error:
            done(Failed(error=error.message, unresolved=True))
            return ENDED
        context = calls.Context.begin(launch, cancelled=calls.Cancellation())
        done(perform(registered, context, launch.target.args))
        return ENDED

    def close(self, *, grace: timedelta) -> None:
        """Nothing goes on here."""
