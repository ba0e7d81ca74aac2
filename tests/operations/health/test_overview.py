"""The overview: counts, failures by cause, grid, search, recent outcomes, load forecast and trends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.support.builders import make_run
from tests.operations.harness import NOON, OperationsHarness
from timewright.core.moments import format_instant
from timewright.errors import InvalidInput
from timewright.ledger.records.run_counts import count_runs
from timewright.operations.health import load_forecast
from timewright.operations.runs.failures import cause_of
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


def test_run_counts_add_up_to_all_runs_of_an_hour(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="often", every="1m", call="often", max_attempts=1)
    harness.bench.target.script("often", *[succeed() for _ in range(20)], fail("once"), succeed())
    harness.bench.advance(minutes=58, seconds=30)
    assert harness.ask("run counts")["counted_until"] is None
    count_runs(harness.store, now=harness.now)
    seen = harness.ask("run counts", period="1h")
    assert (seen["step"], seen["counted_until"]) == ("1m", "2026-03-10T12:58:00Z")
    assert len(seen["bins"]) == 57
    assert (seen["total"]["succeeded"], seen["total"]["failed"], seen["total"]["started"]) == (56, 1, 57)
    assert [one["at"] for one in seen["bins"] if one.get("failed")] == ["2026-03-10T12:21:00Z"]
    assert {one["p95"] for one in seen["bins"]} == {"0s"}
    day = harness.ask("run counts")
    assert (day["step"], len(day["bins"])) == ("5m", 12)
    assert harness.ask("run counts", period="7d")["total"]["started"] == 57


def test_start_delays_of_the_counts_are_percentiles(harness: OperationsHarness) -> None:
    entries = range(20)
    harness.ask("queue add", queue="mail", payloads=list(entries))
    for number in entries:
        harness.bench.clock.advance(seconds=10 if number == 19 else 0)
        (lease,) = harness.ask("queue lease", queue="mail", limit=1)["leases"]
        harness.ask("queue complete", lease=lease["lease"])
    harness.bench.clock.advance(minutes=1)
    count_runs(harness.store, now=harness.now)
    (one,) = harness.ask("run counts", period="10m")["bins"]
    assert (one["started"], one["succeeded"]) == (20, 20)
    assert (one["median"], one["p95"], one["longest"]) == ("0.005s", "0.005s", "10s")


@pytest.mark.parametrize(
    ("field", "value"),
    [("period", "30s"), ("period", "8d"), ("step", "90s"), ("step", "1s"), ("until", "1969-01-01T00:00:00Z")],
)
def test_a_period_that_was_never_counted_is_refused(
    harness: OperationsHarness, field: str, value: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        harness.ask("run counts", {field: value})
    assert refused.value.field == field


def test_failures_are_grouped_by_schedule_and_message(harness: OperationsHarness) -> None:
    for name in ("load", "mail"):
        harness.ask("schedule create", name=name, every="10m", call=name, max_attempts=1)
    harness.bench.target.script("load", *[fail(f"ValueError: row {n} of 0x{n:x}f is bad") for n in range(9)])
    harness.bench.target.script("mail", fail("no route"), *[succeed() for _ in range(9)])
    harness.bench.advance(minutes=60)
    found = harness.ask("run failures")
    assert [(one["schedule"], one["cause"], one["count"]) for one in found["causes"]] == [
        ("load", "ValueError: row # of # is bad", 6),
        ("mail", "no route", 1),
    ]
    first = found["causes"][0]
    assert (first["since"], first["last_at"]) == ("2026-03-10T12:10:00Z", "2026-03-10T13:00:00Z")
    assert first["error"] == "ValueError: row 5 of 0x5f is bad"
    assert (found["runs"], found["more"]) == (7, False)
    assert len(harness.ask("run failures", schedule="mail")["causes"]) == 1
    assert harness.ask("run failures", since="2026-03-10T12:55:00Z")["causes"][0]["count"] == 1


def test_the_failures_of_a_cause_are_retried_together(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="load", every="10m", call="load", max_attempts=1, overlap="allow")
    harness.bench.target.script("load", *[fail(f"row {n}") for n in range(3)], fail("full"), succeed())
    harness.bench.advance(minutes=40)
    with pytest.raises(InvalidInput, match="a cause, a schedule or a queue is missing"):
        harness.ask("run retry-failures")
    seen = harness.ask("run retry-failures", schedule="load", cause="row #", dry_run=True)
    assert (seen["retried"], seen["refused"], seen["more"]) == (3, {}, False)
    assert len(harness.ask("run failures")["causes"]) == 2
    harness.ask("run retry-failures", schedule="load", cause="row #")
    assert [one["cause"] for one in harness.ask("run failures")["causes"]] == ["full"]
    assert len(harness.ask("run list", state="ready")["runs"]) == 3


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("timeout after 30.25 s\nTraceback", "timeout after # s"),
        ("no run run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "no run #"),
        ("key 6f1c2a9b-0c1d-4e2f-8a3b-5c6d7e8f9a0b at 2026-03-10T12:00:00Z", "key # at #"),
        ("commit deadbeef01 is bad", "commit # is bad"),
        ("defaced facade", "defaced facade"),
        ("503 Service Unavailable after 3 tries", "503 Service Unavailable after # tries"),
        ("HTTP/1.1 404: no row 77", "HTTP/1.1 404: no row #"),
        ("worker exited with code -9 after 12 s", "worker exited with code -9 after # s"),
        ("", "exhausted"),
    ],
)
def test_a_cause_leaves_out_what_differs_each_time(error: str, cause: str) -> None:
    run = make_run(error=error, reason="exhausted")
    assert cause_of(run) == cause


def test_the_grid_has_failing_schedules_first_and_one_cell_for_each_run(harness: OperationsHarness) -> None:
    for name in ("a-good", "b-bad", "c-good"):
        harness.ask("schedule create", name=name, every="10m", call=name, max_attempts=1)
    harness.bench.target.script("b-bad", fail("no"))
    harness.bench.advance(hours=1)
    grid = harness.ask("schedule grid", period="1h")
    assert [row["schedule"] for row in grid["rows"]] == ["b-bad", "a-good", "c-good"]
    assert (grid["slot"], grid["total"]) == ("1m", 3)
    assert [cell["slot"] for cell in grid["rows"][1]["cells"]] == [9, 19, 29, 39, 49, 59]
    assert {cell["state"] for cell in grid["rows"][0]["cells"]} == {"failed"}
    day = harness.ask("schedule grid", limit=1, offset=1)
    assert [row["schedule"] for row in day["rows"]] == ["a-good"]
    week = harness.ask("schedule grid", period="7d", limit=1)["rows"][0]["cells"]
    assert [(cell["count"], cell["others"]) for cell in week] == [(6, {"failed": 6})]


def test_search_finds_parts_of_names_tags_errors_and_ids(harness: OperationsHarness) -> None:
    harness.ask(
        "schedule create", name="nightly-report", every="10m", call="nightly-report", tags=["Finance"]
    )
    harness.ask("schedule create", name="100%_done", every="1h", note="x")
    harness.ask("queue add", queue="report-mail", payload=1)
    harness.bench.target.script("nightly-report", fail("the disk is FULL"))
    harness.bench.advance(minutes=10)

    def found(text: str) -> list[tuple[str, str]]:
        return [(one["kind"], one["name"]) for one in harness.ask("search", text=text)["found"]]

    assert found("REPORT") == [("schedule", "nightly-report"), ("queue", "report-mail")]
    assert found("finan") == [("schedule", "nightly-report")]
    assert found("is full") == [("run", "nightly-report")]
    assert found("0%_d") == [("schedule", "100%_done")]
    assert found("%") == [("schedule", "100%_done")]
    (run,) = harness.ask("run list", schedule="nightly-report")["runs"]
    assert found(run["id"]) == found(run["id"][-6:]) == [("run", "nightly-report")]
    assert found("nothing has this") == found("  ") == []


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
    count_runs(harness.store, now=harness.now)
    assert harness.ask("run counts")["total"]["longest"] == "0s"


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


def test_the_forecast_counts_every_schedule_or_says_how_many(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_forecast, "PAGE_SCHEDULES", 4)
    for number in range(10):
        harness.ask("schedule create", name=f"hourly-{number}", cron="0 * * * *", note="x")
        harness.ask("schedule create", name=f"spread-{number}", cron="0 * * * *", note="x", jitter="5m")
    load = harness.ask("forecast", days=1)
    assert (load["schedules"], load["total"], load["more"]) == (20, 20, False)
    assert sum(hour["starts"] for hour in load["hours"]) == 20 * 23
    monkeypatch.setattr(load_forecast, "MAX_RUNS", 100)
    load = harness.ask("forecast", days=1)
    # The ten equal triggers are computed once.
    assert (load["schedules"], load["total"], load["more"]) == (14, 20, True)
    assert sum(hour["starts"] for hour in load["hours"]) == 14 * 23
    monkeypatch.setattr(load_forecast, "MAX_SCHEDULES", 8)
    assert harness.ask("forecast", days=1)["more"] is True


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


def test_schedules_are_listed_in_an_order_with_their_number(harness: OperationsHarness) -> None:
    for name, every in (("b-slow", "3h"), ("a-late", "2h"), ("c-soon", "10m")):
        harness.ask("schedule create", name=name, every=every, call=name, max_attempts=1)
    harness.bench.target.script("c-soon", fail("no"))
    harness.bench.advance(minutes=15)

    def names(**how: object) -> list[str]:
        return [row["name"] for row in harness.ask("schedule list", **how)["schedules"]]

    assert names() == ["a-late", "b-slow", "c-soon"]
    assert names(order="next") == ["c-soon", "a-late", "b-slow"]
    assert names(order="failing") == ["c-soon", "a-late", "b-slow"]
    assert names(order="last")[0] == names(order="runs")[0] == "c-soon"
    assert names(name_contains="LATE") == ["a-late"]
    assert names(name_contains="%") == []
    page = harness.ask("schedule list", order="next", limit=2, count=True)
    assert page["total"] == 3
    rest = harness.ask("schedule list", order="next", limit=2, count=True, cursor=page["cursor"])
    assert [row["name"] for row in rest["schedules"]] == ["b-slow"]
    assert rest["cursor"] == ""
    harness.ask("schedule archive", schedule="b-slow")
    assert names(order="next") == ["c-soon", "a-late"]
    assert harness.ask("schedule list", count=True)["total"] == 2
