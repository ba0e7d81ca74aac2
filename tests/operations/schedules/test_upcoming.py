"""What starts next, of all schedules of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.operations.harness import NOON, OperationsHarness, feed_events, instant
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.errors import InvalidInput, InvalidZone
from timewright.operations.schedules import upcoming

Rows = list[dict[str, Any]]


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def create(harness: OperationsHarness, name: str, **fields: Any) -> None:
    harness.ask("schedule create", name=name, note="x", **fields)


def coming(harness: OperationsHarness, **fields: Any) -> Rows:
    rows: Rows = harness.ask("schedule upcoming", fields)["occurrences"]
    return rows


def names(rows: Rows) -> list[str]:
    return [row["schedule"] for row in rows]


def test_schedules_of_different_zones_come_in_order_of_time_then_name(harness: OperationsHarness) -> None:
    create(harness, "tokyo", cron="0 8 * * *", zone="Asia/Tokyo")
    create(harness, "new-york", cron="0 9 * * *", zone="America/New_York")
    create(harness, "berlin", cron="0 9 * * *", zone="Europe/Berlin")
    create(harness, "also-berlin", cron="0 9 * * *", zone="Europe/Berlin")
    create(harness, "interval", every="20h")
    rows = coming(harness)
    assert [(row["schedule"], row["local"], row["zone"]) for row in rows] == [
        ("new-york", "2026-03-10T09:00:00-04:00", "America/New_York"),
        ("tokyo", "2026-03-11T08:00:00+09:00", "Asia/Tokyo"),
        ("also-berlin", "2026-03-11T09:00:00+01:00", "Europe/Berlin"),
        ("berlin", "2026-03-11T09:00:00+01:00", "Europe/Berlin"),
        ("interval", "", ""),
    ]
    assert [row["planned_at"] for row in rows] == sorted(row["planned_at"] for row in rows)
    asked = coming(harness, zone="Asia/Tokyo")
    assert {row["zone"] for row in asked} == {"Asia/Tokyo"}
    assert [row["local"] for row in asked][-1] == "2026-03-11T17:00:00+09:00"
    assert [row["planned_at"] for row in asked] == [row["planned_at"] for row in rows]


def test_a_frequent_schedule_hides_no_other_with_a_number_of_occurrences_each(
    harness: OperationsHarness,
) -> None:
    create(harness, "often", every="1s")
    create(harness, "daily", cron="0 13 * * *")
    assert set(names(coming(harness))) == {"often"}
    assert names(coming(harness, each=2)) == ["often", "often", "daily"]
    assert harness.ask("schedule upcoming", {"each": 2})["more"]


def test_the_local_time_follows_a_clock_change_in_the_window() -> None:
    harness = OperationsHarness(start=datetime(2026, 3, 28, 12, tzinfo=UTC))
    create(harness, "daily", cron="30 9 * * *", zone="Europe/Berlin")
    create(harness, "utc", cron="0 0 * * *")
    rows = coming(harness, until="2026-03-31T00:00:00+02:00", zone="Europe/Berlin")
    assert [(row["planned_at"], row["local"]) for row in rows] == [
        ("2026-03-29T00:00:00Z", "2026-03-29T01:00:00+01:00"),
        ("2026-03-29T07:30:00Z", "2026-03-29T09:30:00+02:00"),
        ("2026-03-30T00:00:00Z", "2026-03-30T02:00:00+02:00"),
        ("2026-03-30T07:30:00Z", "2026-03-30T09:30:00+02:00"),
    ]


def test_the_end_may_be_in_words_and_is_read_in_the_zone(harness: OperationsHarness) -> None:
    create(harness, "hourly", every="1h")
    answer = harness.ask("schedule upcoming", until="tomorrow midnight", zone="Asia/Tokyo")
    assert (answer["until"], len(answer["occurrences"])) == ("2026-03-10T15:00:00Z", 3)
    assert harness.ask("schedule upcoming")["until"] == instant(NOON + DAY)


def test_a_namespace_without_schedules_has_nothing_upcoming(harness: OperationsHarness) -> None:
    create(harness, "hourly", every="1h")
    answer = harness.in_namespace().ask("schedule upcoming")
    assert (answer["occurrences"], answer["more"]) == ([], False)


def test_a_paused_schedule_is_left_out_until_its_pause_ends(harness: OperationsHarness) -> None:
    for name in ("paused", "until-two", "runs"):
        create(harness, name, cron="15,30 12-14 * * *")
    harness.ask("schedule pause", schedule="paused")
    harness.ask("schedule pause", schedule="until-two", until=instant(NOON + 2 * HOUR))
    rows = coming(harness, until=instant(NOON + 3 * HOUR))
    assert names(rows).count("paused") == 0
    assert names(rows).count("runs") == 6
    assert [row["planned_at"][11:16] for row in rows if row["schedule"] == "until-two"] == ["14:15", "14:30"]


def test_a_pause_of_a_group_marks_its_occurrences_until_it_ends(harness: OperationsHarness) -> None:
    create(harness, "report", every="1h", group="reports")
    create(harness, "other", every="2h")
    end = instant(NOON + 90 * MINUTE)
    harness.ask("pause", scope="group", name="reports", until=end, reason="the disk is full")
    rows = coming(harness, until=instant(NOON + 2 * HOUR))
    assert [(row["schedule"], row["verdict"], row["fire_at"] is None) for row in rows] == [
        ("report", "paused", True),
        ("other", "fire", False),
        ("report", "fire", False),
    ]
    assert rows[0]["reason"] == f"group reports by ada until {end}: the disk is full"


def test_notes_and_runs_planned_by_hand_are_shown(harness: OperationsHarness) -> None:
    create(harness, "daily", cron="0 9 * * *", tags=["night"])
    create(harness, "by hand", manual=True, tags=["night"])
    create(harness, "finished", at=instant(NOON + MINUTE))
    harness.ask("schedule note", schedule="daily", text="the auditors read this")
    harness.advance(minutes=2)
    for name in ("by hand", "finished"):
        harness.ask("schedule run", schedule=name, at="2026-03-10T18:00:00Z")
    assert [(row["schedule"], row["source"], row["note"]) for row in coming(harness)] == [
        ("by hand", "manual", ""),
        ("finished", "manual", ""),
        ("daily", "baseline-cron", "the auditors read this"),
    ]
    assert names(coming(harness, tag="night")) == ["by hand", "daily"]
    found = feed_events(harness.ask("schedule feed", tag="night", days=1)["text"])
    assert [str(event["summary"]) for event in found] == ["by hand", "daily"]


def test_a_moved_occurrence_is_shown_once_at_its_new_time(harness: OperationsHarness) -> None:
    create(harness, "daily", cron="0 9 * * *")
    harness.ask("schedule move", schedule="daily", to="2026-03-11T10:00:00Z")
    assert [row["planned_at"] for row in coming(harness)] == ["2026-03-11T10:00:00Z"]


def test_an_occurrence_skipped_by_hand_is_left_out_also_after_an_edit(harness: OperationsHarness) -> None:
    create(harness, "daily", cron="0 9 * * *")
    harness.ask("schedule skip", schedule="daily")
    harness.ask("schedule update", schedule="daily", cron="0 9,11 * * *")
    assert [row["planned_at"] for row in coming(harness)] == ["2026-03-11T11:00:00Z"]


def test_tag_and_group_select_schedules(harness: OperationsHarness) -> None:
    create(harness, "one", every="1h", tags=["night"])
    create(harness, "two", every="1h", group="reports")
    until = instant(NOON + HOUR)
    assert names(coming(harness, tag="night", until=until)) == ["one"]
    assert names(coming(harness, group="reports", until=until)) == ["two"]
    assert coming(harness, tag="night", group="reports") == []


def test_the_list_is_complete_up_to_its_limit(harness: OperationsHarness) -> None:
    for name, every in (("c", "1s"), ("a", "20m"), ("b", "7m"), ("d", "1h")):
        create(harness, name, every=every)
    harness.ask("schedule run", schedule="d", at=instant(NOON + 10 * MINUTE))
    until = instant(NOON + 12 * MINUTE)
    full = harness.ask("schedule upcoming", until=until, limit=1000)
    assert (len(full["occurrences"]), full["more"]) == (12 * 60 + 2, False)
    for limit in (1, 419, 420, 421, 600, 602, 721):
        some = harness.ask("schedule upcoming", until=until, limit=limit)
        assert some["more"]
        assert some["occurrences"] == full["occurrences"][:limit]
    assert not harness.ask("schedule upcoming", until=until, limit=722)["more"]


def test_the_work_is_bounded_and_the_list_ends_where_it_stopped(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        create(harness, f"every-{number}", every=f"{number}h")
    monkeypatch.setattr(upcoming, "MAX_SCHEDULES", 2)
    few = harness.ask("schedule upcoming")
    assert (names(few["occurrences"]), few["more"]) == (
        ["every-1", "every-1", "every-2", "every-1"],
        True,
    )
    monkeypatch.setattr(upcoming, "MAX_SCHEDULES", 5)
    assert not harness.ask("schedule upcoming", until=instant(NOON + HOUR))["more"]


def test_occurrences_that_a_calendar_excludes_are_passed_over(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.ask("calendar put", name="off", dates=["2026-03-10"])
    create(harness, "excluded", every="1h", calendar={"except": ["off"]})
    create(harness, "other", every="3h")
    rows = coming(harness, until=instant(NOON + 13 * HOUR))
    assert [(row["schedule"], row["planned_at"][:13]) for row in rows][-3:] == [
        ("excluded", "2026-03-11T00"),
        ("other", "2026-03-11T00"),
        ("excluded", "2026-03-11T01"),
    ]
    monkeypatch.setattr(upcoming, "MAX_COMPUTED_EACH", 4)
    cut = harness.ask("schedule upcoming", until=instant(NOON + 13 * HOUR))
    assert (names(cut["occurrences"]), cut["more"]) == (["other"], True)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"until": "2026-03-10T11:00:00Z"}, "until"),
        ({"until": "2027-03-12T12:00:01Z"}, "until"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
    ],
)
def test_a_window_and_a_limit_out_of_range_are_refused(
    harness: OperationsHarness, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        harness.ask("schedule upcoming", fields)
    assert refused.value.field == field
    assert refused.value.fix


@pytest.mark.parametrize("more", [{}, {"until": "tomorrow 9am"}])
def test_an_unknown_zone_is_refused_with_a_near_one(harness: OperationsHarness, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidZone) as refused:
        harness.ask("schedule upcoming", zone="Asia/Tokio", **more)
    assert (refused.value.field, refused.value.fix) == ("zone", "Asia/Tokyo")
