"""Reads what was told about incidents, and lets time pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from timewright.core.facts import IncidentClosed, IncidentOpened, IncidentRepeated
from timewright.core.run.run import Run
from timewright.ports import RunFilter
from timewright.stores.postgres.executor import PostgresExecutor
from timewright.stores.sqlite.executor import SqliteExecutor
from timewright.testing.bench import Bench

INCIDENT_FACTS = (IncidentOpened, IncidentRepeated, IncidentClosed)


def told(*benches: Bench) -> list[tuple[str, str]]:
    """What was told so far, in order: the event and the kind."""
    facts = sorted((one for bench in benches for one in bench.facts), key=lambda one: one.at)
    return [
        (type(one).__name__.removeprefix("Incident").lower(), one.kind)
        for one in facts
        if isinstance(one, INCIDENT_FACTS)
    ]


def incidents(bench: Bench, **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bench.call("incident list", **request)["incidents"]
    return found


def deliveries(bench: Bench, channel: str = "ops") -> list[Run]:
    which = RunFilter(namespace="default", queue=f"channel.{channel}", limit=100)
    return list(reversed(bench.store.read(lambda tx: tx.find(which)).rows))


def pass_minutes(bench: Bench, count: int) -> None:
    """Let minutes pass; hours pass in steps of ten minutes, because a check comes once a step."""
    step = 10 if count > 100 else 1
    for _ in range(count // step):
        bench.advance(minutes=step)


def count_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all statements from now on."""
    names: list[str] = []
    for cls in (PostgresExecutor, SqliteExecutor):
        for method in ("query", "execute_many", "execute_columns"):
            monkeypatch.setattr(cls, method, _counting(getattr(cls, method), names))
    return names


def _counting(method: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    def counted(self: Any, name: str, parameters: Any) -> Any:
        names.append(name)
        return method(self, name, parameters)

    return counted
