"""Targets that do as they are told: succeed, fail, hang, vanish; for tests that move time by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct

from timewright.core.costs import Cost
from timewright.core.moments import ZERO, as_duration, bounded
from timewright.core.refusals import refused
from timewright.core.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Call
from timewright.errors import NotFound
from timewright.ports import Clock, Launch, Work
from timewright.targets import context as calls
from timewright.targets.answers import perform, timed_out
from timewright.targets.once import ENDED
from timewright.targets.registry import Registered, Registry
from timewright.testing.clock import instant_of


class Act(Struct, frozen=True, kw_only=True):
    """What a scripted target does with one launch: answer after a while, or never."""

    outcome: Outcome | None = None
    after: timedelta = ZERO
    heeds_stop: bool = True


def succeed(
    result: Any = None, *, word: str = "", after: timedelta | str = ZERO, cost: Cost | None = None
) -> Act:
    """Do the work, at once or after a while, and say what it cost."""
    words: dict[str, Succeeded] = {
        "": Succeeded(result=result, cost=cost),
        "useful": Succeeded(word="useful", result=result, cost=cost),
        "noop": Succeeded(word="noop", result=result, cost=cost),
        "skipped": Succeeded(word="skipped", result=result, cost=cost),
    }
    if word not in words:
        raise refused("word", word, "is no such word", rule="useful, noop or skipped", fix="word='useful'")
    return Act(outcome=words[word], after=_a_while(after))


def fail(
    error: str = "it failed", *, after: timedelta | str = ZERO, not_before: datetime | str | None = None
) -> Act:
    """Try, and fail; `not_before` asks to be left alone until then."""
    until = None if not_before is None else instant_of(not_before, field="not_before")
    return Act(outcome=Failed(error=error, not_before=until), after=_a_while(after))


def hang() -> Act:
    """Never answer, but stop when asked or when the time limit is reached."""
    return Act()


def vanish() -> Act:
    """Never answer and never stop, as a machine that lost its power."""
    return Act(heeds_stop=False)


def _a_while(after: timedelta | str) -> timedelta:
    return bounded(as_duration(after, field="after"), field="after")


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
        self._unplayed: set[str] = set()
        self.launched: list[Launch] = []
        self.under_way: list[ScriptedWork] = []

    def script(self, schedule_name: str, *acts: Act) -> None:
        """What the runs of a schedule do, one act a launch."""
        rule, fix = (
            "succeed(), fail(), hang() or vanish(), one a launch",
            f"script({schedule_name!r}, fail())",
        )
        for number, act in enumerate(acts or (None,)):
            if not isinstance(act, Act):
                raise refused(f"acts[{number}]", act, "is no act", rule=rule, fix=fix)
        self._scripts[schedule_name] = list(acts)
        self._unplayed.add(schedule_name)

    def take_unplayed(self) -> set[str]:
        """The schedules whose scripts are new and were not played yet; asked once, they are forgotten."""
        unplayed, self._unplayed = self._unplayed, set()
        return unplayed

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


class Patience(calls.Cancellation):
    """Rests in no time: what a function waits for is counted, and at its time limit it is asked to stop."""

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: timedelta) -> None:
        super().__init__()
        self._limit = self._left = limit.total_seconds()

    def wait(self, timeout: float | None = None) -> bool:
        """Count so many seconds; says whether it was asked to stop."""
        self._left -= self._limit if timeout is None else timeout
        if self._left <= 0:
            self.set(f"time limit of {self._limit:g} s reached")
        return self.is_set()


class CallingTarget:
    """Calls registered functions where it stands, and answers before the launch is over."""

    def __init__(self, *, scripted: ScriptedTarget) -> None:
        self.registries: list[Registry] = []
        self._scripted = scripted

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Call the function, unless its schedule follows a script."""
        if self._scripted.has_script(launch.schedule_name) or not isinstance(launch.target, Call):
            return self._scripted.launch(launch, done)
        self._scripted.launched.append(launch)
        try:
            registered = self._resolve(launch.target.name)
        except NotFound as error:
            done(Failed(error=error.message, unresolved=True))
            return ENDED
        patience = Patience(launch.time_limit)
        context = calls.Context.begin(launch, cancelled=patience)
        outcome = aside_of_a_loop(partial(perform, registered, context, launch.target.args))
        done(timed_out(launch.time_limit.total_seconds()) if patience else outcome)
        return ENDED

    def close(self, *, grace: timedelta) -> None:
        """Nothing goes on here."""

    def _resolve(self, name: str) -> Registered:
        has_it = [registry for registry in self.registries if name in registry]
        return (has_it or self.registries)[-1].resolve(name)


def aside_of_a_loop(work: Callable[[], Outcome]) -> Outcome:
    """Do it here; where a loop runs already, as in an async test, on a thread that may have its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(work).result()
