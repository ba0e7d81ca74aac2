"""Stopping and going on: one schedule, or all of a group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.house import House
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.testing.targets import fail


def states(answer: Any) -> dict[str, str]:
    return {one["name"]: one["state"] for one in answer["schedules"]}


def test_a_pause_until_an_instant_ends_by_itself(house: House) -> None:
    paused = house.ask(
        "schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="deploy"
    )
    assert paused["standing"]["state"] == "paused"
    assert paused["standing"]["reason"] == "deploy"
    assert paused["standing"]["next_at"] == "2026-03-10T12:30:00Z"
    house.advance(hours=1)
    assert house.ask("schedule get", schedule="orders-poll")["standing"]["state"] == "active"
    reasons = [run["reason"] for run in house.ask("run list", schedule="orders-poll")["runs"]]
    assert reasons.count("paused") == 6
    assert reasons.count("") == 6


def test_a_pause_without_an_end_waits_for_someone(house: House) -> None:
    house.ask("schedule pause", schedule="orders-poll")
    house.advance(hours=24)
    paused = house.ask("schedule get", schedule="orders-poll")
    assert paused["standing"]["next_at"] is None
    resumed = house.ask("schedule resume", schedule="orders-poll")
    assert resumed["standing"]["state"] == "active"
    rows = house.ask("run list", schedule="orders-poll", limit=1000)["runs"]
    assert {row["reason"] for row in rows} == {"paused"}
    assert len(rows) == 288


def test_a_pause_into_the_past_is_refused(house: House) -> None:
    with pytest.raises(InvalidInput) as refusal:
        house.ask("schedule pause", schedule="orders-poll", until="2026-03-10T11:00:00Z")
    assert refusal.value.field == "until"


def test_what_goes_on_cannot_be_resumed_and_what_is_archived_cannot_be_paused(house: House) -> None:
    with pytest.raises(NotAllowed):
        house.ask("schedule resume", schedule="orders-poll")
    house.ask("schedule archive", schedule="orders-poll")
    for operation in ("schedule pause", "schedule resume", "schedule archive"):
        with pytest.raises(NotAllowed):
            house.ask(operation, schedule="orders-poll")


def test_resume_forgives_a_schedule_that_failed_too_often() -> None:
    house = House()
    house.ask("schedule create", name="poll", every="10m", call="poll", preset="desktop", disable_after=2)
    house.bench.target.script("poll", fail("no disk"))
    house.advance(hours=1)
    parked = house.ask("schedule get", schedule="poll")["standing"]
    assert (parked["state"], parked["reason"]) == ("parked", "disabled after 2 failures in a row")
    resumed = house.ask("schedule resume", schedule="poll")["standing"]
    assert (resumed["state"], resumed["failures"]) == ("active", 0)


def test_a_deleted_schedule_runs_never_again_and_its_history_stays(house: House) -> None:
    house.ask("schedule delete", schedule="orders-poll", reason="no more orders")
    house.advance(hours=2)
    gone = house.ask("schedule get", schedule="orders-poll")["standing"]
    assert (gone["state"], gone["reason"]) == ("archived", "no more orders")
    assert house.ask("run list", schedule="orders-poll")["runs"] == []


def test_a_group_stops_and_goes_on_together(house: House) -> None:
    house.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    paused = house.ask("group pause", group="reports", reason="audit")
    assert [one["name"] for one in paused["changed"]] == ["daily-report", "nightly-report"]
    assert {one["reason"] for one in paused["changed"]} == {"group reports: audit"}
    resumed = house.ask("group resume", group="reports")
    assert {one["state"] for one in resumed["changed"]} == {"active"}


def test_a_group_that_goes_on_leaves_alone_what_someone_paused_by_itself(house: House) -> None:
    house.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    house.ask("schedule pause", schedule="daily-report", reason="wrong numbers")
    paused = house.ask("group pause", group="reports")
    assert [one["name"] for one in paused["left"]] == ["daily-report"]
    house.ask("group resume", group="reports")
    assert states(house.ask("schedule list", group="reports")) == {
        "daily-report": "paused",
        "nightly-report": "active",
    }


def test_groups_are_listed_with_how_many_of_them_stand_still(house: House) -> None:
    house.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    before = house.ask("group list")["groups"]
    house.ask("schedule pause", schedule="daily-report")
    house.ask("schedule create", name="archived", every="24h", note="x", group="gone")
    house.ask("schedule archive", schedule="archived")
    after = house.ask("group list")["groups"]
    assert [one["name"] for one in after] == ["exports", "reminders", "reports"]
    assert after[2] == {**before[2], "active": before[2]["active"] - 1, "paused": 1}
    first = house.ask("group list", limit=1)
    rest = house.ask("group list", limit=2, cursor=first["cursor"])
    assert [*first["groups"], *rest["groups"]] == after
    assert not rest["cursor"]


def test_a_group_nobody_belongs_to_is_refused_with_the_nearest(house: House) -> None:
    with pytest.raises(NotFound) as refusal:
        house.ask("group pause", group="report")
    assert refusal.value.fix == "did you mean reports or exports?"


def test_a_group_is_paused_whole_or_not_at_all(house: House) -> None:
    house.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    with pytest.raises(InvalidInput):
        house.ask("group pause", group="reports", until="2020-01-01T00:00:00Z")
    assert set(states(house.ask("schedule list", group="reports")).values()) == {"active"}
