"""A flash sale by a simulated clock: a ramp, a critical hour, twelve minutes of 503, and the recovery."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Struct

from timewright.operations import OperationContext
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.planner.planner_loop import DEFAULT_INTERVAL, Planner
from timewright.testing.bench import Bench
from timewright.wiring import new_registry

MINUTE = timedelta(minutes=1)
BEGAN = datetime(2026, 3, 10, 9, tzinfo=UTC)
# The minute and the depth of the order queue there; in between it moves evenly.
DEPTHS = ((0, 20), (60, 20), (100, 600), (142, 640), (170, 30), (480, 20))
CRITICAL = 500
OUTAGE_FROM, OUTAGE_TO = BEGAN + 130.4 * MINUTE, BEGAN + 142.4 * MINUTE
END = BEGAN + 480 * MINUTE

CASES = [(every, maximum) for every in (1, 5, 15) for maximum in (None, 2 * every)]


class Sale(Struct, frozen=True):
    """When the schedule looked, and when it first saw what."""

    looks: tuple[datetime, ...]

    @property
    def critical_gap(self) -> timedelta:
        """The longest time without a look in the half hour of a critical queue before the outage."""
        watched = [at for at in self.looks if OUTAGE_FROM - 30 * MINUTE <= at < OUTAGE_FROM]
        return max((b - a for a, b in pairwise(watched)), default=END - BEGAN)


class Shop:
    """An app whose function answers with the depth of its queue, or fails during the outage."""

    def __init__(self, bench: Bench, every: int, maximum: int | None) -> None:
        self.registry = new_registry()
        self.registry.register("orders.depth")(lambda: _answer(bench.now))
        clamp = {} if maximum is None else {"clamp": {"max": f"{maximum}m"}}
        schedule: dict[str, Any] = {
            "name": "orders",
            "every": f"{every}m",
            "call": "orders.depth",
            "preset": "adaptive",
            **clamp,
        }
        self.declared = (schedule,)


def _answer(now: datetime) -> dict[str, Any]:
    if OUTAGE_FROM <= now < OUTAGE_TO:
        raise RuntimeError("503 Service Unavailable")
    minute = (now - BEGAN) / MINUTE
    for (left, low), (right, high) in pairwise(DEPTHS):
        if minute <= right:
            depth = low + (high - low) * (minute - left) / (right - left)
            return {"queue_depth": round(depth), "warning_threshold": 300, "critical_threshold": CRITICAL}
    return {"queue_depth": 20, "warning_threshold": 300, "critical_threshold": CRITICAL}


@cache
def live(every: int, maximum: int | None, *, passes_from: timedelta | None) -> Sale:
    """Live through the sale with a planner that looks every five minutes from then on, or without one."""
    bench = Bench(start=BEGAN)
    bench.adopt(Shop(bench, every, maximum))
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    planner = Planner(context, HeuristicAdvisor(), clock=bench.clock)
    if passes_from:
        bench.advance(passes_from)
    while bench.now < END:
        bench.advance(DEFAULT_INTERVAL)
        if passes_from is not None:
            planner.run_once()
    return Sale(tuple(run.started_at for run in bench.runs("orders") if run.started_at is not None))


@pytest.mark.parametrize("passes_from", [timedelta(0), timedelta(seconds=137)])
@pytest.mark.parametrize(("every", "maximum"), CASES)
def test_the_planner_sees_the_sale_sooner_and_the_end_of_any_outage_never_later(
    every: int, maximum: int | None, passes_from: timedelta
) -> None:
    alone = live(every, maximum, passes_from=None)
    planned = live(every, maximum, passes_from=passes_from)
    assert planned.critical_gap * 5 <= alone.critical_gap
    assert len(planned.looks) <= 2 * len(alone.looks)
    # The look after an end was planned before it, so one outage stands for every shorter one.
    ends = [OUTAGE_FROM + timedelta(seconds=n) for n in range(12 * 60 + 1)]
    delays = [(_seen_after(alone, end), _seen_after(planned, end)) for end in ends]
    assert [pair for pair in delays if pair[1] > pair[0]] == []
    assert sum(late for _, late in delays) < sum(late for late, _ in delays)
    assert set(alone.looks) <= set(planned.looks)


@pytest.mark.parametrize("every", [5, 15])
def test_a_critical_phase_of_an_hour_and_a_half_does_not_double_the_runs(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths = ((0, 20), (103, 20), (145, 600), (196.4, 640), (224.4, 30), (480, 20))
    monkeypatch.setitem(globals(), "DEPTHS", depths)
    monkeypatch.setitem(globals(), "OUTAGE_FROM", BEGAN + 184.4 * MINUTE)
    monkeypatch.setitem(globals(), "OUTAGE_TO", BEGAN + 196.4 * MINUTE)
    live_uncached = live.__wrapped__
    alone = live_uncached(every, 2 * every, passes_from=None)
    planned = live_uncached(every, 2 * every, passes_from=timedelta(seconds=137))
    assert len(planned.looks) <= 2 * len(alone.looks)
    assert planned.critical_gap * 5 <= alone.critical_gap


def _seen_after(sale: Sale, end: datetime) -> float:
    return (next(at for at in sale.looks if at >= end) - end) / MINUTE
