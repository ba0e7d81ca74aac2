"""Schedules that run every second, and what must hold for them after any fault."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.faults.tools.worker_fleet import WorkerFleet, duplicate_leases, expect, gaps_between, wait_until
from timewright.clocks import SystemClock
from timewright.core.run.run import occurrence_key
from timewright.errors import StoreError
from timewright.operations.views import RunSummary

SECOND = timedelta(seconds=1)
UNFINISHED = {"ready", "held", "leased"}


def create_tick_schedules(fleet: WorkerFleet, count: int = 3, **policies: Any) -> list[str]:
    """Create schedules that must account for every second; return their names."""
    names = [f"tick{number}" for number in range(count)]
    for name in names:
        fleet.schedule(name, "note", **{"every": "1s", "catch_up": "all", **policies})
    return names


def wait_for_first_runs(fleet: WorkerFleet, names: list[str]) -> None:
    """Wait until each has run once."""
    for name in names:
        fleet.wait_for_line("began", schedule=name)


def wait_for_catch_up(fleet: WorkerFleet, names: list[str]) -> None:
    """Wait until everything due by now is done, and something later too."""
    now = SystemClock().now()
    wait_until(lambda: all(is_caught_up(fleet, name, now) for name in names), "all schedules to catch up")


def is_caught_up(fleet: WorkerFleet, name: str, instant: datetime) -> bool:
    """Whether nothing up to an instant is unfinished, and something after it has succeeded."""
    try:
        rows = fleet.rows(name)
    except StoreError:
        return False
    late = [row for row in rows if row.planned_at <= instant]
    on_time = rows[len(late) :]
    is_done = not any(row.state in UNFINISHED for row in late)
    return is_done and len(rows) > 1 and any(row.state == "succeeded" for row in on_time)


def assert_each_instant_once(fleet: WorkerFleet, names: list[str], *, skipped: set[str]) -> None:
    """Check that every instant has one row, every success has one call, and no lease has two calls."""
    lines = fleet.journal_lines("began")
    expect(duplicate_leases(lines) == [], f"no lease called twice, not {duplicate_leases(lines)}")
    left = [run.id for run in fleet.app.runs.list(state="leased").runs]
    expect(left == [], f"no lease left, not {left}")
    for name in names:
        rows = fleet.rows(name)
        gaps = gaps_between(rows)
        expect(gaps == {SECOND}, f"no instant of {name} missing or repeated: {gaps}")
        done = {run_key(row) for row in rows if row.state == "succeeded"}
        called = {line.key for line in lines if line.schedule == name}
        expect(done == called, f"{name} called as often as it succeeded, not {len(called)}/{len(done)}")
        reasons = {row.reason for row in rows if row.state == "skipped"}
        expect(reasons <= skipped, f"{name} skipped only for {skipped}, not for {reasons}")
        states = {row.state for row in rows}
        expect(states <= {"succeeded", "skipped", *UNFINISHED}, f"{name} in these states: {states}")


def run_key(row: RunSummary) -> str:
    """The idempotency key of a run."""
    return occurrence_key(row.schedule_id, row.planned_at)
