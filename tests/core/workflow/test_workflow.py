"""Workflows: validation, which steps may start, step input, and the status of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.policies.policies import Retry
from timewright.core.run.run import RunState
from timewright.core.target import AnyTarget, Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.core.workflow import (
    MAX_EDGES,
    MAX_STEPS,
    Each,
    RunIf,
    Step,
    WorkflowSpec,
    layers,
    render_graph,
    skip_reason,
    successors,
)
from timewright.core.workflow.checks import decode_workflow, validate
from timewright.core.workflow.step_input import add_input, each_items, resolve_input
from timewright.errors import InvalidInput, InvalidWorkflow

REFUSED = json.loads(
    (Path(__file__).parents[1] / "data" / "workflows" / "refused.json").read_text(encoding="utf-8")
)

SUCCEEDED, FAILED, SKIPPED = RunState.SUCCEEDED, RunState.FAILED, RunState.SKIPPED
WORK = Call(name="work")


def step(name: str, *needs: str, **more: Any) -> Step:
    return Step(name=name, target=more.pop("target", WORK), needs=needs, **more)


def workflow(*steps: Step, **more: Any) -> WorkflowSpec:
    spec = WorkflowSpec(name="w", steps=steps, **more)
    validate(spec)
    return spec


# ------------------------------------------------------------------------------------------ validation


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["why"])
def test_an_invalid_workflow_is_refused_with_the_path_if(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_workflow(case["raw"])
    assert refused.value.field == case["field"]
    assert case["says"] in refused.value.message
    assert refused.value.rule
    assert refused.value.fix
    assert case.get("fix") in (None, refused.value.fix)


def test_a_complete_definition_is_decoded_completely() -> None:
    raw = {
        "name": "report",
        "namespace": "team",
        "version": 3,
        "description": "every night",
        "input": {"region": "eu"},
        "time_limit": "1h",
        "executor": {"kind": "http", "url": "https://engine.example.com/start", "method": "POST"},
        "schedules": [{"name": "nightly", "cron": "0 3 * * *"}],
        "steps": [
            {
                "name": "fetch",
                "description": "the orders",
                "target": {"kind": "http", "url": "https://example.com/{{7*7}}", "timeout": "10s"},
                "input": {"region": {"$from": "input.region"}},
            },
            {
                "name": "load",
                "target": {"kind": "call", "name": "load"},
                "needs": ["fetch"],
                "when": "steps.fetch.result.count > 0",
                "each": {"$from": "steps.fetch.result.items", "limit": 20},
                "input": {"id": {"$from": "item.id"}, "note": {"$from": "item.note", "default": ""}},
                "retry": {"max_attempts": 5, "backoff": {"kind": "constant", "wait": "2s"}},
                "time_limit": "15m",
                "run_if": "any",
            },
        ],
    }
    spec = decode_workflow(raw)
    assert spec.version == 3
    assert spec.steps[1].time_limit == timedelta(minutes=15)
    assert spec.steps[1].each == Each(source="steps.fetch.result.items", limit=20)
    assert spec.steps[1].run_if is RunIf.ANY
    assert spec.schedules == ({"name": "nightly", "cron": "0 3 * * *"},)
    assert spec.merge_input({"day": 1}) == {"region": "eu", "day": 1}


def test_braces_of_other_languages_are_not_templates() -> None:
    command = ("docker", "inspect", "--format", "{{.State.Status}}", "${HOME}")
    workflow(
        step("a", target=Shell(command=command)),
        step("b", target=Http(url="https://example.com", body={"text": "{{ steps.a.result }}"})),
    )


def test_a_step_that_starts_a_workflow_leaves_retrying_to_it() -> None:
    assert step("a", target=Workflow(workflow="x")).effective_retry.max_attempts == 1
    assert step("a").effective_retry == Retry()
    assert step("a", retry=Retry(max_attempts=9)).effective_retry.max_attempts == 9
    with pytest.raises(InvalidWorkflow, match="nested retries"):
        workflow(step("a", target=Workflow(workflow="x"), retry=Retry(max_attempts=2)))


def test_the_default_timeout_of_a_request_does_not_contradict_a_short_step() -> None:
    workflow(step("a", target=Http(url="https://example.com"), time_limit=timedelta(seconds=10)))


def test_a_negative_time_limit_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        workflow(step("a", time_limit=timedelta(seconds=-1)))
    assert refused.value.field == "steps[0].time_limit"


def test_nesting_too_deep_is_refused_wherever_it_is() -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = {"a": deep}
    plain = {"name": "a", "target": {"call": "f"}}
    for raw in (
        {"steps": [{**plain, "input": {"x": deep}}]},
        {"steps": [{"name": "a", "target": {"kind": "call", "name": "f", "args": {"x": deep}}}]},
        {"steps": [plain], "input": deep},
    ):
        with pytest.raises(InvalidWorkflow, match="too deep"):
            decode_workflow({"name": "w", **raw})
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidWorkflow, match="too deep"):
        decode_workflow({"name": "w", "steps": [{"name": "a", "target": deep}]})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"input": {"x": [object()]}}, "steps[0].input.x[0]"),
        ({"input": {"x": float("nan")}}, "steps[0].input.x"),
        ({"input": {"x": {1: 2}}}, "steps[0].input.x"),
        ({"target": print}, "steps[0].target"),
    ],
)
def test_python_objects_are_refused_with_their_path(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_workflow({"name": "w", "steps": [{"name": "a", "target": {"call": "f"}, **change}]})
    assert refused.value.field == field


def test_exponentially_shared_steps_are_refused() -> None:
    bomb: list[Any] = ["x"] * 10
    for _ in range(9):
        bomb = [bomb] * 10
    with pytest.raises(InvalidWorkflow, match="too large"):
        decode_workflow(
            {"name": "w", "steps": [{"name": "a", "target": {"kind": "call", "name": "f", "args": bomb}}]}
        )


def raw_workflow(count: int, needs: Callable[[int], list[str]]) -> dict[str, Any]:
    return {
        "name": "big",
        "steps": [
            {"name": f"s{n}", "target": {"kind": "call", "name": "work"}, "needs": needs(n)}
            for n in range(count)
        ],
    }


def in_the_time_of(work: Callable[[], Any], seconds: float) -> Any:
    begun = thread_time()
    done = work()
    assert thread_time() - begun < seconds
    return done


def test_a_million_steps_or_needs_are_refused_quickly() -> None:
    million = {"name": "big", "steps": raw_workflow(1, lambda _: [])["steps"] * 1_000_000}
    edges = raw_workflow(2_000, lambda n: [f"s{m}" for m in range(min(n, 600))])
    for raw, says in ((million, "1000000 steps"), (edges, "needs")):
        with pytest.raises(InvalidWorkflow, match=says) as refused:
            in_the_time_of(partial(decode_workflow, raw), 5)
        assert refused.value.field == "steps"


def test_the_maximum_number_of_steps_and_needs_is_processed_quickly() -> None:
    raw = raw_workflow(MAX_STEPS, lambda n: [f"s{m}" for m in range(max(0, n - 5), n)])
    assert sum(len(one["needs"]) for one in raw["steps"]) <= MAX_EDGES
    spec = in_the_time_of(lambda: decode_workflow(raw), 10)
    assert len(in_the_time_of(lambda: layers(spec), 5)) == MAX_STEPS
    assert "… and 9800 more" in in_the_time_of(lambda: render_graph(spec), 2)


def test_ten_thousand_steps_into_one_cost_no_more_than_a_chain() -> None:
    last = MAX_STEPS - 1
    spec = decode_workflow(
        raw_workflow(MAX_STEPS, lambda n: [f"s{m}" for m in range(last)] if n == last else [])
    )
    assert len(in_the_time_of(lambda: layers(spec), 5)) == 2


def test_a_cycle_of_ten_thousand_steps_is_found_and_shown_shortened() -> None:
    raw = raw_workflow(MAX_STEPS, lambda n: [f"s{(n + 1) % MAX_STEPS}"])
    with pytest.raises(
        InvalidWorkflow, match=r"a cycle of 10000 steps: s0 needs s1 needs .* needs … s0"
    ) as refused:
        in_the_time_of(lambda: decode_workflow(raw), 10)
    assert len(refused.value.message) < 300


def test_forty_nested_diamonds_take_linear_time() -> None:
    steps = [step("j0")]
    for n in range(40):
        steps += [step(f"a{n}", f"j{n}"), step(f"b{n}", f"j{n}"), step(f"j{n + 1}", f"a{n}", f"b{n}")]
    spec = in_the_time_of(lambda: workflow(*steps), 5)
    assert len(layers(spec)) == 81


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["name", "steps", "target", "kind", "needs", "when", "each", "$from", "input", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_data_is_a_workflow_or_refused(raw: Any) -> None:
    for attempt in (raw, {"name": "w", "steps": raw}, {"name": "w", "steps": [{"name": "a", "target": raw}]}):
        with suppress(InvalidInput):
            assert decode_workflow(attempt).steps


# ------------------------------------------------------------------------------ conditions and order

DIAMOND = workflow(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


@pytest.mark.parametrize(
    ("run_if", "became", "why"),
    [
        (RunIf.SUCCEEDED, (SUCCEEDED, SUCCEEDED), None),
        (RunIf.SUCCEEDED, (SUCCEEDED, SKIPPED), "needs b, which is skipped"),
        (RunIf.SUCCEEDED, (RunState.CANCELLED, SUCCEEDED), "needs a, which is cancelled"),
        (RunIf.ANY, (SUCCEEDED, FAILED), None),
        (RunIf.ANY, (SKIPPED, SUCCEEDED), None),
        (RunIf.ANY, (SKIPPED, FAILED), "none of its needs succeeded"),
        (RunIf.FAILED, (SUCCEEDED, FAILED), None),
        (RunIf.FAILED, (RunState.CANCELLED, SUCCEEDED), None),
        (RunIf.FAILED, (SUCCEEDED, SKIPPED), "none of its needs failed"),
        (RunIf.ALWAYS, (FAILED, FAILED), None),
        (RunIf.ALWAYS, (SKIPPED, RunState.CANCELLED), None),
    ],
)
def test_run_if_checks_the_states_of_the_needs(
    run_if: RunIf, became: tuple[RunState, RunState], why: str | None
) -> None:
    one = step("c", "a", "b", run_if=run_if)
    assert skip_reason(one, dict(zip("ab", became, strict=True)), {}) == why


def test_a_false_condition_skips_the_step_with_a_reason() -> None:
    one = step("b", "a", when="steps.a.result.count == 0 and input.notify")
    for count, notify, is_skipped in ((0, True, False), (0, False, True), (3, True, True)):
        scope = {"steps": {"a": {"result": {"count": count}}}, "input": {"notify": notify}}
        why = skip_reason(one, {"a": SUCCEEDED}, scope)
        assert why == (f"when {one.when} is false" if is_skipped else None)


def test_a_step_with_run_if_always_can_read_the_failure() -> None:
    one = step("tell", "a", run_if=RunIf.ALWAYS, when="steps.a.state != 'succeeded'")
    for state in (FAILED, SUCCEEDED):
        why = skip_reason(one, {"a": state}, {"steps": {"a": {"state": state.value}}})
        assert (why is None) == (state is FAILED)


def test_successors_are_in_the_order_of_the_definition() -> None:
    assert successors(DIAMOND) == {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}


@st.composite
def dags(draw: st.DrawFn) -> WorkflowSpec:
    count = draw(st.integers(1, 12))
    steps: list[Step] = []
    for n in range(count):
        needs = tuple(f"s{m}" for m in range(n) if draw(st.integers(0, 3)) == 0)
        run_if = draw(st.sampled_from(RunIf)) if needs else RunIf.SUCCEEDED
        conditional = bool(needs) and draw(st.booleans())
        when = f"steps.{needs[0]}.result > 4" if conditional else None
        steps.append(step(f"s{n}", *needs, run_if=run_if, when=when))
    draw(st.randoms(use_true_random=False)).shuffle(steps)
    return workflow(*steps)


@given(spec=dags())
def test_layers_put_every_step_after_all_it_needs(spec: WorkflowSpec) -> None:
    depth = {one.name: n for n, layer in enumerate(layers(spec)) for one in layer}
    assert len(depth) == len(spec.steps)
    for one in spec.steps:
        assert depth[one.name] == max((depth[need] + 1 for need in one.needs), default=0)


@given(spec=dags(), data=st.data())
def test_a_cycle_is_found(spec: WorkflowSpec, data: st.DataObject) -> None:
    wired = [one for one in spec.steps if one.needs]
    if not wired:
        return
    last = data.draw(st.sampled_from(wired))
    steps = tuple(
        step(one.name, *one.needs, last.name) if one.name == last.needs[0] else step(one.name, *one.needs)
        for one in spec.steps
    )
    with pytest.raises(InvalidWorkflow, match="a cycle of") as refused:
        validate(WorkflowSpec(name="w", steps=steps))
    shown = refused.value.message.split(": ")[-1].split(" needs ")
    needs = {one.name: one.needs for one in steps}
    assert shown[0] == shown[-1]
    assert all(after in needs[before] for before, after in pairwise(shown))


# ------------------------------------------------------------------------------------- step input


def test_references_are_resolved_at_any_depth() -> None:
    one = step(
        "load",
        "fetch",
        input={
            "all": {"$from": "steps.fetch.result"},
            "first": [{"id": {"$from": "steps.fetch.result.items[0].id"}}],
            "region": {"$from": "input.region"},
            "plain": {"a": [1, None, "steps.fetch.result"]},
        },
    )
    fetched = {"items": [{"id": 7}]}
    assert resolve_input(one, {"steps": {"fetch": {"result": fetched}}, "input": {"region": "eu"}}) == {
        "all": {"items": [{"id": 7}]},
        "first": [{"id": 7}],
        "region": "eu",
        "plain": {"a": [1, None, "steps.fetch.result"]},
    }


@pytest.mark.parametrize("path", [5, None, ["steps", "a"], {"steps": "a"}])
def test_a_reference_whose_path_is_not_text_is_refused(path: Any) -> None:
    steps = [{"name": "a", "target": "f"}, {"name": "b", "target": "f", "input": {"x": {"$from": path}}}]
    with pytest.raises(InvalidWorkflow, match=r"^steps\[1\].input.x: \$from is not a path"):
        decode_workflow({"name": "w", "steps": steps})


def test_the_default_replaces_a_missing_value_but_not_null() -> None:
    one = step("b", "a", input={"x": {"$from": "steps.a.result.x", "default": 5}})
    assert resolve_input(one, {"steps": {"a": {"result": {"x": None}}}}) == {"x": None}
    assert resolve_input(one, {"steps": {"a": {"result": {}}}}) == {"x": 5}
    assert resolve_input(one, {}) == {"x": 5}


def test_a_reference_without_a_value_is_refused_with_its_path() -> None:
    one = step("b", "a", input={"deep": [{"x": {"$from": "steps.a.result.x"}}]})
    with pytest.raises(InvalidWorkflow, match="finds no value") as refused:
        resolve_input(one, {"steps": {"a": {"result": {}}}})
    assert refused.value.field == "b.input.deep[0].x"


def test_a_step_runs_for_each_item_of_a_list_up_to_its_limit() -> None:
    one = step(
        "load", "fetch", each=Each(source="steps.fetch.result", limit=3), input={"id": {"$from": "item.id"}}
    )

    def items(result: Any) -> tuple[Any, ...]:
        return each_items(one, {"steps": {"fetch": {"result": result}}})

    given_ids = [resolve_input(one, {"item": item}) for item in items([{"id": 1}, {"id": 2}])]
    assert given_ids == [{"id": 1}, {"id": 2}]
    assert items([]) == ()
    for result, what in (([1] * 4, "4 items"), ({"id": 1}, "no list"), (None, "no list")):
        with pytest.raises(InvalidWorkflow, match=what):
            items(result)
    assert each_items(step("plain"), {}) == ()


@pytest.mark.parametrize(
    ("target", "given_to"),
    [
        (Call(name="f", args={"a": 1}), Call(name="f", args={"a": 1, "x": 2})),
        (Http(url="https://example.com"), Http(url="https://example.com", body={"x": 2})),
        (
            Publish(to="celery", name="t", payload={"a": 1}),
            Publish(to="celery", name="t", payload={"a": 1, "x": 2}),
        ),
        (Handoff(), Handoff(payload={"x": 2})),
        (Workflow(workflow="w", input={"a": 1}), Workflow(workflow="w", input={"a": 1, "x": 2})),
        (Note(text="t"), Note(text="t")),
        (Shell(command=("ls",)), Shell(command=("ls",), env={"TIMEWRIGHT_INPUT": '{"x":2}'})),
    ],
)
def test_input_is_added_to_the_targets_data_only(target: AnyTarget, given_to: AnyTarget) -> None:
    assert add_input(target, {"x": 2}) == given_to
    assert add_input(target, {}) == target


def test_an_input_too_large_for_a_commands_environment_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="does not fit"):
        add_input(Shell(command=("ls",)), {"x": "a" * 200_000})


# ----------------------------------------------------------------------------------------- graph as text


def test_a_workflow_is_rendered_by_layers() -> None:
    spec = workflow(
        step("fetch"),
        step("parse", "fetch", when="steps.fetch.result.ok"),
        step("clean", "fetch", each=Each(source="steps.fetch.result.items")),
        step("load", "parse", "clean", run_if=RunIf.ANY),
    )
    assert render_graph(spec).splitlines() == [
        "w v1: 4 steps, 4 needs, 3 layers",
        "  1 fetch",
        "  2 parse  ← fetch  when steps.fetch.result.ok",
        "    clean  ← fetch  for each of steps.fetch.result.items",
        "  3 load   ← parse, clean  if any",
    ]
