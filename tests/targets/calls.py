"""Launching HTTP targets by hand: a caller, what it launches, and names that answer as told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec.structs import replace

from timewright.core.run import Outcome
from timewright.core.target import AnyTarget
from timewright.ports import Launch, Work
from timewright.targets.egress import Egress
from timewright.targets.http import HttpTarget
from timewright.targets.loop import LoopThread
from timewright.testing.clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PATIENCE = 60.0


def launch_of(target: AnyTarget, *, key: str = "5f0c", **changes: Any) -> Launch:
    plain = Launch(
        run_id="run_1",
        namespace="default",
        schedule_id="sch_1",
        schedule_name="nightly",
        target=target,
        given_key=key,
        fence=7,
        attempt=2,
        planned_at=NOON,
        fire_at=NOON,
        time_limit=60 * SECOND,
        grace=SECOND,
    )
    return replace(plain, **changes)


class Pending:
    """A launch under way; it remembers every outcome it is told, so that a second one would show."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.threads: list[str] = []
        self.work: Work | None = None
        self._told = threading.Event()

    def tell(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.threads.append(threading.current_thread().name)
        self._told.set()

    def outcome(self) -> Outcome:
        assert self._told.wait(PATIENCE), "no outcome came"
        return self.outcomes[0]

    def stop(self, reason: str) -> None:
        assert self.work is not None
        self.work.stop(reason)


class Caller:
    """An HTTP target with a loop of its own and a clock that stands still."""

    def __init__(self, *, egress: Egress | None = None, **options: Any) -> None:
        self.clock = ManualClock(NOON)
        self.loop = LoopThread("caller")
        policy = egress if egress is not None else Egress.local()
        self.target = HttpTarget(self.loop, egress=policy, clock=self.clock, **options)
        self.launched: list[Pending] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        assert [one.outcomes for one in self.launched if len(one.outcomes) != 1] == []

    def close(self, grace: timedelta = timedelta(0)) -> None:
        self.target.close(grace=grace)
        self.loop.close(grace=timedelta(0))

    def launch(self, target: AnyTarget, **changes: Any) -> Pending:
        pending = Pending()
        self.launched.append(pending)
        pending.work = self.target.launch(launch_of(target, **changes), pending.tell)
        return pending

    def call(self, target: AnyTarget, **changes: Any) -> Outcome:
        return self.launch(target, **changes).outcome()


class Names(AbstractResolver):
    """Answers for names as told: the first time the first list, then the next, then the last for ever."""

    def __init__(self, names: dict[str, list[list[str]]], *, wait: Callable[[], Any] | None = None) -> None:
        self._names = names
        self._wait = wait
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if self._wait is not None:
            await self._wait()
        answers = self._names.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [_resolved(host, address, port) for address in found]

    async def close(self) -> None:
        """Nothing to give back."""


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
