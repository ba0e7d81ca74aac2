"""Answers for machines that look after us: alive, ready, overdue, numbers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from starlette.responses import Response

from timewright.core.moments import spell_duration
from timewright.doors.http.asked import split_query
from timewright.doors.http.threads import Threads
from timewright.doors.http.visits import Visit
from timewright.doors.http.walls import numbers_within
from timewright.operations import Context, operations
from timewright.operations.access import acting, demand

SLOWEST_TICK = timedelta(seconds=90)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Pulse(Protocol):
    """How the engine beside this door does."""

    errors_in_a_row: int
    last_error: str
    last_tick_at: Any


class Probes:
    """The few paths that are not operations."""

    def __init__(
        self, threads: Threads, *, pulse: Pulse | None = None, metrics: Callable[[], str] | None = None
    ) -> None:
        self._threads = threads
        self._pulse = pulse
        self._metrics = metrics

    async def alive(self, _visit: Visit) -> Response:
        """`/healthz`: this process answers; the one path that asks for no key."""
        return _json({"alive": True})

    async def ready(self, visit: Visit) -> Response:
        """`/readyz`: the store answers, and the engine of this process, if it has one, goes on."""
        health = await self._threads.run(lambda: operations["health"](acting_in(visit), {}))
        trouble = self._trouble(visit)
        said = {"ready": not trouble, "engine": self._pulse is not None, "now": health["now"]}
        return _json({**said, **({"trouble": trouble} if trouble else {})}, status=503 if trouble else 200)

    async def overdue(self, visit: Visit) -> Response:
        """`/overdue`: 503 while something should have begun and has not, also when no engine runs."""
        found = await self._threads.run(lambda: operations["overdue"](acting_in(visit), dict(_asked(visit))))
        return _json(found, status=503 if found["overdue"] else 200)

    async def numbers(self, visit: Visit) -> Response:
        """`/metrics`: what was counted, for Prometheus; of the namespaces that the key opens."""
        caller = acting_in(visit).caller
        demand(caller, "read", of="metrics")
        assert self._metrics is not None
        text = await self._threads.run(self._metrics)
        if caller.namespaces:
            text = numbers_within(text, caller.may_enter)
        return Response(text, headers={"content-type": METRICS_TYPE})

    @property
    def counts(self) -> bool:
        """Whether there is anything to count with."""
        return self._metrics is not None

    def _trouble(self, visit: Visit) -> str:
        pulse = self._pulse
        if pulse is None:
            return ""
        if pulse.errors_in_a_row:
            return str(pulse.last_error)
        since = visit.context.now() - pulse.last_tick_at if pulse.last_tick_at is not None else timedelta(0)
        return f"no tick for {spell_duration(since)}" if since > SLOWEST_TICK else ""


def acting_in(visit: Visit) -> Context:
    """The context of a visit in the namespace that its query or its header names."""
    named = dict(split_query(visit.query)).get("namespace") or visit.headers.get("timewright-namespace")
    return acting(visit.context, visit.context.caller, named)


def _asked(visit: Visit) -> list[tuple[str, str]]:
    return [(name, value) for name, value in split_query(visit.query) if name != "namespace"]


def _json(data: dict[str, Any], *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status_code=status, media_type="application/json")
