"""Lint: what will go wrong in a fleet, and how to avoid it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.recurrence.clock_changes import ClockChange, clock_changes, describe_effect
from timewright.core.recurrence.triggers import Cron
from timewright.testing.bench import Bench

MARCH = datetime(2026, 3, 10, 12, tzinfo=UTC)
FORWARD = ClockChange(zone="Europe/Berlin", at=datetime(2026, 3, 29, 1, tzinfo=UTC), by=timedelta(hours=1))
BACK = ClockChange(zone="Europe/Berlin", at=datetime(2026, 10, 25, 1, tzinfo=UTC), by=timedelta(hours=-1))


def sentences(bench: Bench, kind: str, **request: object) -> list[str]:
    found = bench.call("lint", **request)["findings"]
    return [one["sentence"] for one in found if one["kind"] == kind]


def test_clock_changes_of_a_zone_are_found_to_the_second() -> None:
    found = list(clock_changes("Europe/Berlin", since=MARCH, until=MARCH + timedelta(days=300)))
    assert found == [FORWARD, BACK]
    assert not list(clock_changes("UTC", since=MARCH, until=MARCH + timedelta(days=300)))


@pytest.mark.parametrize(
    ("expression", "dst", "change", "words"),
    [
        ("30 2 * * *", "vixie", FORWARD, "runs at 03:00 instead"),
        ("30 2 * * *", "match", FORWARD, "does not run"),
        ("30 2 * * *", "vixie", BACK, "runs only once"),
        ("30 2 * * *", "match", BACK, "runs again at the second 02:30"),
        ("30 12 * * *", "vixie", FORWARD, ""),
        ("*/10 * * * *", "vixie", FORWARD, ""),
        ("*/10 * * * *", "vixie", BACK, ""),
        ("30 2 * * 1-5", "vixie", FORWARD, ""),
    ],
)
def test_a_change_touches_a_trigger_where_the_policies_differ(
    expression: str, dst: str, change: ClockChange, words: str
) -> None:
    trigger = Cron(expression, zone="Europe/Berlin", dst=dst)  # type: ignore[arg-type]
    found = describe_effect(change, trigger)
    assert found.startswith(words) if words else not found


def test_lint_names_the_schedules_that_a_clock_change_touches() -> None:
    bench = Bench(start=MARCH)
    bench.schedule("night", "30 2 * * *", zone="Europe/Berlin")
    bench.schedule("noon", "30 12 * * *", zone="Europe/Berlin")
    assert sentences(bench, "clock_change") == [
        "night runs at 03:00 instead: the clocks of Europe/Berlin change on 2026-03-29"
    ]
    assert len(sentences(bench, "clock_change", days=300)) == 2
    assert not sentences(bench, "clock_change", days=7)


def test_lint_proposes_a_spread_for_a_herd() -> None:
    bench = Bench(start=MARCH)
    for number in range(6):
        bench.schedule(f"s{number}", "0 3 * * *")
    answer = bench.call("lint")
    assert any("6 schedules start at" in one["sentence"] for one in answer["findings"])
    assert {one["schedule"]: (one["jitter"], one["offset"]) for one in answer["spread"]} == {
        f"s{number}": ("10m", "stable") for number in range(6)
    }
    for one in answer["spread"]:
        bench.call("schedule update", **one)
    assert not sentences(bench, "herd")


def test_lint_finds_schedules_that_never_run() -> None:
    bench = Bench(start=MARCH)
    bench.call("calendar put", name="always", dates=["2026-01-01"])
    bench.schedule("excluded", "0 3 * * *", calendar="except always")
    bench.call("calendar put", name="always", ranges=[{"first": "2026-01-01", "last": "2199-12-31"}])
    bench.schedule("leap", "0 0 29 2 *")
    bench.schedule("fine", "0 3 * * *")
    found = " ".join(sentences(bench, "never_fires"))
    assert "excluded never runs: always exclude every occurrence" in found
    assert "leap does not run before 2028-02-29" in found
    assert "fine" not in found


def test_lint_names_a_key_that_expires_unless_it_is_replaced() -> None:
    harness = OperationsHarness()
    harness.ask("key create", key="ci one", role="viewer", expires_in="2d")

    def found() -> list[str]:
        return [one["remedy"] for one in harness.ask("lint")["findings"] if one["kind"] == "key_expires"]

    assert found() == ["timewright key rotate 'ci one' --overlap 1d"]
    harness.ask("key rotate", key="ci one", overlap="1d", expires_in="365d")
    assert found() == []


def test_a_fleet_without_problems_has_no_findings() -> None:
    bench = Bench(start=MARCH)
    bench.schedule("fine", "0 12 * * *")
    assert bench.call("lint") == {"severity": "ok", "findings": [], "spread": []}
