"""Reading schedules: get, list, next occurrences and health."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.moments import SECOND
from timewright.errors import InvalidInput, NotFound
from timewright.testing.targets import fail, succeed


def names(answer: Any) -> list[str]:
    return [one["name"] for one in answer["schedules"]]


def test_a_schedule_is_found_by_its_name_or_its_id(harness: OperationsHarness) -> None:
    by_name = harness.ask("schedule get", schedule="nightly-report")
    assert harness.ask("schedule get", schedule=by_name["schedule"]["id"]) == by_name


def test_a_misspelt_name_is_rejected_with_a_suggestion_from_the_namespace(harness: OperationsHarness) -> None:
    with pytest.raises(NotFound) as error:
        harness.ask("schedule get", schedule="nightly-raport")
    assert error.value.fix == "did you mean nightly-report?"
    with pytest.raises(NotFound) as error:
        harness.in_namespace().ask("schedule get", schedule="nightly-raport")
    assert error.value.fix == "schedule list shows the names"


def test_two_spellings_of_one_text_are_one_name(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="caf\u00e9", every="1h", note="x")
    assert harness.ask("schedule get", schedule="cafe\u0301")["schedule"]["name"] == "caf\u00e9"


def test_a_name_may_look_like_an_id(harness: OperationsHarness) -> None:
    name = "sch_" + "0" * 26
    harness.ask("schedule create", name=name, every="1h", note="x")
    assert harness.ask("schedule get", schedule=name)["schedule"]["name"] == name


def test_paging_has_no_gaps_or_repeats(harness: OperationsHarness) -> None:
    for number in range(23):
        harness.ask(
            "schedule create", name=f"job-{number:02d}", every="1h", note="x", tags=["odd"] * (number % 2)
        )
    before = len(harness.ask("schedule list", limit=1000)["schedules"])
    for filters, expected in (
        ({}, before),
        ({"tag": "odd"}, 11),
        ({"name_starts": "job-"}, 23),
        ({"state": "paused"}, 1),
    ):
        found: list[str] = []
        cursor = ""
        while True:
            page = harness.ask("schedule list", filters, limit=4, cursor=cursor)
            found += names(page)
            cursor = page["cursor"]
            if not cursor:
                break
            assert len(page["schedules"]) == 4
        assert len(found) == len(set(found)) == expected
        assert found == sorted(found)


def test_metadata_must_match_exactly(harness: OperationsHarness) -> None:
    assert names(harness.ask("schedule list", metadata={"team": "finance"})) == ["nightly-report"]
    assert names(harness.ask("schedule list", metadata={"team": "financ"})) == []
    assert names(harness.ask("schedule list", metadata={"tea": "finance"})) == []
    assert names(harness.ask("schedule list", metadata={"team": None})) == []


def test_archived_schedules_are_listed_only_when_asked_for(harness: OperationsHarness) -> None:
    harness.ask("schedule archive", schedule="orders-poll")
    assert "orders-poll" not in names(harness.ask("schedule list"))
    assert names(harness.ask("schedule list", state="archived")) == ["orders-poll"]


def test_a_list_shows_only_its_own_namespace(harness: OperationsHarness) -> None:
    neighbour = harness.in_namespace()
    neighbour.ask("schedule create", name="theirs", every="1h", note="x")
    assert names(neighbour.ask("schedule list")) == ["theirs"]
    assert "theirs" not in names(harness.ask("schedule list"))


def test_the_next_times_of_a_stored_schedule_are_those_that_will_be_admitted(
    harness: OperationsHarness,
) -> None:
    shown = [
        one["planned_at"] for one in harness.ask("schedule next", schedule="orders-poll", count=6)["next"]
    ]
    harness.advance(minutes=31)
    runs = harness.ask("run list", schedule="orders-poll")["runs"]
    assert sorted(run["planned_at"] for run in runs)[:6] == shown


def test_next_may_begin_at_any_instant(harness: OperationsHarness) -> None:
    shown = harness.ask("schedule next", schedule="nightly-report", after="2027-01-01T00:00:00Z", count=2)
    assert [one["planned_at"] for one in shown["next"]] == ["2027-01-01T03:00:00Z", "2027-01-02T03:00:00Z"]


def test_next_shows_the_times_of_a_stored_schedule_in_a_zone(harness: OperationsHarness) -> None:
    shown = harness.ask("schedule next", schedule="nightly-report", zone="Asia/Tokyo", count=2)
    assert shown["zone"] == "Asia/Tokyo"
    assert [(one["planned_at"], one["zone"], one["local"]) for one in shown["next"]] == [
        ("2026-03-11T03:00:00Z", "Asia/Tokyo", "2026-03-11T12:00:00+09:00"),
        ("2026-03-12T03:00:00Z", "Asia/Tokyo", "2026-03-12T12:00:00+09:00"),
    ]
    with pytest.raises(InvalidInput, match="Mars"):
        harness.ask("schedule next", schedule="nightly-report", zone="Mars/Base")


def test_next_refuses_the_fields_of_a_trigger_beside_a_stored_schedule_and_names_them(
    harness: OperationsHarness,
) -> None:
    with pytest.raises(InvalidInput, match="not schedule and cron, zone"):
        harness.ask("schedule next", schedule="nightly-report", cron="0 9 * * *", zone="Asia/Tokyo")
    with pytest.raises(InvalidInput, match="not neither"):
        harness.ask("schedule next")


def test_next_of_a_trigger_that_is_not_stored_knows_clock_changes(harness: OperationsHarness) -> None:
    shown = harness.ask(
        "schedule next", cron="30 2 * * *", zone="Europe/Berlin", after="2026-03-27T12:00:00Z", count=3
    )
    assert [one["local"] for one in shown["next"]] == [
        "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip
    assert shown["trigger"].endswith("Europe/Berlin time")
    assert harness.ask("schedule list", name_starts="preview")["schedules"] == []


def test_next_of_a_trigger_that_is_not_stored_obeys_policies_beside_it(harness: OperationsHarness) -> None:
    harness.ask("calendar put", name="christmas", yearly=["12-25"])
    shown = harness.ask(
        "schedule next",
        cron="0 9 * * *",
        calendar={"except": ["christmas"]},
        after="2026-12-24T00:00:00Z",
        count=3,
    )
    assert [(one["planned_at"][:10], one["verdict"], one["reason"]) for one in shown["next"]] == [
        ("2026-12-24", "fire", ""), ("2026-12-25", "skip", "excluded"), ("2026-12-26", "fire", ""),
    ]  # fmt: skip


def test_next_warns_about_likely_mistakes(harness: OperationsHarness) -> None:
    assert harness.ask("schedule next", cron="0 0 31 * *")["warnings"]
    assert harness.ask("schedule next", cron="0 0 1 * *")["warnings"] == []


def test_next_needs_a_schedule_or_a_trigger(harness: OperationsHarness) -> None:
    for fields in ({}, {"schedule": "nightly-report", "cron": "0 9 * * *"}):
        with pytest.raises(InvalidInput) as error:
            harness.ask("schedule next", fields)
        assert error.value.field == "schedule"


def test_a_paused_schedule_shows_no_next_time_and_a_manual_one_neither(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="by hand", manual=True, call="x")
    assert harness.ask("schedule next", schedule="paused-export")["next"] == []
    assert harness.ask("schedule next", schedule="by hand")["next"] == []


def test_health_counts_rates_durations_and_the_streak_over_three_windows() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="poll", every="10m", call="poll", max_attempts=1)
    harness.bench.target.script("poll", *[succeed(after=2 * SECOND)] * 20, fail(after=SECOND))
    harness.advance(hours=4, minutes=1)
    health = harness.ask("schedule health", schedule="poll")
    assert health["failures"] == 4
    hour, four, day = (health["windows"][name] for name in ("1h", "4h", "24h"))
    assert hour["outcomes"] == {"failed": 4, "succeeded": 2}
    assert hour["streak"] == 4
    assert four["outcomes"] == day["outcomes"] == {"failed": 4, "succeeded": 20}
    assert day["success_rate"] == pytest.approx(20 / 24)
    assert day["duration"]["median"] == "2s"
    assert day["duration"]["longest"] == "2s"


def test_health_shows_the_delay_when_no_engine_runs(harness: OperationsHarness) -> None:
    harness.sleep(minutes=8)
    assert harness.ask("schedule health", schedule="orders-poll")["late_by"] == "5m"
    harness.bench.tick()
    assert harness.ask("schedule health", schedule="orders-poll")["late_by"] == "0s"
