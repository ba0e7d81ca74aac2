"""Workflows in Python code are the same values as files."""

from __future__ import annotations

from datetime import datetime

import pytest

from timewright import Scheduler
from timewright.core.workflow.checks import decode_workflow
from timewright.errors import InvalidInput, InvalidWorkflow
from timewright.interfaces.python.workflow_builder import WorkflowBuilder

FILE = {
    "name": "nightly-load",
    "deadline": "6h",
    "input": {"day": "today"},
    "input_types": {"day": "text"},
    "steps": [
        {"name": "fetch", "target": "fetch", "input": {"day": {"$from": "input.day"}}},
        {
            "name": "load",
            "target": "load",
            "needs": ["fetch"],
            "each": {"$from": "steps.fetch.result.rows", "limit": 10_000, "max_running": 3},
            "input": {"row": {"$from": "item"}},
        },
        {
            "name": "check",
            "needs": ["load"],
            "wait": {"answer": {"form": {"ok": "boolean"}}, "until": "2d"},
            "input": {"rows": {"$from": "steps.load.result"}},
        },
        {"name": "say", "target": {"note": "{{ steps.fetch.state }} {{ run.id }}"}, "needs": ["fetch"]},
    ],
}


def test_the_decorated_function_builds_the_same_value_as_the_file() -> None:
    app = Scheduler(":memory:")

    @app.workflow(deadline="6h")
    def nightly_load(wf: WorkflowBuilder, day: str = "today") -> None:
        fetched = wf.step("fetch", input={"day": day})
        loaded = wf.step("load", each=fetched.result.rows, max_running=3, input={"row": wf.item})
        wf.wait("check", answer={"form": {"ok": "boolean"}}, until="2d", input={"rows": loaded})
        wf.step("say", {"note": f"{fetched.state} {wf.run.id}"})

    assert nightly_load.check() == decode_workflow(FILE)
    app.stop()


def test_a_fault_is_found_without_a_store() -> None:
    app = Scheduler(":memory:")

    @app.workflow()
    def wrong(wf: WorkflowBuilder) -> None:
        wf.step("a", when="steps.b.result ==")

    with pytest.raises(InvalidWorkflow) as error:
        wrong.check()
    assert error.value.field == "steps[0].when"
    app.stop()


def test_the_input_has_the_types_of_the_parameters() -> None:
    app = Scheduler(":memory:")

    @app.workflow()
    def typed(wf: WorkflowBuilder, count: int, names: list[str] = []) -> None:  # noqa: B006 - read only
        wf.step("work", input={"count": count, "names": names})

    assert typed.checked_input({"count": 3, "names": ["a"]}) == {"count": 3, "names": ["a"]}
    for given, field in (({}, "count"), ({"count": "3"}, "count"), ({"count": 3, "more": 1}, "more")):
        with pytest.raises(InvalidInput) as error:
            typed.checked_input(given)
        assert error.value.field == field
    typed.put()
    with pytest.raises(InvalidInput, match="input count of workflow typed is"):
        app.call("workflow run", workflow="typed", input={"count": "3"})
    app.stop()


def test_a_type_that_a_file_cannot_say_is_any() -> None:
    app = Scheduler(":memory:")

    @app.workflow()
    def typed(wf: WorkflowBuilder, a: int | None, b: dict[str, int], c: datetime, d: object = 1) -> None:
        wf.step("work", input={"a": a, "b": b, "c": c, "d": d})

    assert typed.value["input_types"] == {"a": "any", "b": "object", "c": "text", "d": "any"}
    app.stop()


def test_the_start_stores_workflows_and_their_schedules() -> None:
    app = Scheduler(":memory:")

    @app.workflow(schedules=[{"cron": "0 6 * * *"}])
    def daily(wf: WorkflowBuilder) -> None:
        wf.step("say", {"note": "hello"})

    with app:

        @app.workflow
        def later_on(wf: WorkflowBuilder) -> None:
            wf.step("say", {"note": "hello"})

        assert [one.workflow for one in app.workflows.list().workflows] == ["daily", "later-on"]
        assert app.schedules.get("daily").schedule.owner == "workflow:daily"
        assert (later_on.put().change, daily.put().change) == ("unchanged", "unchanged")
