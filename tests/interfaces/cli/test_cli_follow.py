"""`run list --follow`."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.moments import SECOND
from timewright.interfaces.cli.output.follow import (
    MAX_WATCHED_RUNS,
    PAGE_ROWS,
    RunFollower,
    followed_run_line,
)
from timewright.interfaces.cli.output.table import Screen, display_width
from timewright.interfaces.cli.output.times import local_zone
from timewright.testing.targets import fail, succeed


@pytest.fixture
def followed(harness: OperationsHarness) -> RunFollower:
    harness.ask("schedule create", name="hello", every="5s", note="hello", max_attempts=3)
    return RunFollower(harness.context, {"schedule": "hello"})


def states(rows: list[Any]) -> list[tuple[str, int]]:
    return [(row["state"], row["attempts"]) for row in rows]


def test_each_ended_run_is_printed_once_oldest_first(
    harness: OperationsHarness, followed: RunFollower
) -> None:
    assert followed.poll() == []
    harness.advance(seconds=11)
    told = followed.poll()
    assert [row["planned_at"] for row in told] == ["2026-03-10T12:00:05Z", "2026-03-10T12:00:10Z"]
    assert followed.poll() == []
    harness.advance(seconds=5)
    assert len(followed.poll()) == 1


def test_the_first_poll_prints_only_the_latest_runs(
    harness: OperationsHarness, followed: RunFollower
) -> None:
    harness.advance(seconds=100)
    assert len(followed.poll()) == 10
    assert len(RunFollower(harness.context, {"schedule": "hello", "limit": 3}).poll()) == 3


def test_a_retry_is_printed_before_the_run_ends(harness: OperationsHarness, followed: RunFollower) -> None:
    harness.bench.target.script("hello", fail("no route"), succeed())
    followed.poll()
    harness.advance(seconds=5)
    assert states(followed.poll()) == [("ready", 1)]
    harness.advance(seconds=2)
    assert states(followed.poll()) == [("succeeded", 1)]


def test_a_run_that_left_the_first_page_is_still_printed(
    harness: OperationsHarness,
) -> None:
    harness.ask("schedule create", name="long", every="1h", anchor="2026-03-10T12:00:01Z", note="x")
    harness.bench.target.script("long", succeed(after=290 * SECOND))
    harness.advance(seconds=2)
    everything = RunFollower(harness.context, {})
    everything.poll()
    harness.ask("queue add", queue="other", payloads=list(range(PAGE_ROWS + 10)))
    assert all(row["schedule"] != "long" for row in everything.poll())
    harness.advance(seconds=300)
    assert [row["state"] for row in everything.poll() if row["schedule"] == "long"] == ["succeeded"]


def test_the_number_of_watched_runs_is_limited(harness: OperationsHarness, followed: RunFollower) -> None:
    harness.ask("queue add", queue="other", payloads=list(range(PAGE_ROWS)))
    everything = RunFollower(harness.context, {})
    everything.poll()
    assert len(everything._in_progress) == MAX_WATCHED_RUNS


def test_a_line_shows_time_state_and_delay(harness: OperationsHarness, followed: RunFollower) -> None:
    harness.bench.target.script("hello", succeed(after=1.5 * SECOND))
    harness.advance(seconds=7)
    (row,) = followed.poll()
    screen = Screen(now=harness.now, zone=ZoneInfo("Europe/Berlin"))
    late = {**row, "started_at": "2026-03-10T12:00:05.003Z"}
    line = followed_run_line(late, screen)
    assert line.startswith("13:00:05  ✔ succeeded  attempt 1  ")
    assert " ".join(line.split()).endswith("✔ succeeded attempt 1 1.5 s start delay 3 ms hello")


def test_a_line_fits_the_terminal_width(harness: OperationsHarness, followed: RunFollower) -> None:
    harness.bench.target.script("hello", fail("x" * 300))
    harness.advance(seconds=15)
    for row in followed.poll():
        line = followed_run_line(row, Screen(now=harness.now, zone=local_zone(harness.now), width=80))
        assert display_width(line) <= 80
        assert line.endswith("…")


def test_a_skipped_run_shows_its_reason(harness: OperationsHarness, followed: RunFollower) -> None:
    harness.bench.target.script("hello", succeed(after=8 * SECOND))
    harness.advance(seconds=11)
    rows = [row for row in followed.poll() if row["state"] == "skipped"]
    line = followed_run_line(rows[0], Screen(now=harness.now, zone=local_zone(harness.now)))
    assert line.endswith("· skipped    hello: overlap")
