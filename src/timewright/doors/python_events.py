"""Events: who listens inside the program, and what each is told, on whose thread or loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any, TypeVar

from msgspec import defstruct
from msgspec.structs import asdict

from timewright.clocks import SystemClock
from timewright.core import facts as told
from timewright.core.facts import Fact
from timewright.core.refusals import refused
from timewright.errors import NotFound, TimewrightError

Listener = Callable[[Any], object]
L = TypeVar("L", bound=Callable[[Any], object])

EVENTS: dict[str, tuple[type[Fact], ...]] = {
    "started": (told.AttemptStarted,),
    "completed": (told.RunSucceeded,),
    "failed": (told.RunWillRetry, told.RunFailed, told.RunParked),
    "exhausted": (told.RunFailed, told.RunParked),
    "skipped": (told.RunSkipped, told.OccurrencesDropped),
    "cancelled": (told.RunCancelled,),
    "parked": (told.RunParked, told.ScheduleParked),
    "lost": (told.FactsLost,),
}
# What others call them.
_MEANT = {"success": "completed", "succeeded": "completed", "failure": "failed", "error": "failed"}
_MEANT |= {"retry": "failed", "start": "started", "executed": "completed", "missed": "skipped"}

MOST_NAMES = 10_000
NAMES_FOR_SECONDS = 30.0
_monotonic = SystemClock().monotonic
# Tasks and `asyncio.to_thread` take it along.
_TELLING: ContextVar[bool] = ContextVar("timewright-telling", default=False)


def is_telling() -> bool:
    """Whether we are called by an async listener, on its task or a thread that went on for it."""
    return _TELLING.get()


def _with_name(kind: type[Fact]) -> Any:
    """The same fact with the name of its schedule, which only listeners are told."""
    more = [("schedule_name", str, "")]
    return defstruct(kind.__name__, more, bases=(kind,), module=__name__, frozen=True, kw_only=True)


_KINDS = {kind for kinds in EVENTS.values() for kind in kinds if "schedule_id" in kind.__struct_fields__}
_NAMED: dict[type[Fact], Any] = {kind: _with_name(kind) for kind in _KINDS}
globals().update({kind.__name__: named for kind, named in _NAMED.items()})  # where pickle looks for them


def kinds_of(event: str) -> tuple[type[Fact], ...]:
    """The facts that an event stands for."""
    if event in EVENTS:
        return EVENTS[event]
    if callable(event):
        fix = '@app.on("failed")'
        raise refused("event", event, "is a function", rule="an event by its name", fix=fix, kind=NotFound)
    near = _MEANT.get(str(event)) or next(iter(get_close_matches(str(event), EVENTS, n=1)), "")
    fix = f"did you mean {near!r}?" if near else "one of these"
    raise refused("event", event, "is not known", rule=f"one of {', '.join(EVENTS)}", fix=fix, kind=NotFound)


class Listeners:
    """Hands each fact to those who listen for its kind, in order; one that raises spoils nobody else's.

    A coroutine function is awaited on `loop` while that runs, and in a loop of its own otherwise.
    """

    name = "a listener"

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._listening: list[tuple[tuple[type[Fact], ...], Listener]] = []
        self._name_of = name_of
        self._names: dict[str, str] = {}
        self._fresh_until = 0.0
        self._kinds: list[tuple[type[Fact], ...]] = [(told.FactsLost,)]
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def kinds(self) -> tuple[type[Fact], ...]:
        """The facts that anyone here wants."""
        return self._kinds[0]

    def add(self, kinds: tuple[type[Fact], ...], listener: Listener) -> None:
        """Let one more listen; refused if it cannot be told a fact."""
        _check(listener)
        self._listening.append((kinds, listener))
        self._kinds[0] += kinds

    def beside(self, name_of: Callable[[str], str]) -> Listeners:
        """The same who listen, told by another instance that has schedules of its own."""
        other = Listeners(name_of)
        other._listening, other._kinds = self._listening, self._kinds
        return other

    def note(self, fact: Fact) -> None:
        """Call everyone who wants to hear of it; the first error is raised when all were called."""
        errors: list[BaseException] = []
        said: Fact | None = None
        for kinds, listener in list(self._listening):
            if isinstance(fact, kinds):
                said = said or self._named(fact)
                try:
                    answer = listener(said)
                    if inspect.isawaitable(answer):
                        _finish(answer, self.loop)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - a listener is somebody else's code
                    errors.append(error)
        if errors:
            raise errors[0]

    def _named(self, fact: Fact) -> Fact:
        kind = _NAMED.get(type(fact))
        if kind is None:
            return fact
        named: Fact = kind(**asdict(fact), schedule_name=self._name(getattr(fact, "schedule_id", "")))
        return named

    def _name(self, schedule_id: str) -> str:
        """A name as it was half a minute ago at most: someone may give a schedule another."""
        now = _monotonic()
        if now >= self._fresh_until or len(self._names) >= MOST_NAMES:
            self._names.clear()
            self._fresh_until = now + NAMES_FOR_SECONDS
        if schedule_id and schedule_id not in self._names:
            with suppress(TimewrightError):
                self._names[schedule_id] = self._name_of(schedule_id)
        return self._names.get(schedule_id, "")


class Hearing:
    """Those who may be asked to tell: `@app.on_failed`, or any event by its name."""

    listeners: Listeners

    def on(self, event: str) -> Callable[[L], L]:
        """Call the decorated function with every fact of one kind, after it is true: `@app.on("failed")`."""
        kinds = kinds_of(event)

        def keep(listener: L) -> L:
            self.listeners.add(kinds, listener)
            return listener

        return keep

    def on_started(self, listener: L) -> L:
        """Call this when the work of a run has begun."""
        return self.on("started")(listener)

    def on_completed(self, listener: L) -> L:
        """Call this after every run that succeeded."""
        return self.on("completed")(listener)

    def on_failed(self, listener: L) -> L:
        """Call this after every attempt that failed."""
        return self.on("failed")(listener)

    def on_exhausted(self, listener: L) -> L:
        """Call this when a run has used its attempts up."""
        return self.on("exhausted")(listener)

    def on_skipped(self, listener: L) -> L:
        """Call this when an occurrence did not become work."""
        return self.on("skipped")(listener)

    def on_parked(self, listener: L) -> L:
        """Call this when a run or a schedule waits for a person."""
        return self.on("parked")(listener)


def _check(listener: Any) -> None:
    rule, fix = "a function that takes the fact, and nothing else it must have", "def tell(fact): ..."
    if not callable(listener):
        raise refused("listener", listener, "cannot be called", rule=rule, fix=fix)
    try:
        inspect.signature(listener).bind(None)
    except TypeError as error:
        named = getattr(listener, "__name__", listener)
        raise refused("listener", named, f"cannot be told: {error}", rule=rule, fix=fix) from None
    except ValueError:
        return  # a built-in that does not say what it takes


def _finish(answer: Awaitable[Any], loop: asyncio.AbstractEventLoop | None) -> None:
    """Wait until it has ended: on the loop of the program if it runs elsewhere, else in one of its own."""

    async def whole() -> None:
        _TELLING.set(True)
        await answer

    if loop is not None and loop.is_running() and not _is_on_a_loop():
        future = asyncio.run_coroutine_threadsafe(whole(), loop)
        while loop.is_running():
            with suppress(TimeoutError):
                future.result(timeout=1.0)
                return
        return
    if not _is_on_a_loop():
        asyncio.run(whole())
        return
    aside = threading.Thread(target=lambda: asyncio.run(whole()), daemon=True)
    aside.start()
    aside.join()


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
