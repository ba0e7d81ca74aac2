"""Calls Python functions: on the loop, on a thread, or in a worker subprocess that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from timewright.core.run import Failed, Outcome
from timewright.core.target import Call, Isolation
from timewright.errors import NotAllowed, NotFound, TimewrightError
from timewright.ports import Launch, Work
from timewright.targets.answers import closing, failed, failure
from timewright.targets.children import Children
from timewright.targets.context import Facts
from timewright.targets.in_process import OnLoop, OnThread, Site
from timewright.targets.once import ENDED, Once
from timewright.targets.registry import Registered, Registry
from timewright.targets.threads import Threads
from timewright.targets.workers import Workers

if TYPE_CHECKING:
    from timewright.targets.loop import LoopThread


class CallTarget:
    """Calls registered functions by name; what they do, return or raise becomes an outcome.

    `isolation` is where a function runs that does not say: `inherit` puts async functions on the loop and
    others on threads, `process` puts all of them into worker subprocesses. Give it a loop of its own: a
    function that blocks the loop blocks everything else on it.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        isolation: Isolation = "inherit",
        threads: int = 32,
        workers: int = 8,
        preload: Sequence[str] = (),
        passed: Sequence[str] = (),
        loop: LoopThread | None = None,
        children: Children | None = None,
        own_process: bool = False,
    ) -> None:
        self._registry = registry
        self._isolation: Isolation = isolation
        self._owns_children = children is None
        self._children = children or Children(own_process=own_process)
        self._site = Site(watch=self._children.watch, threads=Threads(limit=threads), loop=loop)
        self._workers = Workers(self._children, limit=workers, preload=preload, passed=passed)

    @property
    def leaked(self) -> int:
        """How many calls were given up while their thread or task goes on: those cannot be killed."""
        return self._site.leaked

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Call the function the launch names, and return at once."""
        once = Once(done)
        try:
            return self._start(launch, once)
        except NotFound as error:
            once(Failed(error=f"{error.message}; {error.fix}", unresolved=True))
        except NotAllowed:
            once(closing())
        except TimewrightError as error:
            once(failed(f"{error.message}; {error.fix}"))
        except Exception as error:  # noqa: BLE001 - the boundary: a launch answers, it never raises
            once(failure(error))
        return ENDED

    def close(self, *, grace: timedelta) -> None:
        """Ask what is under way to stop, give up what goes on after the grace, and free what is ours."""
        seconds = grace.total_seconds()
        self._workers.close(grace=seconds)
        self._site.close(grace=seconds)
        if self._owns_children:
            self._children.close(grace=seconds)

    def _start(self, launch: Launch, once: Once) -> Work:
        target = launch.target
        if not isinstance(target, Call):
            once(Failed(error=f"a {type(target).__name__} is not a call", final=True))
            return ENDED
        registered = self._registry.resolve(target.name)
        misfit = registered.takes.misfit(target.args)
        if misfit:
            once(failed(f"the arguments do not fit {target.name!r}: {misfit}"))
            return ENDED
        args, grace = target.args, launch.grace.total_seconds()
        place = self._place(target, registered)
        if place == "loop":
            return OnLoop(self._site, registered, launch=launch, args=args, grace=grace, once=once).begin()
        if place == "thread":
            return OnThread(self._site, registered, launch=launch, args=args, grace=grace, once=once).begin()
        reference, facts = self._registry.reference(registered), Facts.of(launch)
        return self._workers.run(target.name, reference, args=args, facts=facts, grace=grace, done=once)

    def _place(self, target: Call, registered: Registered) -> Isolation:
        """The schedule's wish, else the function's own, else this target's, else what suits the function."""
        if target.isolation != "inherit":
            return target.isolation
        if registered.isolation != "inherit":
            return registered.isolation
        if self._isolation != "inherit":
            return self._isolation
        return "loop" if registered.is_async else "thread"
