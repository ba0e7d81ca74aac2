"""Expectations: not finished in time, longer than usual; they never touch the run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.conformance.support.databases import Database
from tests.ledger.alerts.alert_kit import incidents, pass_minutes, told
from timewright.core.alerts.incidents import AlertRules, CheckIn, Expect
from timewright.core.moments import HOUR, MINUTE
from timewright.core.target import Handoff
from timewright.errors import InvalidInput
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import fail, hang, succeed

LONG = {"length": "12h", "time_limit": "12h"}


@pytest.fixture
def bench(database: Database, clock: ManualClock) -> Bench:
    return Bench(store=database.open(), clock=clock)


@pytest.mark.parametrize(
    ("planned", "due"),
    [
        ("2026-03-10T05:00:00+00:00", "2026-03-10T08:00:00+00:00"),
        ("2026-03-10T08:00:00+00:00", "2026-03-11T08:00:00+00:00"),
        ("2026-03-10T20:00:00+00:00", "2026-03-11T08:00:00+00:00"),
        ("2026-03-28T20:00:00+00:00", "2026-03-29T07:00:00+00:00"),
    ],
)
def test_done_by_is_the_next_such_time_in_the_zone_of_the_schedule(planned: str, due: str) -> None:
    found = Expect(done_by="09:00").due(datetime.fromisoformat(planned), zone="Europe/Berlin")
    assert found == datetime.fromisoformat(due)


def test_the_earlier_of_done_by_and_within_counts() -> None:
    at = datetime(2026, 3, 10, 5, tzinfo=UTC)
    assert Expect(done_by="09:00", within=HOUR).due(at, zone="UTC") == at + HOUR
    assert Expect(done_by="05:30", within=HOUR).due(at, zone="UTC") == at + 30 * MINUTE
    assert Expect(usual=3).due(at, zone="UTC") is None


@pytest.mark.parametrize("fields", [{}, {"done_by": "9:00"}, {"done_by": "25:00"}, {"within": -HOUR}])
def test_an_expectation_that_means_nothing_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Expect(**fields)  # type: ignore[arg-type]


def test_a_threshold_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too short"):
        AlertRules(late=MINUTE / 2)


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://hc-ping.com/x", "healthchecks"),
        ("https://cronitor.link/p/k/x", "cronitor"),
        ("https://o1.ingest.sentry.io/api/1/cron/x/key/", "sentry"),
        ("https://example.com/hc-ping.com", "url"),
        ("https://nothc-ping.com/x", "url"),
    ],
)
def test_a_service_is_recognised_by_its_host(url: str, service: str) -> None:
    assert CheckIn(url=url).service(url) == service


def test_a_run_that_is_not_finished_in_time_is_an_incident_and_goes_on(bench: Bench) -> None:
    bench.schedule("report", "every 1d", expect={"within": "2h"}, lease=LONG)
    bench.target.script("report", hang())
    pass_minutes(bench, 24 * 60 + 110)
    assert told(bench) == []
    pass_minutes(bench, 20)
    assert told(bench) == [("opened", "not_finished")]
    (run,) = bench.runs("report")
    (one,) = incidents(bench)
    assert (run.state.value, one["run"]) == ("leased", run.id)


def test_a_late_success_ends_it(bench: Bench) -> None:
    bench.schedule("report", "every 1d", expect={"within": "1h"}, retry=1)
    bench.target.script("report", fail("boom"), succeed())
    pass_minutes(bench, 24 * 60 + 70)
    assert ("opened", "not_finished") in told(bench)
    bench.call("schedule run", schedule="report")
    pass_minutes(bench, 30)
    assert ("closed", "not_finished") in told(bench)


def test_a_schedule_that_no_engine_admits_is_reported_too(bench: Bench) -> None:
    bench.schedule("report", "every 1h", expect={"within": "30m"})
    bench.tick()
    bench.clock.advance(minutes=100)
    bench.loop.incident_watch.run(now=bench.now)
    assert {one["kind"] for one in incidents(bench)} == {"late", "not_finished"}


def test_nothing_is_expected_of_a_paused_group(bench: Bench) -> None:
    bench.schedule("nightly", "every 1h", group="reports", expect={"within": "10m"})
    bench.call("pause", scope="group", name="reports")
    pass_minutes(bench, 120)
    assert incidents(bench) == []


def test_an_occurrence_that_somebody_skipped_is_not_expected(bench: Bench) -> None:
    bench.schedule("report", "every 1d", expect={"within": "1h"})
    bench.call("schedule skip", schedule="report")
    pass_minutes(bench, 26 * 60)
    assert told(bench) == []


def test_a_run_that_takes_much_longer_than_its_median_is_an_incident(bench: Bench) -> None:
    bench.schedule("report", "every 1h", expect={"usual": 3}, lease=LONG)
    bench.target.script("report", *[succeed(after="2m")] * 6, hang())
    pass_minutes(bench, 7 * 60 + 5)
    assert told(bench) == []
    pass_minutes(bench, 10)
    assert told(bench) == [("opened", "slow")]
    (one,) = incidents(bench)
    assert "the median of its last 6 runs is 2m" in one["sentence"]


def test_fewer_than_five_successes_are_no_sample(bench: Bench) -> None:
    bench.schedule("report", "every 1h", expect={"usual": 3}, lease=LONG)
    bench.target.script("report", *[succeed(after="1m")] * 4, hang())
    pass_minutes(bench, 9 * 60)
    assert told(bench) == []


def test_a_foreign_job_that_stops_reporting_is_an_incident(bench: Bench) -> None:
    bench.schedule("foreign", "every 1h", target=Handoff(), expect={"within": "10m"})
    for _ in range(3):
        pass_minutes(bench, 57 if bench.runs("foreign") else 60)
        bench.call("ping send", schedule="foreign", report="start")
        pass_minutes(bench, 3)
        bench.call("ping send", schedule="foreign")
    assert told(bench) == []
    pass_minutes(bench, 80)
    assert told(bench) == [("opened", "not_finished")]
    bench.call("ping send", schedule="foreign")
    pass_minutes(bench, 12)
    assert told(bench)[-1] == ("closed", "not_finished")


def test_a_ping_shortly_before_the_planned_time_counts_for_it(bench: Bench) -> None:
    bench.schedule("foreign", "every 1h", target=Handoff(), expect={"within": "10m"})
    for _ in range(3):
        pass_minutes(bench, 59)
        bench.call("ping send", schedule="foreign")
        pass_minutes(bench, 1)
    pass_minutes(bench, 20)
    assert told(bench) == []


def test_a_failed_report_fails_the_run_with_its_text(bench: Bench) -> None:
    bench.schedule("foreign", "every 1h", target=Handoff(), expect={"within": "10m"})
    pass_minutes(bench, 61)
    bench.call("ping send", schedule="foreign", report="fail", text="disk full")
    (run,) = bench.runs("foreign")
    assert (run.state.value, run.error) == ("failed", "disk full")
    pass_minutes(bench, 2)
    assert told(bench) == [("opened", "failed")]


def test_a_job_that_starts_again_without_an_end_has_two_runs(bench: Bench) -> None:
    bench.schedule("foreign", "every 1d", target=Handoff())
    for _ in range(2):
        bench.call("ping send", schedule="foreign", report="start")
        bench.advance(minutes=1)
    assert [run.state.value for run in bench.runs("foreign")] == ["failed", "leased"]
