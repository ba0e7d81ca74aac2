"""Numbers in the results of a schedule's runs, over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.run.run import Attempt
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import ObjectName, OperationRequest, operations
from timewright.ports import Transaction

MAX_FIELDS = 12
MAX_DEPTH = 3
MAX_VALUE = 1e15


class GetTrends(OperationRequest, frozen=True, kw_only=True):
    """Which schedule, and how many of its newest occurrences."""

    schedule: ObjectName
    each: Annotated[int, Meta(ge=1, le=200)] = 48


class TrendPoint(Struct, frozen=True, kw_only=True):
    """One number of one result."""

    run: str
    at: datetime
    state: str
    value: float


class TrendSeries(Struct, frozen=True, kw_only=True):
    """One number of the results over time, oldest first; `field` is its path in the result."""

    field: str
    points: tuple[TrendPoint, ...]


class Trends(Struct, frozen=True, kw_only=True):
    """The numbers in the results of a schedule, the most frequent field first."""

    schedule: str
    series: tuple[TrendSeries, ...]


@operations.add("schedule", "trends", GetTrends, scope="read", examples=({"schedule": "nightly-report"},))
def schedule_trends(context: OperationContext, request: GetTrends) -> Trends:
    """Show each number in the results of a schedule's newest runs over time."""

    def work(tx: Transaction) -> Trends:
        schedule = find_schedule(tx, context.namespace, request.schedule).schedule
        marks = tx.recent_runs([schedule.id], limit_each=request.each).get(schedule.id, ())
        attempts = tx.get_attempts([mark.run for mark in marks])
        found: dict[str, list[TrendPoint]] = {}
        for mark in marks:
            for field, value in _numbers(_last_result(attempts.get(mark.run, ()))):
                point = TrendPoint(run=mark.run, at=mark.planned_at, state=mark.state, value=value)
                found.setdefault(field, []).append(point)
        by_frequency = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))[:MAX_FIELDS]
        series = tuple(TrendSeries(field=field, points=tuple(points)) for field, points in by_frequency)
        return Trends(schedule=schedule.name, series=series)

    return context.store.read(work)


def _last_result(attempts: tuple[Attempt, ...]) -> Any:
    """Return the result of the last attempt that has one."""
    return next((one.result for one in reversed(attempts) if one.result is not None), None)


def _numbers(value: Any, *, path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Yield every number in a result with its path, up to three levels deep; booleans do not count."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if isfinite(value) and abs(value) <= MAX_VALUE:
            yield path or "result", float(value)
    elif isinstance(value, Mapping) and depth < MAX_DEPTH:
        for name, inner in list(value.items())[:100]:
            yield from _numbers(inner, path=f"{path}.{name}" if path else str(name)[:100], depth=depth + 1)
