"""Manual runs, backfills, skipped and moved occurrences."""

from __future__ import annotations

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.facts import RunAdmitted, RunSkipped
from timewright.errors import Conflict, InvalidInput, NotAllowed
from timewright.testing.targets import hang


def test_a_manual_run_does_not_change_the_next_occurrence(harness: OperationsHarness) -> None:
    before = harness.ask("schedule get", schedule="nightly-report")["progress"]["next_at"]
    made = harness.ask("schedule run", schedule="nightly-report", payload={"day": 9})
    assert made["run"]["state"] == "ready"
    assert made["run"]["source"] == "manual"
    assert made["payload"] == {"day": 9}
    assert isinstance(harness.facts[0], RunAdmitted)
    harness.bench.tick()
    assert harness.ask("run get", run=made["run"]["id"])["run"]["state"] == "succeeded"
    assert harness.ask("schedule get", schedule="nightly-report")["progress"]["next_at"] == before
    assert harness.bench.target.launched[-1].payload == {"day": 9}


def test_a_manual_run_obeys_overlap_unless_forced(harness: OperationsHarness) -> None:
    harness.bench.target.script("nightly-report", hang())
    harness.ask("schedule run", schedule="nightly-report")
    harness.bench.tick()
    second = harness.ask("schedule run", schedule="nightly-report", payload={"day": 9})
    assert (second["run"]["state"], second["run"]["reason"]) == ("skipped", "overlap")
    why = "an earlier run has not ended, and the schedule has overlap: skip"
    fix = "To run it at the same time use force; to run it afterwards set overlap: queue"
    assert second["warnings"] == [f"nightly-report was not run: {why}. {fix}"]
    many = harness.ask("schedule run-many", runs=[{"schedule": "nightly-report"}] * 2)
    assert many["warnings"] == [f"2 runs of nightly-report were skipped: {why}. {fix}"]
    third = harness.ask("schedule run", schedule="nightly-report", force=True)
    assert (third["run"]["state"], third["warnings"]) == ("ready", [])


def test_an_extra_run_waits_for_its_instant_and_changes_nothing_else(harness: OperationsHarness) -> None:
    before = harness.ask("schedule get", schedule="nightly-report")["progress"]["next_at"]
    extra = harness.ask(
        "schedule run",
        schedule="nightly-report",
        at="2026-03-11T12:00:00Z",
        client_key="x",
        reason="month end",
    )["run"]
    assert (extra["state"], extra["planned_at"]) == ("ready", "2026-03-11T12:00:00Z")
    assert harness.ask("schedule get", schedule="nightly-report")["progress"]["next_at"] == before
    harness.advance(hours=23, minutes=59)
    assert harness.ask("run get", run=extra["id"])["run"]["state"] == "ready"
    harness.advance(minutes=2)
    assert harness.ask("run get", run=extra["id"])["run"]["state"] == "succeeded"
    newest = harness.ask("run list", schedule="nightly-report", limit=2)["runs"]
    assert {run["planned_at"] for run in newest} == {"2026-03-11T12:00:00Z", before}
    assert {run["state"] for run in newest} == {"succeeded"}
    again = harness.ask("schedule run", schedule="nightly-report", at="2026-03-11T12:00:00Z", client_key="x")
    assert again["run"]["id"] == extra["id"]


def test_an_extra_run_must_be_in_the_future(harness: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("schedule run", schedule="nightly-report", at="2026-03-10T12:00:00Z")
    assert error.value.field == "at"
    assert "schedule run" in (error.value.fix or "")


def test_the_same_client_key_gives_the_same_run(harness: OperationsHarness) -> None:
    first = harness.ask("schedule run", schedule="nightly-report", client_key="ticket-17")
    harness.facts.clear()
    again = harness.ask("schedule run", schedule="nightly-report", client_key="ticket-17")
    assert again["run"]["id"] == first["run"]["id"]
    assert harness.facts == []
    other = harness.ask("schedule run", schedule="nightly-report", client_key="ticket-18")
    assert other["run"]["id"] != first["run"]["id"]


def test_the_same_client_key_with_another_payload_is_a_conflict(harness: OperationsHarness) -> None:
    harness.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=1)
    with pytest.raises(Conflict) as error:
        harness.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=2)
    assert error.value.field == "client_key"


def test_a_dry_run_does_not_consume_its_client_key(harness: OperationsHarness) -> None:
    harness.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=1, dry_run=True)
    made = harness.ask("schedule run", schedule="nightly-report", client_key="ticket-17", payload=2)
    assert made["payload"] == 2


def test_an_archived_schedule_cannot_be_run_manually(harness: OperationsHarness) -> None:
    harness.ask("schedule archive", schedule="nightly-report")
    with pytest.raises(NotAllowed):
        harness.ask("schedule run", schedule="nightly-report")


def test_a_backfill_runs_past_occurrences_one_after_another(harness: OperationsHarness) -> None:
    made = harness.ask(
        "schedule backfill",
        schedule="nightly-report",
        since="2026-03-04T00:00:00Z",
        until="2026-03-06T12:00:00Z",
    )
    assert made["count"] == made["shown"] == 3
    assert [run["state"] for run in made["runs"]] == ["ready", "held", "held"]
    assert [run["planned_at"] for run in made["runs"]] == [f"2026-03-0{day}T03:00:00Z" for day in (4, 5, 6)]
    harness.bench.tick()
    states = [harness.ask("run get", run=run["id"])["run"]["state"] for run in made["runs"]]
    assert states == ["succeeded"] * 3


def test_a_backfill_names_the_original_run_and_does_not_change_it(harness: OperationsHarness) -> None:
    made = harness.ask(
        "schedule backfill",
        schedule="nightly-report",
        since="2026-03-05T00:00:00Z",
        until="2026-03-05T12:00:00Z",
    )
    run = harness.ask("run get", run=made["runs"][0]["id"])
    old = harness.ask("run get", run=run["backfill_of"])
    assert old["run"]["planned_at"] == run["run"]["planned_at"]
    assert old["run"]["state"] == "succeeded"


def test_a_dry_run_of_a_backfill_shows_what_would_run(harness: OperationsHarness) -> None:
    shown = harness.ask(
        "schedule backfill", schedule="nightly-report", since="2026-03-01T00:00:00Z", dry_run=True
    )
    assert shown["count"] == 10
    assert len(harness.ask("run list", schedule="nightly-report")["runs"]) == 11


def test_a_too_large_backfill_is_rejected(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="busy", every="1s", note="x")
    harness.sleep(hours=3)
    harness.bench.tick()
    with pytest.raises(InvalidInput) as error:
        harness.ask("schedule backfill", schedule="busy", since="2026-03-10T12:00:00Z")
    assert error.value.field == "since"


def test_a_skipped_occurrence_is_recorded_and_the_following_one_is_next(harness: OperationsHarness) -> None:
    after = harness.ask("schedule skip", schedule="nightly-report", reason="the server moves")
    assert after["progress"]["next_at"] == "2026-03-12T03:00:00Z"
    assert isinstance(harness.facts[0], RunSkipped)
    harness.advance(days=1)
    row = harness.ask("run list", schedule="nightly-report")["runs"][0]
    assert (row["planned_at"], row["state"], row["reason"]) == ("2026-03-11T03:00:00Z", "skipped", "by_hand")


def test_several_occurrences_are_skipped_together_or_not_at_all(harness: OperationsHarness) -> None:
    after = harness.ask("schedule skip", schedule="nightly-report", count=3)
    assert after["progress"]["next_at"] == "2026-03-14T03:00:00Z"
    harness.ask("schedule create", name="soon", once="2026-03-10T13:00:00Z", note="x")
    with pytest.raises(NotAllowed):
        harness.ask("schedule skip", schedule="soon", count=2)
    assert harness.ask("schedule get", schedule="soon")["progress"]["next_at"] == "2026-03-10T13:00:00Z"


def test_a_paused_schedule_has_nothing_to_skip(harness: OperationsHarness) -> None:
    with pytest.raises(NotAllowed) as error:
        harness.ask("schedule skip", schedule="paused-export")
    assert error.value.rule


def test_a_moved_occurrence_runs_at_its_new_time_and_not_at_its_old_one(harness: OperationsHarness) -> None:
    moved = harness.ask("schedule move", schedule="nightly-report", to="2026-03-11T05:00:00Z")
    assert moved["left_out"]["planned_at"] == "2026-03-11T03:00:00Z"
    harness.advance(hours=16)
    assert harness.ask("run get", run=moved["run"]["id"])["run"]["state"] == "ready"
    harness.advance(hours=2)
    ran = harness.ask("run get", run=moved["run"]["id"])["run"]
    assert (ran["state"], ran["started_at"]) == ("succeeded", "2026-03-11T05:00:00Z")
