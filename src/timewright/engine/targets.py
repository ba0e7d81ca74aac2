"""The targets of an instance by their kind, each built when it is first needed, and tried by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from timewright.core.run import Failed, Outcome, TimedOut
from timewright.ports import Launch, Target

LAST_WORD = timedelta(seconds=1)


class Targets(Mapping[str, Target]):
    """Targets by kind, each built when it is first needed, so that an idle part costs nothing."""

    def __init__(
        self, makers: Mapping[str, Callable[[], Target]], *, around: Callable[[str, Target], Target]
    ) -> None:
        self._makers = dict(makers)
        self._around = around
        self._made: dict[str, Target] = {}

    def __getitem__(self, kind: str) -> Target:
        if kind not in self._made:
            self._made[kind] = self._around(kind, self._makers[kind]())
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def close(self, *, grace: timedelta) -> None:
        """Close those that were built."""
        for target in self._made.values():
            target.close(grace=grace)

    def try_once(self, launch: Launch) -> Outcome:
        """Launch outside of any run, and wait for what comes of it, no longer than its time limit."""
        kind = str(type(launch.target).__struct_config__.tag)
        if kind not in self._makers:
            return Failed(error=f"a {kind} target is not started here", unresolved=True)
        ended = threading.Event()
        answers: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            answers.append(outcome)
            ended.set()

        try:
            work = self[kind].launch(launch, done)
        except Exception as error:  # noqa: BLE001 - the boundary: what a target does wrong is its outcome
            return Failed(error=f"{type(error).__name__}: {error}")
        if not ended.wait((launch.time_limit + LAST_WORD).total_seconds()):
            work.stop("time limit reached")
            ended.wait(launch.grace.total_seconds())
            return TimedOut()
        return answers[0]
