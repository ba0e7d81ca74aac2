"""What no workflow may be, asked through the operation: refused with the path to the fault, and not kept."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.workflows.stage import Plain, Stage, note
from timewright.errors import InvalidInput, TimewrightError

DIAMONDS = 40


def flow(*steps: Any, **fields: Any) -> Plain:
    return {"name": "flow", "steps": list(steps), **fields}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"in": value}
    return value


REFUSED: list[tuple[str, Plain, str]] = [
    ("a cycle", flow(note("a", "c"), note("b", "a"), note("c", "b")), "steps[0].needs[0]"),
    ("a self edge", flow(note("a", "a")), "steps[0].needs[0]"),
    ("too many needs", flow(*(note(f"s{i}", *["x"] * 100) for i in range(501))), "steps"),
    ("a name twice", flow(note("a"), note("a")), "steps[1].name"),
    ("a name that differs only in case", flow(note("fetch"), note("Fetch")), "steps[1].name"),
    ("a missing reference", flow(note("a", "b")), "steps[0].needs[0]"),
    (
        "a reference to a step that is not needed",
        flow(note("a"), note("b", input={"x": {"$from": "steps.a.result"}})),
        "steps[1].input.x.$from",
    ),
    (
        "a retry inside a retry",
        flow({"name": "a", "target": {"workflow": "other"}, "retry": {"max_attempts": 2}}),
        "steps[0].retry.max_attempts",
    ),
    (
        "time limits that contradict",
        flow(note("a", time_limit="2h"), time_limit="1h"),
        "steps[0].time_limit",
    ),
    (
        "a request that may outlast its step",
        flow({"name": "a", "target": {"url": "https://example.com", "timeout": "2m"}, "time_limit": "1m"}),
        "steps[0].target.timeout",
    ),
    ("no steps", flow(), "steps"),
    ("deep nesting", flow(note("a", input=nested(60))), "steps[0].input"),
    ("an unknown key", flow({**note("a"), "need": ["b"]}), "steps[0].need"),
    (
        "a key in input and in the target",
        flow({"name": "a", "target": {"call": "f", "args": {"x": 1}}, "input": {"x": 2}}),
        "steps[0].target.args",
    ),
    (
        "an answer as a URL",
        flow(note("a"), {"name": "b", "needs": ["a"], "target": {"url": "{{ steps.a.result }}"}}),
        "steps[1].target.url",
    ),
    (
        "an answer as a command",
        flow(
            note("a"), {"name": "b", "needs": ["a"], "target": {"shell": ["sh", {"$from": "steps.a.result"}]}}
        ),
        "steps[1].target.shell[1]",
    ),
    ("itself as a step", flow({"name": "a", "target": {"workflow": "flow"}}), "steps[0].target.workflow"),
    ("a condition that says nothing", flow(note("a", when="steps.")), "steps[0].when"),
    ("a cron that never fires", flow(note("a"), schedules=[{"cron": "0 0 31 2 *"}]), "schedules[0].trigger"),
    (
        "a zone nobody knows",
        flow(note("a"), schedules=[{"cron": "0 0 * * *", "zone": "Mars/Base"}]),
        "schedules[0].trigger.zone",
    ),
    (
        "another workflow in its schedule",
        flow(note("a"), schedules=[{"cron": "0 0 * * *", "workflow_id": "b"}]),
        "schedules[0]",
    ),
]


@pytest.mark.parametrize(("what", "draft", "where"), REFUSED, ids=[what for what, _, _ in REFUSED])
def test_it_is_refused_with_the_path_to_the_fault_and_nothing_is_kept(
    stage: Stage, what: str, draft: Plain, where: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        stage.ask("workflow put", draft)
    field = refusal.value.field or ""
    assert field == where or field.startswith(f"{where}."), (what, field)
    assert refusal.value.rule
    assert refusal.value.fix
    assert stage.ask("workflow list")["workflows"] == []
    assert stage.ask("schedule list")["schedules"] == []


@pytest.mark.parametrize(
    "draft",
    [
        flow(*({"name": "a", "target": {"note": "x"}} for _ in range(200_000))),
        flow({"name": "a", "target": {"note": "x"}, "needs": ["b"] * 1_000_000}),
        {"name": "flow", "steps": nested(100_000)},
    ],
    ids=["steps without end", "needs without end", "levels without end"],
)
def test_a_bomb_is_refused_in_bounded_time(stage: Stage, draft: Plain) -> None:
    began = time.process_time()
    with pytest.raises(TimewrightError) as refusal:
        stage.ask("workflow put", draft)
    assert refusal.value.rule
    assert len(refusal.value.message) < 1000
    assert time.process_time() - began < 5


def test_forty_diamonds_in_a_row_are_a_workflow_like_any_other(stage: Stage) -> None:
    steps = [note("j0")]
    for n in range(DIAMONDS):
        steps += [note(f"l{n}", f"j{n}"), note(f"r{n}", f"j{n}"), note(f"j{n + 1}", f"l{n}", f"r{n}")]
    stage.put(*steps)
    run = stage.start()
    assert stage.state(run) == "succeeded"
    assert len(stage.children(run)) == 1 + 3 * DIAMONDS
    assert set(stage.launches().values()) == {1}
