"""Support for tests of the HTTP target: launches, recorded outcomes, and a fake resolver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec.structs import replace

from timewright.core.run.run import Outcome
from timewright.core.target import AnyTarget
from timewright.ports import Launch, RunHandle
from timewright.targets.http.egress import EgressPolicy
from timewright.targets.http.target import HttpTarget
from timewright.targets.loop_thread import LoopThread
from timewright.testing.clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TIMEOUT_S = 60.0


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


class PendingLaunch:
    """A running launch. Records all outcomes, so that a second one would be detected."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.threads: list[str] = []
        self.work: RunHandle | None = None
        self._received = threading.Event()

    def record(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.threads.append(threading.current_thread().name)
        self._received.set()

    def outcome(self) -> Outcome:
        assert self._received.wait(TIMEOUT_S), "no outcome came"
        return self.outcomes[0]

    def stop(self, reason: str) -> None:
        assert self.work is not None
        self.work.stop(reason)


class HttpCaller:
    """An HTTP target with its own loop and a manual clock."""

    def __init__(self, *, egress: EgressPolicy | None = None, **options: Any) -> None:
        self.clock = ManualClock(NOON)
        self.loop = LoopThread("caller")
        policy = egress if egress is not None else EgressPolicy.local()
        self.target = HttpTarget(self.loop, egress=policy, clock=self.clock, **options)
        self.launched: list[PendingLaunch] = []

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

    def launch(self, target: AnyTarget, **changes: Any) -> PendingLaunch:
        pending = PendingLaunch()
        self.launched.append(pending)
        pending.work = self.target.launch(launch_of(target, **changes), pending.record)
        return pending

    def call(self, target: AnyTarget, **changes: Any) -> Outcome:
        return self.launch(target, **changes).outcome()


class FakeResolver(AbstractResolver):
    """Resolves each name to its lists of addresses in turn, then always to the last one."""

    def __init__(self, names: dict[str, list[list[str]]], *, wait: Callable[[], Any] | None = None) -> None:
        self._names = names
        self._wait = wait
        self.queries: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.queries.append(host)
        if self._wait is not None:
            await self._wait()
        answers = self._names.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [_resolved(host, address, port) for address in found]

    async def close(self) -> None:
        """Do nothing."""


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
