"""Steps use the budgets of the schedule that started their workflow."""

from __future__ import annotations

from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.budgets.costs import Cost
from timewright.testing.targets import succeed


def test_steps_draw_on_the_budgets_of_their_workflow_and_it_ends_when_they_could_go_on(
    harness: WorkflowHarness,
) -> None:
    harness.ask("budget set", budget="calls", unit="requests", limit=2)
    harness.ask("budget set", budget="tokens", unit="tokens", limit=1000, function="second")
    harness.put(call_step("first"), call_step("second", "first"), call_step("third", "second"))
    harness.script(second=succeed(cost=Cost(tokens=70)))
    harness.ask("schedule create", name="nightly", manual=True, workflow="flow", budgets=["calls"])
    run = harness.ask("schedule run", schedule="nightly")["run"]["id"]
    harness.bench.tick()
    assert harness.steps(run) == {"first": "succeeded", "second": "succeeded", "third": "ready"}
    third = harness.step_run(run, "third")
    assert third.reason.startswith("budget: calls: 2 requests used or held of 2 requests")
    assert (third.fire_at.isoformat(), third.attempts) == ("2026-03-11T00:00:00+00:00", 0)
    assert harness.ask("budget get", budget="tokens")["used"] == "70"
    harness.advance(hours=12)
    assert harness.state(run) == "succeeded"
    assert harness.ask("budget get", budget="calls")["used"] == "1"
