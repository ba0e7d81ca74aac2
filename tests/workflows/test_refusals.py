"""Invalid workflows are rejected with the path of the error, and are not stored."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.workflows.workflow_kit import JsonObject, WorkflowHarness, call_step
from timewright.errors import InvalidInput, TimewrightError

DIAMONDS = 40


def flow(*steps: Any, **fields: Any) -> JsonObject:
    return {"name": "flow", "steps": list(steps), **fields}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"in": value}
    return value


REFUSED: list[tuple[str, JsonObject, str]] = [
    ("a cycle", flow(call_step("a", "c"), call_step("b", "a"), call_step("c", "b")), "steps[0].needs[0]"),
    ("a self edge", flow(call_step("a", "a")), "steps[0].needs[0]"),
    ("too many needs", flow(*(call_step(f"s{i}", *["x"] * 100) for i in range(501))), "steps"),
    ("a name twice", flow(call_step("a"), call_step("a")), "steps[1].name"),
    ("a name that differs only in case", flow(call_step("fetch"), call_step("Fetch")), "steps[1].name"),
    ("a missing reference", flow(call_step("a", "b")), "steps[0].needs[0]"),
    (
        "a reference that makes a cycle",
        flow(call_step("a", "b"), call_step("b", input={"x": {"$from": "steps.a.result"}})),
        "steps[0].needs[0]",
    ),
    (
        "a retry inside a retry",
        flow({"name": "a", "target": {"workflow": "other"}, "retry": {"max_attempts": 2}}),
        "steps[0].retry.max_attempts",
    ),
    (
        "time limits that contradict",
        flow(call_step("a", time_limit="2h"), time_limit="1h"),
        "steps[0].time_limit",
    ),
    (
        "a request that may outlast its step",
        flow({"name": "a", "target": {"url": "https://example.com", "timeout": "2m"}, "time_limit": "1m"}),
        "steps[0].target.timeout",
    ),
    ("no steps", flow(), "steps"),
    ("deep nesting", flow(call_step("a", input=nested(60))), "steps[0].input"),
    ("an unknown key", flow({**call_step("a"), "need": ["b"]}), "steps[0].need"),
    (
        "a key in input and in the target",
        flow({"name": "a", "target": {"call": "f", "args": {"x": 1}}, "input": {"x": 2}}),
        "steps[0].target.args",
    ),
    (
        "an answer as a URL",
        flow(call_step("a"), {"name": "b", "needs": ["a"], "target": {"url": "{{ steps.a.result }}"}}),
        "steps[1].target.url",
    ),
    (
        "an answer as a command",
        flow(
            call_step("a"),
            {"name": "b", "needs": ["a"], "target": {"shell": ["sh", {"$from": "steps.a.result"}]}},
        ),
        "steps[1].target.shell[1]",
    ),
    ("itself as a step", flow({"name": "a", "target": {"workflow": "flow"}}), "steps[0].target.workflow"),
    ("a condition that says nothing", flow(call_step("a", when="steps.")), "steps[0].when"),
    (
        "a cron that never fires",
        flow(call_step("a"), schedules=[{"cron": "0 0 31 2 *"}]),
        "schedules[0].trigger",
    ),
    (
        "a zone nobody knows",
        flow(call_step("a"), schedules=[{"cron": "0 0 * * *", "zone": "Mars/Base"}]),
        "schedules[0].trigger.zone",
    ),
    (
        "another workflow in its schedule",
        flow(call_step("a"), schedules=[{"cron": "0 0 * * *", "workflow_id": "b"}]),
        "schedules[0]",
    ),
]


@pytest.mark.parametrize(("what", "draft", "where"), REFUSED, ids=[what for what, _, _ in REFUSED])
def test_an_invalid_workflow_is_rejected_with_the_path_and_not_stored(
    harness: WorkflowHarness, what: str, draft: JsonObject, where: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        harness.ask("workflow put", draft)
    field = refusal.value.field or ""
    assert field == where or field.startswith(f"{where}."), (what, field)
    assert refusal.value.rule
    assert refusal.value.fix
    assert harness.ask("workflow list")["workflows"] == []
    assert harness.ask("schedule list")["schedules"] == []


@pytest.mark.parametrize(
    "draft",
    [
        flow(*({"name": "a", "target": {"note": "x"}} for _ in range(200_000))),
        flow({"name": "a", "target": {"note": "x"}, "needs": ["b"] * 1_000_000}),
        {"name": "flow", "steps": nested(100_000)},
    ],
    ids=["steps without end", "needs without end", "levels without end"],
)
def test_an_exploding_workflow_is_rejected_in_bounded_time(
    harness: WorkflowHarness, draft: JsonObject
) -> None:
    began = time.process_time()
    with pytest.raises(TimewrightError) as refusal:
        harness.ask("workflow put", draft)
    assert refusal.value.rule
    assert len(refusal.value.message) < 1000
    assert time.process_time() - began < 5


def test_forty_diamonds_in_a_row_are_a_workflow_like_any_other(harness: WorkflowHarness) -> None:
    steps = [call_step("j0")]
    for n in range(DIAMONDS):
        steps += [
            call_step(f"l{n}", f"j{n}"),
            call_step(f"r{n}", f"j{n}"),
            call_step(f"j{n + 1}", f"l{n}", f"r{n}"),
        ]
    harness.put(*steps)
    run = harness.start()
    assert harness.state(run) == "succeeded"
    assert len(harness.children(run)) == 1 + 3 * DIAMONDS
    assert set(harness.launches().values()) == {1}


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({}, "input.day", "input day of workflow flow is missing"),
        ({"day": 7}, "input.day", "input day of workflow flow is 7"),
        ({"day": "x", "count": True}, "input.count", "input count of workflow flow is true"),
        ({"day": "x", "count": 1.5}, "input.count", "input count of workflow flow is 1.5"),
        ({"day": "x", "tables": "a"}, "input.tables", 'input tables of workflow flow is "a"'),
        ({"day": "x", "dya": "y"}, "input.dya", "input dya of workflow flow is not known"),
    ],
)
def test_an_input_of_another_type_is_refused(
    harness: WorkflowHarness, given: dict[str, Any], field: str, message: str
) -> None:
    types = {"day": "text", "count": "integer", "tables": "list"}
    harness.put(call_step("a"), input={"count": 3, "tables": None}, input_types=types)
    with pytest.raises(InvalidInput) as refusal:
        harness.ask("workflow run", workflow="flow", input=given)
    assert (refusal.value.field, refusal.value.message) == (field, message)
    assert refusal.value.fix == "input: {day: TEXT, count: 1, tables: […]}"
    harness.start(input={"day": "x", "tables": None})


def test_an_input_of_another_type_fails_the_run_of_a_schedule(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), input_types={"day": "text"}, schedules=[{"every": "1h"}])
    for _ in range(3):
        harness.advance(hours=1)
    run = harness.bench.runs("flow")[0]
    assert (run.state, run.error) == ("failed", "input day of workflow flow is missing")


@pytest.mark.parametrize("where", ["default", "schedule"])
def test_a_default_or_an_input_of_a_schedule_with_another_type_is_refused(
    harness: WorkflowHarness, where: str
) -> None:
    wrong = {"day": 1}
    fields = {"input": wrong} if where == "default" else {"schedules": [{"every": "1h", "input": wrong}]}
    with pytest.raises(InvalidInput, match="input day of workflow flow is 1"):
        harness.put(call_step("a"), input_types={"day": "text"}, **fields)
