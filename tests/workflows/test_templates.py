"""Data between steps: templates in targets, and references that imply needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.target import Http, Note, Shell
from timewright.testing.targets import fail, succeed


def targets(harness: WorkflowHarness, kind: type) -> list[Any]:
    """The targets of a kind as they were launched."""
    return [one.target for one in harness.target.launched if isinstance(one.target, kind)]


def test_a_reference_implies_the_need(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("last", input={"x": {"$from": "steps.middle.result"}}),
        call_step("middle", when="steps.first.state == 'succeeded'"),
        {"name": "say", "target": {"note": "{{ steps.last.result }} came"}},
        call_step("first"),
    )
    harness.script(middle=succeed(7), last=succeed(8))
    run = harness.start()
    assert harness.state(run) == "succeeded"
    assert harness.given("last") == [{"x": 7}]
    assert targets(harness, Note) == [Note(text="8 came")]


def test_templates_fill_a_request_and_a_command(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("fetch"),
        {
            "name": "post",
            "target": {
                "kind": "http",
                "method": "POST",
                "url": "https://example.com/o/{{ steps.fetch.result.id }}?day={{ input.day }}",
                "headers": {"X-Run": "{{ run.id }}", "X-Mail": "{{user.mail}}"},
                "body": {
                    "rows": "{{ steps.fetch.result.rows }}",
                    "text": "got {{ steps.fetch.result.rows }}",
                },
            },
        },
        {
            "name": "copy",
            "target": {
                "kind": "shell",
                "command": ["cp", "--to={{ steps.fetch.result.id }}"],
                "env": {"DAY": "{{ run.planned_at }}"},
            },
        },
        input={"day": "x"},
    )
    harness.script(fetch=succeed({"id": "a/b c", "rows": [1, 2]}))
    run = harness.start(input={"day": "mon&day"})
    assert harness.state(run) == "succeeded"
    [request] = targets(harness, Http)
    assert request.url == "https://example.com/o/a%2Fb%20c?day=mon%26day"
    assert request.headers == {"X-Run": run, "X-Mail": "{{user.mail}}"}
    assert request.body == {"rows": [1, 2], "text": "got [1,2]"}
    [command] = targets(harness, Shell)
    assert command.command == ("cp", "--to=a/b c")
    assert command.env["DAY"].startswith(harness.run(run).planned_at.strftime("%Y-%m-%dT%H:%M"))


def test_a_step_sees_the_state_error_and_attempts_of_another(harness: WorkflowHarness) -> None:
    report = "{{ steps.load.state }}: {{ steps.load.error }} after {{ steps.load.attempts }}"
    harness.put(
        call_step("load", retry={"max_attempts": 2, "backoff": "0.01s"}),
        {"name": "report", "target": {"note": report}, "run_if": "failed"},
    )
    harness.script(load=fail("disk full"))
    harness.start()
    harness.advance(seconds=5)
    assert targets(harness, Note) == [Note(text="failed: disk full after 2")]


@pytest.mark.parametrize(("outcomes", "attempts"), [([succeed()], 1), ([fail("full"), succeed()], 2)])
def test_an_attempt_that_succeeded_is_counted(
    harness: WorkflowHarness, outcomes: list[Any], attempts: int
) -> None:
    harness.put(
        call_step("load", retry={"max_attempts": 2, "backoff": "0.01s"}),
        {"name": "report", "target": {"note": "{{ steps.load.attempts }}"}},
    )
    harness.script(load=outcomes)
    harness.start()
    harness.advance(seconds=5)
    assert targets(harness, Note) == [Note(text=str(attempts))]


def test_the_items_of_a_fan_out_and_the_schedule_have_templates(harness: WorkflowHarness) -> None:
    note = {"note": "{{ schedule.name }} {{ item.name }}"}
    harness.put(
        {"name": "say", "target": note, "each": {"$from": "input.items"}},
        input={"items": [{"name": "a"}, {"name": "b"}]},
    )
    harness.ask("schedule create", name="weekly", manual=True, target={"workflow": "flow"})
    harness.ask("schedule run", schedule="weekly")
    harness.bench.tick()
    assert [one.text for one in targets(harness, Note)] == ["weekly a", "weekly b"]
    harness.ask("workflow run", workflow="flow", input={"items": [{"name": "by hand"}]})
    harness.bench.tick()
    assert targets(harness, Note)[-1].text == " by hand"


@pytest.mark.parametrize(
    ("result", "error"),
    [({}, "finds no value"), ({"x": "secret://db"}, "names a secret"), ({"x": "a\nb: c"}, "line feed")],
)
def test_a_value_that_a_template_cannot_take_fails_the_step(
    harness: WorkflowHarness, result: Any, error: str
) -> None:
    target = {"kind": "http", "url": "https://example.com", "headers": {"X": "{{ steps.a.result.x }}"}}
    harness.put(call_step("a"), {"name": "b", "target": target})
    harness.script(a=succeed(result))
    run = harness.start()
    assert harness.steps(run)["b"] == "failed"
    assert error in harness.step_run(run, "b").reason
    assert targets(harness, Http) == []
