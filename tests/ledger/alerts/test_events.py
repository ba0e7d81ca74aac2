"""Events for subscribers: each is told once, in the transaction that makes it."""

from __future__ import annotations

from typing import Any

from tests.operations.harness import OperationsHarness
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.testing.targets import fail


def subscribed(*events: str) -> OperationsHarness:
    harness = OperationsHarness()
    harness.ask("channel create", channel="bus", to="poll", events=list(events))
    return harness


def told(harness: OperationsHarness) -> list[tuple[str, str]]:
    """Lease and complete everything that waits for the subscriber."""
    found: list[tuple[str, str]] = []
    for _ in range(50):
        leased = harness.ask("queue lease", queue="channel.bus", holder="subscriber")["leases"]
        if not leased:
            return found
        for one in leased:
            found.append((one["payload"]["type"], one["payload"].get("schedule", "")))
            harness.ask("queue complete", run=one["run"], fence=one["fence"])
    raise AssertionError("the queue never empties")


def test_success_failure_and_a_missed_run_are_told_by_their_names() -> None:
    harness = subscribed("run.succeeded", "run.failed", "run.missed")
    harness.ask("schedule create", name="good", every="1h", note="x", catch_up="none")
    harness.ask("schedule create", name="bad", every="2h", call="y")
    harness.bench.target.script("bad", fail("no"))
    harness.advance(hours=2)
    good = ("run-succeeded", "good")
    assert sorted(told(harness)) == [("run-failed", "bad"), good, good]
    harness.sleep(hours=3, minutes=30)
    harness.advance(seconds=1)
    assert ("run-missed", "good") in told(harness)


def test_a_reminder_that_is_due_is_told_with_its_text() -> None:
    harness = subscribed("reminder.due")
    harness.ask("reminder set", text="stretch", after="10m")
    harness.advance(minutes=11)
    leased = harness.ask("queue lease", queue="channel.bus", holder="subscriber")["leases"]
    assert [one["payload"]["sentence"] for one in leased] == ["stretch"]


def test_a_schedule_that_waits_for_approval_is_told_once() -> None:
    harness = subscribed("approval.wanted")
    harness.ask("namespace set", name="default", agent_approval=True)
    agent = Caller(actor="helper", origin="agent", scopes=ROLES["editor"])
    context = context_for(harness.context, agent)
    operations["schedule create"](context, {"name": "mine", "every": "1h", "note": "x"})
    assert told(harness) == [("approval-wanted", "mine")]
    assert told(harness) == []


def test_a_budget_that_is_nearly_used_up_is_told_once_a_period() -> None:
    harness = subscribed("budget.low")
    harness.ask("budget set", budget="daily", limit=5, unit="requests", period="day")
    harness.ask("schedule create", name="job", every="10m", note="x", budgets=["daily"])
    harness.advance(minutes=35)
    assert told(harness) == []
    harness.advance(minutes=20)
    assert told(harness) == [("budget-low", "")]


def test_a_quiet_tick_is_told_to_nobody() -> None:
    harness = subscribed("run.skipped")
    request: dict[str, Any] = {"watch": {"changed": "result.v"}}
    harness.ask("schedule create", name="w", every="1m", call="y", **request)
    harness.advance(minutes=5)
    assert told(harness) == []
