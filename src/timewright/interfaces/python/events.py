"""Event listeners of a scheduler: `@app.on_failed` and others."""

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

from timewright.core import facts
from timewright.core.facts import Fact
from timewright.core.input.input_errors import input_error
from timewright.errors import NotFound
from timewright.ports.store import ScheduleNames

Listener = Callable[[Any], object]
L = TypeVar("L", bound=Callable[[Any], object])

EVENTS: dict[str, tuple[type[Fact], ...]] = {
    "due": (facts.RunAdmitted,),
    "started": (facts.AttemptStarted,),
    "completed": (facts.RunSucceeded,),
    "failed": (facts.RunWillRetry, facts.RunFailed, facts.RunParked),
    "exhausted": (facts.RunFailed, facts.RunParked),
    "skipped": (facts.RunSkipped, facts.OccurrencesDropped),
    "cancelled": (facts.RunCancelled,),
    "parked": (facts.RunParked, facts.ScheduleParked),
    "lost": (facts.FactsLost,),
}
# Names of other schedulers.
_SYNONYMS = {"success": "completed", "succeeded": "completed", "failure": "failed", "error": "failed"}
_SYNONYMS |= {
    "retry": "failed",
    "start": "started",
    "executed": "completed",
    "missed": "skipped",
    "admitted": "due",
}

# Inherited by tasks and `asyncio.to_thread`.
_IN_LISTENER: ContextVar[bool] = ContextVar("timewright-in-listener", default=False)


def is_inside_listener() -> bool:
    """Whether the current code runs in an async listener, in its task or a thread started by it."""
    return _IN_LISTENER.get()


def _with_name(kind: type[Fact]) -> Any:
    """Return a fact type with the additional field `schedule_name`."""
    extra = [("schedule_name", str, "")]
    return defstruct(kind.__name__, extra, bases=(kind,), module=__name__, frozen=True, kw_only=True)


_KINDS = {kind for kinds in EVENTS.values() for kind in kinds if "schedule_id" in kind.__struct_fields__}
_WITH_NAME: dict[type[Fact], Any] = {kind: _with_name(kind) for kind in _KINDS}
globals().update({kind.__name__: named for kind, named in _WITH_NAME.items()})  # pickle looks them up here


def facts_of(event: str) -> tuple[type[Fact], ...]:
    """Return the facts of an event."""
    if event in EVENTS:
        return EVENTS[event]
    if callable(event):
        fix = '@app.on("failed")'
        raise input_error(
            "event", event, "is a function", rule="the name of an event", fix=fix, kind=NotFound
        )
    near = _SYNONYMS.get(str(event)) or next(iter(get_close_matches(str(event), EVENTS, n=1)), "")
    fix = f"did you mean {near!r}?" if near else "use one of these"
    raise input_error(
        "event", event, "is unknown", rule=f"one of {', '.join(EVENTS)}", fix=fix, kind=NotFound
    )


class Listeners:
    """Calls the listeners of each fact in order; an error in one does not affect the others.

    A coroutine function is awaited on `loop` while that runs, otherwise in a new loop.
    """

    name = "a listener"

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._listeners: list[tuple[tuple[type[Fact], ...], Listener]] = []
        self._name = ScheduleNames(name_of)
        self._kinds: list[tuple[type[Fact], ...]] = [(facts.FactsLost,)]
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def kinds(self) -> tuple[type[Fact], ...]:
        """The facts that have listeners."""
        return self._kinds[0]

    def add(self, kinds: tuple[type[Fact], ...], listener: Listener) -> None:
        """Add a listener; raises if it does not accept a fact."""
        _check(listener)
        self._listeners.append((kinds, listener))
        self._kinds[0] += kinds

    def shared_with(self, name_of: Callable[[str], str]) -> Listeners:
        """Return an observer with the same listeners for another instance, which has its own schedules."""
        other = Listeners(name_of)
        other._listeners, other._kinds = self._listeners, self._kinds
        return other

    def notify(self, fact: Fact) -> None:
        """Call all listeners of a fact, then raise the first error."""
        errors: list[BaseException] = []
        with_name: Fact | None = None
        for kinds, listener in list(self._listeners):
            if isinstance(fact, kinds):
                with_name = with_name or self._with_name(fact)
                try:
                    result = listener(with_name)
                    if inspect.isawaitable(result):
                        _run_awaitable(result, self.loop)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - a listener may raise anything
                    errors.append(error)
        if errors:
            raise errors[0]

    def _with_name(self, fact: Fact) -> Fact:
        kind = _WITH_NAME.get(type(fact))
        if kind is None:
            return fact
        named: Fact = kind(**asdict(fact), schedule_name=self._name(getattr(fact, "schedule_id", "")))
        return named


class EventDecorators:
    """Decorators that register listeners: `@app.on_failed`, or `@app.on("failed")`."""

    listeners: Listeners

    def on(self, event: str) -> Callable[[L], L]:
        """Call the decorated function with every fact of an event, after its commit: `@app.on("failed")`."""
        kinds = facts_of(event)

        def register(listener: L) -> L:
            self.listeners.add(kinds, listener)
            return listener

        return register

    def on_due(self, listener: L) -> L:
        """Call the listener when an occurrence is due and became a run, before the run starts or waits."""
        return self.on("due")(listener)

    def on_started(self, listener: L) -> L:
        """Call the listener when an attempt starts."""
        return self.on("started")(listener)

    def on_completed(self, listener: L) -> L:
        """Call the listener when a run succeeds."""
        return self.on("completed")(listener)

    def on_failed(self, listener: L) -> L:
        """Call the listener when an attempt fails."""
        return self.on("failed")(listener)

    def on_exhausted(self, listener: L) -> L:
        """Call the listener when a run has failed its last attempt."""
        return self.on("exhausted")(listener)

    def on_skipped(self, listener: L) -> L:
        """Call the listener when an occurrence is skipped."""
        return self.on("skipped")(listener)

    def on_parked(self, listener: L) -> L:
        """Call the listener when a run or a schedule is parked."""
        return self.on("parked")(listener)


def _check(listener: Any) -> None:
    rule, fix = "a function with one required parameter, the fact", "def on_fact(fact): ..."
    if not callable(listener):
        raise input_error("listener", listener, "cannot be called", rule=rule, fix=fix)
    try:
        inspect.signature(listener).bind(None)
    except TypeError as error:
        named = getattr(listener, "__name__", listener)
        raise input_error("listener", named, f"has a wrong signature: {error}", rule=rule, fix=fix) from None
    except ValueError:
        return  # a built-in without a signature


def _run_awaitable(awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop | None) -> None:
    """Run an awaitable to its end: on `loop` if that runs in another thread, else in a new loop."""

    async def run() -> None:
        _IN_LISTENER.set(True)
        await awaitable

    if loop is not None and loop.is_running() and not _has_running_loop():
        future = asyncio.run_coroutine_threadsafe(run(), loop)
        while loop.is_running():
            with suppress(TimeoutError):
                future.result(timeout=1.0)
                return
        return
    if not _has_running_loop():
        asyncio.run(run())
        return
    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    thread.join()


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
