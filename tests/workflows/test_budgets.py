"""Steps draw on the budgets of the schedule that started their workflow, and wait like any run."""

from __future__ import annotations

from tests.workflows.stage import Stage, note
from timewright.core.costs import Cost
from timewright.testing.targets import succeed


def test_steps_draw_on_the_budgets_of_their_workflow_and_it_ends_when_they_could_go_on(stage: Stage) -> None:
    stage.ask("budget set", budget="calls", unit="requests", limit=2)
    stage.ask("budget set", budget="tokens", unit="tokens", limit=1000, function="second")
    stage.put(note("first"), note("second", "first"), note("third", "second"))
    stage.script(second=succeed(cost=Cost(tokens=70)))
    stage.ask("schedule create", name="nightly", manual=True, workflow="flow", budgets=["calls"])
    run = stage.ask("schedule run", schedule="nightly")["run"]["id"]
    stage.bench.tick()
    assert stage.steps(run) == {"first": "succeeded", "second": "succeeded", "third": "ready"}
    third = stage.step_run(run, "third")
    assert third.reason.startswith("budget: calls: 2 requests used or held of 2 requests")
    assert (third.fire_at.isoformat(), third.attempts) == ("2026-03-11T00:00:00+00:00", 0)
    assert stage.ask("budget get", budget="tokens")["used"] == "70"
    stage.advance(hours=12)
    assert stage.state(run) == "succeeded"
    assert stage.ask("budget get", budget="calls")["used"] == "1"
