"""Schedules that tick every second, and what must be true of them whatever was broken meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from timewright.clocks import SystemClock
from timewright.core.run import occurrence_key
from timewright.errors import StoreError
from timewright.testing.faults.fleet import Fleet, doubled, expect, seconds_between, until

SECOND = timedelta(seconds=1)
UNFINISHED = {"ready", "held", "leased"}


def tick_every_second(fleet: Fleet, count: int = 3, **policies: Any) -> list[str]:
    """So many schedules that are to account for every second; gives back their names."""
    names = [f"tick{number}" for number in range(count)]
    for name in names:
        fleet.schedule(name, "note", **{"every": "1s", "catch_up": "all", **policies})
    return names


def all_begin(fleet: Fleet, names: list[str]) -> None:
    """Wait until each has run once."""
    for name in names:
        fleet.find("began", schedule=name)


def catch_up(fleet: Fleet, names: list[str]) -> None:
    """Wait until everything that is due by now is done, and something later too."""
    now = SystemClock().now()
    until(lambda: all(is_caught_up(fleet, name, now) for name in names), "everybody to catch up")


def is_caught_up(fleet: Fleet, name: str, instant: datetime) -> bool:
    """Whether nothing up to an instant is left to do, and something after it is done; a gap needs two."""
    try:
        rows = fleet.rows(name)
    except StoreError:
        return False
    late = [row for row in rows if datetime.fromisoformat(row["planned_at"]) <= instant]
    on_time = rows[len(late) :]
    is_done = not any(row["state"] in UNFINISHED for row in late)
    return is_done and len(rows) > 1 and any(row["state"] == "succeeded" for row in on_time)


def accepted_once(fleet: Fleet, names: list[str], *, skipped: set[str]) -> None:
    """Every planned instant has one row, every row that succeeded was called for, and no lease twice."""
    lines = fleet.written("began")
    expect(doubled(lines) == [], f"no lease called for twice, not {doubled(lines)}")
    left = [run["id"] for run in fleet.app.runs.list(state="leased")["runs"]]
    expect(left == [], f"no lease left behind, not {left}")
    for name in names:
        rows = fleet.rows(name)
        gaps = seconds_between(rows)
        expect(gaps == {SECOND}, f"an instant of {name} is missing, or is there twice: {gaps}")
        done = {key_of(row) for row in rows if row["state"] == "succeeded"}
        called = {line.key for line in lines if line.schedule == name}
        expect(done == called, f"{name} called for as often as it succeeded, not {len(called)}/{len(done)}")
        reasons = {row["reason"] for row in rows if row["state"] == "skipped"}
        expect(reasons <= skipped, f"{name} skipped for {skipped} at most, not for {reasons}")
        states = {row["state"] for row in rows}
        expect(states <= {"succeeded", "skipped", *UNFINISHED}, f"{name} in these states: {states}")


def key_of(row: dict[str, str]) -> str:
    """What the work of a row is given to tell a repetition by."""
    return occurrence_key(row["schedule_id"], datetime.fromisoformat(row["planned_at"]))
