"""Pausing, resuming, archiving and deleting schedules and groups."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright.errors import Forbidden, InvalidInput, NotAllowed, NotFound
from timewright.ledger.replan import Actor
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.operations.explain.reasons import MAX_AUDIT_ROWS
from timewright.testing.targets import fail


def states(answer: Any) -> dict[str, str]:
    return {one["name"]: one["state"] for one in answer["schedules"]}


def test_a_pause_until_an_instant_ends_by_itself(harness: OperationsHarness) -> None:
    paused = harness.ask(
        "schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="deploy"
    )
    assert paused["progress"]["state"] == "paused"
    assert paused["progress"]["reason"] == "deploy"
    assert paused["progress"]["next_at"] == "2026-03-10T12:30:00Z"
    harness.advance(hours=1)
    assert harness.ask("schedule get", schedule="orders-poll")["progress"]["state"] == "active"
    reasons = [run["reason"] for run in harness.ask("run list", schedule="orders-poll")["runs"]]
    assert reasons.count("paused") == 6
    assert reasons.count("") == 6


def test_a_pause_says_how_its_end_was_read(harness: OperationsHarness) -> None:
    settings = replace(harness.context.settings, zone="Europe/Berlin")
    harness.context = replace(harness.context, settings=settings)
    paused = harness.ask("schedule pause", schedule="orders-poll", until="monday 8am")
    assert paused["progress"]["paused_until"] == "2026-03-16T07:00:00Z"
    assert paused["read_as"] == "until Monday 2026-03-16 at 08:00, Europe/Berlin"
    assert harness.ask("schedule pause", schedule="orders-poll")["read_as"] == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"until": "tomorrow 2pm America/New_York"},
        {"until": "tomorrow 2pm", "zone": "America/New_York"},
    ],
)
def test_a_pause_repeats_its_end_in_the_zone_that_was_written(
    harness: OperationsHarness, fields: dict[str, str]
) -> None:
    paused = harness.ask("schedule pause", fields, schedule="orders-poll")
    assert paused["progress"]["paused_until"] == "2026-03-11T18:00:00Z"
    assert paused["read_as"] == "until Wednesday 2026-03-11 at 14:00, America/New_York"


def test_the_answers_say_who_paused_a_schedule(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily", every="24h", note="x", group="reports")
    harness.ask("schedule pause", schedule="daily")
    harness.ask("schedule pause", schedule="orders-poll", reason="audit")
    listed = {one["name"]: one["paused_by"] for one in harness.ask("schedule list")["schedules"]}
    assert (listed["daily"], listed["orders-poll"], listed["nightly-report"]) == ("ada", "ada: audit", "")
    assert harness.ask("schedule get", schedule="orders-poll")["paused_by"] == "ada: audit"
    harness.ask("group pause", group="reports")
    assert harness.ask("schedule get", schedule="daily")["paused_by"].startswith("ada; group reports by ")
    harness.ask("schedule resume", schedule="orders-poll")
    assert harness.ask("schedule get", schedule="orders-poll")["paused_by"] == ""


def as_agent(harness: OperationsHarness) -> OperationContext:
    return context_for(harness.context, Caller(actor="bot", origin="agent", scopes=ROLES["editor"]))


def test_an_agent_replaces_no_pause_of_a_person(harness: OperationsHarness) -> None:
    agent = as_agent(harness)
    harness.ask("schedule pause", schedule="orders-poll", reason="audit")
    for request in ({"until": "in 1m"}, {}):
        with pytest.raises(Forbidden, match="orders-poll was paused by ada"):
            operations["schedule pause"](agent, {"schedule": "orders-poll", **request})
    with pytest.raises(Forbidden, match="orders-poll was paused by ada"):
        operations["schedule resume"](agent, {"schedule": "orders-poll"})


def test_an_agent_may_change_and_end_its_own_pause(harness: OperationsHarness) -> None:
    agent = as_agent(harness)
    for request in ({"until": "in 1h"}, {"until": "in 2h"}):
        operations["schedule pause"](agent, {"schedule": "orders-poll", **request})
    resumed = operations["schedule resume"](agent, {"schedule": "orders-poll"})
    assert resumed["progress"]["state"] == "active"


def test_the_pause_of_a_person_is_known_however_much_was_audited_since(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="orders-poll", reason="audit")
    entry = Actor(name="ada").audit_entry("test", namespace="default", subject="x", now=harness.now)
    harness.store.write(lambda tx: tx.add_audit([entry] * MAX_AUDIT_ROWS))
    with pytest.raises(Forbidden, match="may not end this pause"):
        operations["schedule resume"](as_agent(harness), {"schedule": "orders-poll"})


def test_a_pause_without_an_end_lasts_until_resumed(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="orders-poll")
    harness.advance(hours=24)
    paused = harness.ask("schedule get", schedule="orders-poll")
    assert paused["progress"]["next_at"] is None
    resumed = harness.ask("schedule resume", schedule="orders-poll")
    assert resumed["progress"]["state"] == "active"
    rows = harness.ask("run list", schedule="orders-poll", limit=1000)["runs"]
    assert {row["reason"] for row in rows} == {"paused"}
    assert len(rows) == 288


def test_a_pause_into_the_past_is_refused(harness: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("schedule pause", schedule="orders-poll", until="2026-03-10T11:00:00Z")
    assert error.value.field == "until"


def test_an_active_schedule_cannot_be_resumed_nor_an_archived_one_paused(
    harness: OperationsHarness,
) -> None:
    with pytest.raises(NotAllowed):
        harness.ask("schedule resume", schedule="orders-poll")
    harness.ask("schedule archive", schedule="orders-poll")
    for operation in ("schedule pause", "schedule resume", "schedule archive"):
        with pytest.raises(NotAllowed):
            harness.ask(operation, schedule="orders-poll")


def test_resume_resets_the_failures_of_a_parked_schedule() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="poll", every="10m", call="poll", preset="desktop", disable_after=2)
    harness.bench.target.script("poll", fail("no disk"))
    harness.advance(hours=1)
    parked = harness.ask("schedule get", schedule="poll")["progress"]
    assert (parked["state"], parked["reason"]) == ("parked", "disabled after 2 failures in a row")
    resumed = harness.ask("schedule resume", schedule="poll")["progress"]
    assert (resumed["state"], resumed["failures"]) == ("active", 0)


def test_a_deleted_schedule_runs_never_again_and_its_history_stays(harness: OperationsHarness) -> None:
    harness.ask("schedule delete", schedule="orders-poll", reason="no more orders")
    harness.advance(hours=2)
    gone = harness.ask("schedule get", schedule="orders-poll")["progress"]
    assert (gone["state"], gone["reason"]) == ("archived", "no more orders")
    assert harness.ask("run list", schedule="orders-poll")["runs"] == []


def test_a_group_is_paused_and_resumed_together(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    (pause,) = [
        one
        for one in harness.ask("group pause", group="reports", reason="audit")["pauses"]
        if one["name"] == "reports"
    ]
    assert (pause["scope"], pause["due"], pause["reason"]) == ("group", "skip", "audit")
    listed = harness.ask("schedule list", group="reports")["schedules"]
    assert {one["paused_by"] for one in listed} == {f"group reports by {pause['actor']}: audit"}
    harness.ask("group resume", group="reports")
    listed = harness.ask("schedule list", group="reports")["schedules"]
    assert {one["paused_by"] for one in listed} == {""}


def test_resuming_a_group_leaves_individually_paused_schedules(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    harness.ask("schedule pause", schedule="daily-report", reason="wrong numbers")
    harness.ask("group pause", group="reports")
    harness.ask("group resume", group="reports")
    assert states(harness.ask("schedule list", group="reports")) == {
        "daily-report": "paused",
        "nightly-report": "active",
    }


def test_groups_are_listed_with_counts_per_state(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    before = harness.ask("group list")["groups"]
    harness.ask("schedule pause", schedule="daily-report")
    harness.ask("schedule create", name="archived", every="24h", note="x", group="gone")
    harness.ask("schedule archive", schedule="archived")
    after = harness.ask("group list")["groups"]
    assert [one["name"] for one in after] == ["exports", "reminders", "reports"]
    assert after[2] == {**before[2], "active": before[2]["active"] - 1, "paused": 1}
    first = harness.ask("group list", limit=1)
    rest = harness.ask("group list", limit=2, cursor=first["cursor"])
    assert [*first["groups"], *rest["groups"]] == after
    assert not rest["cursor"]


def test_an_unknown_group_is_rejected_with_a_suggestion(harness: OperationsHarness) -> None:
    with pytest.raises(NotFound) as error:
        harness.ask("group pause", group="report")
    assert error.value.fix == "did you mean reports or exports?"


def test_a_group_is_paused_whole_or_not_at_all(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily-report", every="24h", note="x", group="reports")
    with pytest.raises(InvalidInput):
        harness.ask("group pause", group="reports", until="2020-01-01T00:00:00Z")
    assert set(states(harness.ask("schedule list", group="reports")).values()) == {"active"}
