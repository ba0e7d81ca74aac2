"""Explanations of idle schedules and waiting runs name a remedy that works."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.testing.targets import fail, succeed

LONG = succeed(after=timedelta(minutes=9))


@pytest.fixture
def empty() -> OperationsHarness:
    return OperationsHarness()


def explain(harness: OperationsHarness, schedule: str, **fields: Any) -> Any:
    return harness.ask("schedule explain", fields, schedule=schedule)


def newest(harness: OperationsHarness, schedule: str) -> str:
    return str(harness.ask("run list", schedule=schedule)["runs"][0]["id"])


def follow(harness: OperationsHarness, answer: Any, number: int = 0) -> Any:
    """Perform the remedy of an explanation."""
    way = answer["remedies"][number]
    return harness.ask(way["operation"], way["request"])


def test_a_finished_schedule_names_the_cause_and_continues_when_that_changes(
    empty: OperationsHarness,
) -> None:
    empty.ask("schedule create", name="twice", every="1m", note="x", max_runs=2)
    empty.ask("schedule create", name="short", every="1m", note="y", end_at="2026-03-10T12:02:30Z")
    empty.advance(minutes=5)
    twice, short = explain(empty, "twice"), explain(empty, "short")
    assert twice["because"] == ["it has reached max_runs, 2"]
    assert short["because"] == ["its end_at, 2026-03-10T12:02:30Z, has passed"]
    assert short["remedies"][0]["command"] == "timewright schedule update short --end-at null"
    for answer in (twice, short):
        follow(empty, answer)
        assert explain(empty, answer["schedule"])["status"] == "planned"


def test_an_archived_schedule_names_who_archived_it(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="old", every="1m", note="x")
    empty.ask("schedule archive", schedule="old", reason="not needed")
    answer = explain(empty, "old")
    assert answer["because"][0] == "it was archived by ada at 2026-03-10T12:00:00Z: not needed"
    assert answer["remedies"] == []


def test_a_pending_schedule_names_its_creator_and_can_be_approved(empty: OperationsHarness) -> None:
    empty.ask("namespace set", name="default", agent_approval=True)
    bot = context_for(empty.context, Caller(actor="bot", origin="agent", scopes=ROLES["editor"]))
    operations["schedule create"](bot, {"name": "idea", "every": "1m", "note": "x"})
    answer = explain(empty, "idea")
    assert (answer["status"], answer["policy"]) == ("pending_approval", {})
    assert answer["because"] == ["bot (agent) created it, and it is not approved yet"]
    follow(empty, answer)
    assert explain(empty, "idea")["status"] == "planned"


def test_an_agent_is_told_to_ask_a_person_instead_of_a_remedy_it_may_not_use(
    empty: OperationsHarness,
) -> None:
    empty.ask("schedule create", name="billing", every="1m", note="x")
    empty.ask("schedule pause", schedule="billing", reason="prices")
    bot = context_for(empty.context, Caller(actor="bot", origin="agent", scopes=ROLES["editor"]))
    for at in ({}, {"at": "2026-03-10T12:01:00Z"}):
        answer = operations["schedule explain"](bot, {"schedule": "billing", **at})
        assert answer["remedies"] == []
        assert answer["because"][-1] == (
            "an agent may not end this pause: billing was paused by ada; ask a person to resume it"
        )
    assert explain(empty, "billing")["remedies"][0]["operation"] == "schedule resume"
    empty.ask("schedule resume", schedule="billing")
    operations["schedule pause"](bot, {"schedule": "billing"})
    (way,) = operations["schedule explain"](bot, {"schedule": "billing"})["remedies"]
    assert way["operation"] == "schedule resume"
    empty.ask("namespace set", name="default", agent_approval=True)
    answer = operations["schedule explain"](bot, {"schedule": "billing"})
    assert answer["remedies"] == []
    assert answer["because"][-1].endswith("ask a person to use schedule resume")


def test_a_schedule_paused_with_its_group_has_group_resume_as_remedy(empty: OperationsHarness) -> None:
    for name in ("one", "two"):
        empty.ask("schedule create", name=name, every="1m", note=name, group="g")
    empty.ask("group pause", group="g", reason="incident")
    follow(empty, explain(empty, "one"))
    assert explain(empty, "two")["status"] == "planned"


@pytest.mark.parametrize(("field", "value"), [("limits", ["mail"]), ("queue", "mail")])
def test_a_run_at_a_full_limit_names_it_and_starts_when_it_is_raised(
    empty: OperationsHarness, field: str, value: Any
) -> None:
    empty.ask("limit set", limit="mail", max_running=1)
    for name in ("first", "second"):
        empty.ask("schedule create", name=name, every="1m", call=name, **{field: value})
        empty.bench.target.script(name, LONG)
    empty.advance(minutes=1, seconds=5)
    answer = empty.ask("run explain", run=newest(empty, "second"))
    kind = "limit" if field == "limits" else "queue"
    assert answer["because"][-1] == f"{kind} mail is full: it allows 1, and 1 are running"
    assert answer["summary"].endswith("waits to start")
    follow(empty, answer)
    empty.advance(seconds=5)
    assert empty.ask("run get", run=answer["run"]["id"])["run"]["state"] == "leased"


def test_the_next_occurrence_names_the_run_that_is_still_active(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="slow", every="5m", call="slow")
    empty.bench.target.script("slow", LONG)
    empty.advance(minutes=6)
    answer, run = explain(empty, "slow"), newest(empty, "slow")
    assert (
        f"if {run}, which is running now, has not ended by then, overlap: skip decides" in answer["because"]
    )
    assert follow(empty, answer)["run"]["id"] == run


def test_a_too_old_missed_occurrence_suggests_a_longer_catch_up_window(
    empty: OperationsHarness,
) -> None:
    words = {"every": "1h", "note": "x", "catch_up_window": "3h"}
    empty.ask("schedule create", name="each", catch_up="all", **words)
    empty.ask("schedule create", name="last", **words)
    empty.sleep(hours=10, minutes=5)
    empty.advance(seconds=5)
    at = "2026-03-10T14:00:00Z"
    asked = [explain(empty, name, at=at)["remedies"][0]["request"] for name in ("each", "last")]
    assert asked[0] == {"schedule": "each", "catch_up_window": "9h"}
    assert asked[1] == {"schedule": "last", "catch_up": "all", "catch_up_window": "9h"}


def test_a_used_up_budget_makes_the_next_occurrence_wait(empty: OperationsHarness) -> None:
    empty.ask("budget set", budget="day", unit="requests", limit=1)
    empty.ask("schedule create", name="eager", every="1m", note="x", budgets=["day"])
    empty.advance(minutes=1)
    assert explain(empty, "eager")["summary"] == "eager: 2026-03-10T12:02:00Z will be due, and then wait"


def test_a_lengthened_interval_after_failures_is_explained(empty: OperationsHarness) -> None:
    words = {"every": "1m", "call": "bad", "cadence": "stretch", "retry": {"max_attempts": 1}}
    empty.ask("schedule create", name="bad", **words)
    empty.bench.target.script("bad", fail("no"), fail("no"))
    empty.advance(minutes=4)
    assert "2 consecutive runs failed: its cadence lengthens" in " | ".join(explain(empty, "bad")["because"])


def test_an_unhandled_occurrence_suggests_instance_list(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="late", every="1m", note="x")
    run = empty.ask("schedule run", schedule="late")["run"]["id"]
    empty.sleep(minutes=5)
    for answer in (explain(empty, "late"), empty.ask("run explain", run=run)):
        assert "check that one is running" in answer["because"][-1]
        assert "instances" in follow(empty, answer)


def test_a_run_in_the_future_names_when_it_may_start(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="spring", every="1h", note="x", start_at="2026-04-01T00:00:00Z")
    answer = explain(empty, "spring")
    assert "it does not run before its start_at, 2026-04-01T00:00:00Z" in answer["because"]


def test_a_pause_is_the_reason_also_for_what_came_due_shortly_before_it(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", every="1m", note="x", group="reports")
    empty.bench.clock.advance(timedelta(minutes=1, seconds=10))
    empty.ask("pause", scope="group", name="reports", due="wait")
    empty.bench.clock.advance(timedelta(seconds=10))
    answer = explain(empty, "report")
    assert "nothing starts: group reports is paused" in answer["summary"]
    assert follow(empty, answer)["paused"] is False
