"""The targets of an instance by kind, each built when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from timewright.core.run.run import Failed, Outcome, TimedOut
from timewright.ports import Launch, RunHandle, Target

# A target enforces the time limit itself; wait this much longer for its result.
RESULT_GRACE = timedelta(seconds=1)


class LazyTargets(Mapping[str, Target]):
    """Targets by kind, built on first use, so that unused targets cost nothing."""

    def __init__(
        self, factories: Mapping[str, Callable[[], Target]], *, wrap: Callable[[str, Target], Target]
    ) -> None:
        self._factories = dict(factories)
        self._wrap = wrap
        self._built: dict[str, Target] = {}

    def __getitem__(self, kind: str) -> Target:
        if kind not in self._built:
            self._built[kind] = self._wrap(kind, self._factories[kind]())
        return self._built[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)

    def close(self, *, grace: timedelta) -> None:
        """Close the targets that were built."""
        for target in self._built.values():
            target.close(grace=grace)

    def launch_and_wait(self, launch: Launch, on_start: Callable[[RunHandle], None] | None = None) -> Outcome:
        """Launch a target without a run, and wait for its outcome, at most its time limit, if it has one.

        `on_start` receives the work, so that another thread may stop it.
        """
        kind = str(type(launch.target).__struct_config__.tag)
        if kind not in self._factories:
            return Failed(error=f"this process has no {kind} target", unresolved=True)
        ended = threading.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            ended.set()

        try:
            work = self[kind].launch(launch, done)
        except Exception as error:  # noqa: BLE001 - the boundary: an error of a target is its outcome
            return Failed(error=f"{type(error).__name__}: {error}")
        if on_start is not None:
            on_start(work)
        limit = launch.time_limit
        if not ended.wait((limit + RESULT_GRACE).total_seconds() if limit is not None else None):
            work.stop("time limit reached")
            ended.wait(launch.grace.total_seconds())
            return TimedOut()
        return outcomes[0]
