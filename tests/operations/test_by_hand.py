"""What people do with occurrences: run one now, run past ones, leave one out, move one."""

from __future__ import annotations

import pytest

from tests.operations.house import House
from timewright.core.facts import RunAdmitted, RunSkipped
from timewright.errors import Conflict, InvalidInput, NotAllowed
from timewright.testing.targets import hang


def test_a_run_by_hand_leaves_the_next_time_as_it_was(house: House) -> None:
    before = house.ask("schedule get", schedule="nightly-report")["standing"]["next_at"]
    made = house.ask("schedule run", schedule="nightly-report", payload={"day": 9})
    assert made["run"]["state"] == "ready"
    assert made["run"]["source"] == "manual"
    assert made["payload"] == {"day": 9}
    assert isinstance(house.told[0], RunAdmitted)
    house.bench.tick()
    assert house.ask("run get", run=made["run"]["id"])["run"]["state"] == "succeeded"
    assert house.ask("schedule get", schedule="nightly-report")["standing"]["next_at"] == before
    assert house.bench.target.launched[-1].payload == {"day": 9}


def test_a_run_by_hand_obeys_overlap_unless_forced(house: House) -> None:
    house.bench.target.script("nightly-report", hang())
    house.ask("schedule run", schedule="nightly-report")
    house.bench.tick()
    second = house.ask("schedule run", schedule="nightly-report")["run"]
    assert (second["state"], second["reason"]) == ("skipped", "overlap")
    third = house.ask("schedule run", schedule="nightly-report", force=True)["run"]
    assert third["state"] == "ready"


def test_an_extra_run_waits_for_its_instant_and_changes_nothing_else(house: House) -> None:
    before = house.ask("schedule get", schedule="nightly-report")["standing"]["next_at"]
    extra = house.ask(
        "schedule run",
        schedule="nightly-report",
        at="2026-03-11T12:00:00Z",
        client_key="x",
        reason="month end",
    )["run"]
    assert (extra["state"], extra["planned_at"]) == ("ready", "2026-03-11T12:00:00Z")
    assert house.ask("schedule get", schedule="nightly-report")["standing"]["next_at"] == before
    house.advance(hours=23, minutes=59)
    assert house.ask("run get", run=extra["id"])["run"]["state"] == "ready"
    house.advance(minutes=2)
    assert house.ask("run get", run=extra["id"])["run"]["state"] == "succeeded"
    newest = house.ask("run list", schedule="nightly-report", limit=2)["runs"]
    assert {run["planned_at"] for run in newest} == {"2026-03-11T12:00:00Z", before}
    assert {run["state"] for run in newest} == {"succeeded"}
    again = house.ask("schedule run", schedule="nightly-report", at="2026-03-11T12:00:00Z", client_key="x")
    assert again["run"]["id"] == extra["id"]


def test_an_extra_run_lies_ahead(house: House) -> None:
    with pytest.raises(InvalidInput) as refusal:
        house.ask("schedule run", schedule="nightly-report", at="2026-03-10T12:00:00Z")
    assert refusal.value.field == "at"
    assert "schedule run" in (refusal.value.fix or "")


def test_the_same_client_key_gives_the_same_run(house: House) -> None:
    first = house.ask("schedule run", schedule="nightly-report", client_key="ticket-17")
    house.told.clear()
    again = house.ask("schedule run", schedule="nightly-report", client_key="ticket-17")
    assert again["run"]["id"] == first["run"]["id"]
    assert house.told == []
    other = house.ask("schedule run", schedule="nightly-report", client_key="ticket-18")
    assert other["run"]["id"] != first["run"]["id"]


def test_the_same_client_key_with_another_payload_is_a_conflict(house: House) -> None:
    house.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=1)
    with pytest.raises(Conflict) as refusal:
        house.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=2)
    assert refusal.value.field == "client_key"


def test_a_rehearsed_run_does_not_use_its_client_key_up(house: House) -> None:
    house.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=1, dry_run=True)
    made = house.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=2)
    assert made["payload"] == 2


def test_an_archived_schedule_does_not_run_by_hand(house: House) -> None:
    house.ask("schedule archive", schedule="nightly-report")
    with pytest.raises(NotAllowed):
        house.ask("schedule run", schedule="nightly-report")


def test_a_backfill_runs_past_occurrences_one_after_another(house: House) -> None:
    made = house.ask(
        "schedule backfill",
        schedule="nightly-report",
        since="2026-03-04T00:00:00Z",
        until="2026-03-06T12:00:00Z",
    )
    assert made["count"] == made["shown"] == 3
    assert [run["state"] for run in made["runs"]] == ["ready", "held", "held"]
    assert [run["planned_at"] for run in made["runs"]] == [f"2026-03-0{day}T03:00:00Z" for day in (4, 5, 6)]
    house.bench.tick()
    states = [house.ask("run get", run=run["id"])["run"]["state"] for run in made["runs"]]
    assert states == ["succeeded"] * 3


def test_a_backfill_names_the_row_it_stands_for_and_leaves_it(house: House) -> None:
    made = house.ask(
        "schedule backfill",
        schedule="nightly-report",
        since="2026-03-05T00:00:00Z",
        until="2026-03-05T12:00:00Z",
    )
    run = house.ask("run get", run=made["runs"][0]["id"])
    old = house.ask("run get", run=run["backfill_of"])
    assert old["run"]["planned_at"] == run["run"]["planned_at"]
    assert old["run"]["state"] == "succeeded"


def test_a_rehearsed_backfill_says_what_would_run(house: House) -> None:
    shown = house.ask(
        "schedule backfill", schedule="nightly-report", since="2026-03-01T00:00:00Z", dry_run=True
    )
    assert shown["count"] == 10
    assert len(house.ask("run list", schedule="nightly-report")["runs"]) == 11


def test_too_much_of_a_backfill_is_refused(house: House) -> None:
    house.ask("schedule create", name="busy", every="1s", note="x")
    house.sleep(hours=3)
    house.bench.tick()
    with pytest.raises(InvalidInput) as refusal:
        house.ask("schedule backfill", schedule="busy", since="2026-03-10T12:00:00Z")
    assert refusal.value.field == "since"


def test_a_skipped_occurrence_has_its_row_and_the_one_after_it_is_next(house: House) -> None:
    after = house.ask("schedule skip", schedule="nightly-report", reason="the server moves")
    assert after["standing"]["next_at"] == "2026-03-12T03:00:00Z"
    assert isinstance(house.told[0], RunSkipped)
    house.advance(days=1)
    row = house.ask("run list", schedule="nightly-report")["runs"][0]
    assert (row["planned_at"], row["state"], row["reason"]) == ("2026-03-11T03:00:00Z", "skipped", "by_hand")


def test_several_occurrences_are_left_out_at_once_or_none(house: House) -> None:
    after = house.ask("schedule skip", schedule="nightly-report", count=3)
    assert after["standing"]["next_at"] == "2026-03-14T03:00:00Z"
    house.ask("schedule create", name="soon", once="2026-03-10T13:00:00Z", note="x")
    with pytest.raises(NotAllowed):
        house.ask("schedule skip", schedule="soon", count=2)
    assert house.ask("schedule get", schedule="soon")["standing"]["next_at"] == "2026-03-10T13:00:00Z"


def test_a_paused_schedule_has_nothing_to_skip(house: House) -> None:
    with pytest.raises(NotAllowed) as refusal:
        house.ask("schedule skip", schedule="paused-export")
    assert refusal.value.rule


def test_a_moved_occurrence_runs_at_its_new_time_and_not_at_its_old_one(house: House) -> None:
    moved = house.ask("schedule move", schedule="nightly-report", to="2026-03-11T05:00:00Z")
    assert moved["left_out"]["planned_at"] == "2026-03-11T03:00:00Z"
    house.advance(hours=16)
    assert house.ask("run get", run=moved["run"]["id"])["run"]["state"] == "ready"
    house.advance(hours=2)
    ran = house.ask("run get", run=moved["run"]["id"])["run"]
    assert (ran["state"], ran["started_at"]) == ("succeeded", "2026-03-11T05:00:00Z")
