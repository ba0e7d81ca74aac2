"""What the results of a schedule's runs hold in numbers, over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.run import Attempt
from timewright.operations.context import Context
from timewright.operations.find import find_schedule
from timewright.operations.registry import Named, Request, operations
from timewright.ports import Transaction

MOST_FIELDS = 12
DEEPEST = 3
LARGEST = 1e15


class Ask(Request, frozen=True, kw_only=True):
    """Whose results, and of how many of its newest occurrences."""

    schedule: Named
    each: Annotated[int, Meta(ge=1, le=200)] = 48


class Point(Struct, frozen=True, kw_only=True):
    """One number of one result."""

    run: str
    at: datetime
    state: str
    value: float


class Series(Struct, frozen=True, kw_only=True):
    """One number of the results over time, oldest first; `field` is where in the result it stands."""

    field: str
    points: tuple[Point, ...]


class Trends(Struct, frozen=True, kw_only=True):
    """The numbers in the results of a schedule, those that are there most often first."""

    schedule: str
    series: tuple[Series, ...]


@operations.add("schedule", "trends", Ask, scope="read", examples=({"schedule": "nightly-report"},))
def schedule_trends(context: Context, ask: Ask) -> Trends:
    """Show the numbers in the results of a schedule's newest runs, each over time."""

    def work(tx: Transaction) -> Trends:
        schedule = find_schedule(tx, context.namespace, ask.schedule).schedule
        marks = tx.newest_marks([schedule.id], each=ask.each).get(schedule.id, ())
        attempts = tx.get_attempts([mark.run for mark in marks])
        found: dict[str, list[Point]] = {}
        for mark in marks:
            for field, value in _numbers(_newest(attempts.get(mark.run, ()))):
                point = Point(run=mark.run, at=mark.planned_at, state=mark.state, value=value)
                found.setdefault(field, []).append(point)
        often = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))[:MOST_FIELDS]
        series = tuple(Series(field=field, points=tuple(points)) for field, points in often)
        return Trends(schedule=schedule.name, series=series)

    return context.store.read(work)


def _newest(attempts: tuple[Attempt, ...]) -> Any:
    """The result of the last attempt that has one."""
    return next((one.result for one in reversed(attempts) if one.result is not None), None)


def _numbers(value: Any, *, path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Every number in a result with the way to it, not too deep; a truth value is no number."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if isfinite(value) and abs(value) <= LARGEST:
            yield path or "result", float(value)
    elif isinstance(value, Mapping) and depth < DEEPEST:
        for name, inner in list(value.items())[:100]:
            yield from _numbers(inner, path=f"{path}.{name}" if path else str(name)[:100], depth=depth + 1)
