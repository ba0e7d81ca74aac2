"""The overview, recent outcomes, the load forecast and trends of results."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.operations.harness import NOON, OperationsHarness
from timewright.core.moments import format_instant
from timewright.testing.targets import fail, hang, succeed


@pytest.fixture
def harness() -> OperationsHarness:
    """An empty harness at noon."""
    return OperationsHarness()


def test_the_overview_shows_active_upcoming_and_failed_runs(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="slow", every="10m", call="slow")
    harness.ask("schedule create", name="broken", every="20m", call="broken", max_attempts=1)
    harness.bench.target.script("slow", hang())
    harness.bench.target.script("broken", fail("no luck"))
    harness.bench.advance(minutes=20)
    seen = harness.ask("now")
    assert [run["schedule"] for run in seen["running"]] == ["slow"]
    assert [(run["schedule"], run["error"]) for run in seen["failed"]] == [("broken", "no luck")]
    assert [row["name"] for row in seen["coming"]] == ["slow", "broken"]
    assert (seen["numbers"]["running"], seen["numbers"]["failed"], seen["numbers"]["due"]) == (1, 1, 2)


def test_the_bins_of_the_overview_add_up_to_all_runs(
    harness: OperationsHarness,
) -> None:
    harness.ask("schedule create", name="often", every="1m", call="often", max_attempts=1)
    harness.bench.target.script("often", *[succeed() for _ in range(20)], fail("once"), succeed())
    harness.bench.advance(minutes=58, seconds=30)
    seen = harness.ask("now")
    sums: dict[str, int] = {}
    for piece in seen["behind"]:
        for state, count in piece["outcomes"].items():
            sums[state] = sums.get(state, 0) + count
    assert len(seen["behind"]) == 60
    assert sums == {"succeeded": 57, "failed": 1}
    assert seen["more"] is False


def test_a_retry_is_part_of_the_duration_and_not_of_the_start_delay(harness: OperationsHarness) -> None:
    retry = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "5m"}}
    harness.ask("schedule create", name="flaky", every="30m", call="flaky", retry=retry)
    harness.bench.target.script("flaky", fail("once"), succeed())
    harness.bench.advance(minutes=40)
    (run,) = harness.ask("run list", schedule="flaky", state="succeeded")["runs"]
    assert run["first_started_at"] == run["planned_at"]
    assert harness.ask("run get", run=run["id"])["run"]["first_started_at"] == run["planned_at"]
    (recent,) = harness.ask("schedule outcomes", schedules=["flaky"])["outcomes"]
    assert (recent["delay"]["longest"], recent["duration"]["longest"]) == ("0s", "5m")
    window = harness.ask("schedule health", schedule="flaky")["windows"]["1h"]
    assert (window["delay"]["longest"], window["duration"]["longest"]) == ("0s", "5m")
    assert harness.ask("now")["delay"]["longest"] == "0s"


def test_a_cut_overview_reports_more(harness: OperationsHarness) -> None:
    harness.ask("queue add", queue="long", payloads=list(range(1000)))
    harness.ask("queue add", queue="long", payload="one more")
    assert harness.ask("now")["more"] is True


@pytest.mark.parametrize("asked", ["0s", "400d"])
def test_the_overview_spans_a_minute_to_a_week(harness: OperationsHarness, asked: str) -> None:
    seen = harness.ask("now", back=asked)
    width = NOON - datetime.fromisoformat(seen["behind"][0]["at"])
    assert timedelta(minutes=1) <= width <= timedelta(days=7)


def test_recent_outcomes_show_runs_and_skips_oldest_first(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="busy", every="10m", call="busy", overlap="skip", time_limit="1h")
    harness.ask("schedule create", name="idle", every="1d", call="idle")
    harness.bench.target.script("busy", succeed(after=timedelta(minutes=15)), succeed())
    harness.bench.advance(hours=1)
    busy, idle = harness.ask("schedule outcomes", schedules=["busy", "idle"])["outcomes"]
    assert [mark["state"] for mark in busy["marks"]][:3] == ["succeeded", "skipped", "succeeded"]
    assert [mark["planned_at"] for mark in busy["marks"]] == sorted(m["planned_at"] for m in busy["marks"])
    assert busy["duration"]["longest"] == "15m"
    assert (idle["marks"], idle["duration"]["median"]) == ([], None)
    few = harness.ask("schedule outcomes", schedules=["busy"], each=2)["outcomes"][0]["marks"]
    assert few == busy["marks"][-2:]


def test_the_forecast_counts_planned_starts(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="minutely", every="1m", note="tick")
    harness.ask("schedule create", name="daily", cron="30 15 * * *", note="tea")
    harness.ask("schedule create", name="stopped", every="1m", note="no")
    harness.ask("schedule pause", schedule="stopped")
    load = harness.ask("forecast", days=2)
    hours = {hour["at"]: hour for hour in load["hours"]}
    assert len(hours) == 48
    full = hours[format_instant(NOON + timedelta(hours=1))]
    assert full["starts"] == 60
    tea = hours[format_instant(NOON + timedelta(hours=3))]
    assert tea["starts"] == 61
    assert {share["schedule"] for share in tea["busiest"]} == {"minutely", "daily"}
    assert load["more"] is False


def test_the_forecast_names_budgets_that_are_not_enough(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="crm", unit="requests", limit=30, period="15m")
    harness.ask("budget set", budget="tokens", unit="tokens", limit=3000)
    harness.ask("budget set", budget="enough", unit="requests", limit=5000)
    every = {"every": "1m", "note": "x", "estimate": {"tokens": 10}}
    harness.ask("schedule create", name="calm", budgets=["crm", "enough"], **every)
    harness.ask("schedule create", name="thirsty", budgets=["tokens"], **every)
    assert harness.ask("forecast", days=1)["shortfalls"] == [
        {
            "budget": "tokens",
            "since": "2026-03-10T00:00:00Z",
            "until": "2026-03-11T00:00:00Z",
            "limit": "3000 tokens",
            "expected": "7200 tokens",
            "schedules": ["thirsty"],
        }
    ]
    harness.ask("schedule create", name="eager", every="20s", note="y", budgets=["crm"])
    crm, _ = harness.ask("forecast", days=1)["shortfalls"]
    assert (crm["budget"], crm["limit"], crm["expected"]) == ("crm", "120 requests", "240 requests")
    assert crm["schedules"] == ["eager", "calm"]


def test_the_forecast_counts_the_median_duration_of_runs(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="heavy", every="2h", call="heavy")
    harness.bench.target.script("heavy", succeed(after=timedelta(minutes=4)))
    harness.bench.advance(hours=6, minutes=10)
    load = harness.ask("forecast", days=1)
    busy = [hour["seconds"] for hour in load["hours"] if hour["starts"]]
    assert busy
    assert set(busy) == {240.0}


def test_a_herd_is_reported_with_commands_that_spread_it(harness: OperationsHarness) -> None:
    for name in ("one", "two", "three"):
        harness.ask("schedule create", name=name, cron="0 15 * * *", note="hello")
    harness.ask("schedule create", name="alone", cron="7 15 * * *", note="hello")
    harness.ask("schedule create", name="spread", cron="0 15 * * *", note="hello", jitter="5m")
    (herd,) = harness.ask("forecast", days=1)["herds"]
    assert herd["at"] == "2026-03-10T15:00:00Z"
    assert herd["schedules"] == ["one", "three", "two"]
    assert herd["spread"] == "10m"
    assert herd["commands"][0] == "timewright schedule update one --jitter 10m --offset stable"
    for name in herd["schedules"]:
        harness.ask("schedule update", schedule=name, jitter="10m", offset="stable")
    assert harness.ask("forecast", days=1)["herds"] == []
    starts = [
        harness.ask("schedule next", schedule=name, count=1)["next"][0]["fire_at"][:16]
        for name in herd["schedules"]
    ]
    assert max(starts.count(minute) for minute in starts) == herd["after"]


def test_a_frequent_herd_is_spread_within_a_fifth_of_its_interval(harness: OperationsHarness) -> None:
    for number in range(8):
        harness.ask("schedule create", name=f"often-{number}", cron="*/10 * * * *", note="hello")
    harness.ask("schedule create", name="seldom", cron="0 15 * * *", note="hello")
    (herd,) = harness.ask("forecast", days=1)["herds"]
    moves = {command.split()[3]: command.split()[5] for command in herd["commands"]}
    assert moves == {**{f"often-{number}": "2m" for number in range(8)}, "seldom": "10m"}
    assert herd["after"] < 9


def test_an_occasional_herd_is_reported_once(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="quarterly", every="15m", anchor="2026-03-10T12:00:00Z", note="x")
    harness.ask("schedule create", name="hourly", cron="0 * * * *", note="x")
    harness.ask("schedule create", name="daily", cron="0 20 * * *", note="x")
    harness.ask("schedule create", name="ceaseless", every="1m", anchor="2026-03-10T12:00:00Z", note="x")
    (herd,) = harness.ask("forecast", days=1)["herds"]
    assert herd["at"] == "2026-03-10T20:00:00Z"
    assert sorted(herd["schedules"]) == ["daily", "hourly", "quarterly"]


def test_numbers_in_results_are_shown_over_time(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="poll", every="10m", call="poll")
    results = [{"rows": n, "ok": True, "deep": {"queue": {"depth": n * 2}}, "text": "3"} for n in (1, 2, 3)]
    harness.bench.target.script("poll", *map(succeed, results))
    harness.bench.advance(minutes=30)
    series = {
        one["field"]: one["points"] for one in harness.ask("schedule trends", schedule="poll")["series"]
    }
    assert sorted(series) == ["deep.queue.depth", "rows"]
    assert [point["value"] for point in series["rows"]] == [1.0, 2.0, 3.0]
    assert [point["state"] for point in series["deep.queue.depth"]] == ["succeeded"] * 3
    few = harness.ask("schedule trends", schedule="poll", each=1)["series"]
    assert [point["value"] for point in few[1]["points"]] == [3.0]


@pytest.mark.parametrize(
    "result", [None, "text", [1, 2], {"a": {"b": {"c": {"d": 1}}}}, {"nan": 1e300}, True]
)
def test_a_result_without_numbers_has_no_trend(harness: OperationsHarness, result: object) -> None:
    harness.ask("schedule create", name="poll", every="10m", call="poll")
    harness.bench.target.script("poll", succeed(result))
    harness.bench.advance(minutes=20)
    assert harness.ask("schedule trends", schedule="poll")["series"] == []
