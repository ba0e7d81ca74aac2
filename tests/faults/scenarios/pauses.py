"""A pause of everything while many instances lease: it answers, and leasing stops within a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import psycopg
from msgspec.structs import replace

from tests.faults.scenario import FaultEnvironment, FaultScenario
from tests.faults.tools.worker_fleet import WorkerFleet, expect, wait_until
from timewright.core.moments import SECOND, from_micros
from timewright.core.recurrence.triggers import Once
from timewright.ids import TimedIds
from timewright.ledger.replan import Actor, create

BATCH = 1000
# How long leases are looked for after the pause was acknowledged.
WATCHED = 4 * SECOND
_LAST_LEASE = """
SELECT max(leased_at) FROM (
    SELECT leased_at FROM attempts UNION ALL SELECT leased_at FROM runs WHERE state = 'leased'
) leases
"""


def pause_under_load(environment: FaultEnvironment, *, due: int, instances: int) -> str:
    """Pause everything in the middle of a burst; nothing is leased later than a second after the answer."""
    with environment.database() as url, environment.fleet(url) as fleet:
        fleet.start(instances)
        _create_due(fleet, due)
        wait_until(lambda: fleet.journal_lines("began"), "the first run")
        listed_s = _seconds(lambda: fleet.app.call("schedule list", limit=100))
        paused_s = _seconds(lambda: fleet.app.call("pause", reason="too much at once"))
        store = fleet.app.instance.store
        acknowledged = store.now()
        expect(len(fleet.journal_lines("began")) < due, "the pause to come before the last run")
        wait_until(lambda: store.now() > acknowledged + WATCHED, "leases after the pause")
        with psycopg.connect(url) as connection:
            (last,) = connection.execute(_LAST_LEASE).fetchone() or (0,)
        after = from_micros(last) - acknowledged
        expect(after <= SECOND, f"no lease later than a second after the pause, but {after}")
        before = len(fleet.journal_lines("began"))
        expect(before < due, "runs that wait")
        fleet.app.call("resume")
        wait_until(lambda: len(fleet.journal_lines("began")) > before, "runs after the resume")
        fleet.stop()
        return (
            f"{instances} instances, {due} due, {before} started before the pause; list {listed_s:.2f} s,"
            f" pause {paused_s:.2f} s, last lease {after.total_seconds():+.3f} s after its answer"
        )


def _create_due(fleet: WorkerFleet, count: int) -> None:
    """Create schedules that are all due at one instant."""
    fleet.schedule("template", "note_slowly", lease="60s")
    store, ids = fleet.app.instance.store, TimedIds()
    template = fleet.app.schedules.get(schedule="template").schedule
    now = store.now()
    once = Once(at=now + timedelta(seconds=2 + count // 2000))
    made = [
        replace(template, id=ids.new("schedule", now=now), name=f"due{number}", trigger=once)
        for number in range(count)
    ]
    for first in range(0, count, BATCH):
        create(store, made[first : first + BATCH], by=Actor(), now=store.now())


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


SCENARIOS = (
    FaultScenario(
        name="pause-under-load",
        row="P1",
        action="everything is paused while eight instances on PostgreSQL lease 10,000 due runs",
        expected="listing and pausing answer; nothing is leased later than a second after the answer",
        run=partial(pause_under_load, due=10_000, instances=8),
    ),
    FaultScenario(
        name="pause-under-load-small",
        row="P1",
        action="the same with two instances and 600 due runs",
        expected="the same",
        run=partial(pause_under_load, due=600, instances=2),
        quick=True,
    ),
)
