"""Workflows: validation, which steps may start, step input, and the status of a run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timewright.core.policies.policies import Retry
from timewright.core.run.run import TERMINAL_STATES, RunState
from timewright.core.target import AnyTarget, Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.core.workflow import (
    MAX_EDGES,
    MAX_STEPS,
    Each,
    RunIf,
    SkippedStep,
    Step,
    WorkflowProgress,
    WorkflowSpec,
    WorkflowStatus,
    add_input,
    decode_workflow,
    each_items,
    layers,
    ready_steps,
    render_graph,
    resolve_input,
    successors,
    validate,
    workflow_status,
)
from timewright.errors import InvalidInput, InvalidWorkflow, NotFound

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


def names(steps: tuple[Step, ...]) -> list[str]:
    return [one.name for one in steps]


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
    for spec in (
        WorkflowSpec(name="w", steps=(step("a", input={"x": deep}),)),
        WorkflowSpec(name="w", steps=(step("a", target=Call(name="f", args={"x": deep})),)),
        WorkflowSpec(name="w", steps=(step("a"),), input=deep),
    ):
        with pytest.raises(InvalidWorkflow, match="too deep"):
            validate(spec)
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidWorkflow, match="too deep"):
        decode_workflow({"name": "w", "steps": [{"name": "a", "target": deep}]})


def test_python_objects_are_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="a object"):
        workflow(step("a", input={"x": object()}))
    with pytest.raises(InvalidWorkflow, match="a function"):
        decode_workflow(
            {
                "name": "w",
                "steps": [{"name": "a", "target": test_a_negative_time_limit_is_refused_with_its_path}],
            }
        )


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
    assert in_the_time_of(lambda: run_to_the_end(spec), 5) == MAX_STEPS
    assert "… and 9800 more" in in_the_time_of(lambda: render_graph(spec), 2)


def test_ten_thousand_steps_into_one_cost_no_more_than_a_chain() -> None:
    last = MAX_STEPS - 1
    spec = decode_workflow(
        raw_workflow(MAX_STEPS, lambda n: [f"s{m}" for m in range(last)] if n == last else [])
    )
    assert in_the_time_of(lambda: run_to_the_end(spec), 5) == MAX_STEPS


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
    assert run_to_the_end(spec) == 121


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


# --------------------------------------------------------------------------------------- progress


def run_to_the_end(spec: WorkflowSpec) -> int:
    progress, count = WorkflowProgress(spec), 0
    waiting = list(progress.ready().start)
    while waiting:
        count += 1
        waiting += progress.ready_after(waiting.pop().name, SUCCEEDED).start
    assert progress.status is WorkflowStatus.SUCCEEDED
    return count


DIAMOND = workflow(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


@pytest.mark.parametrize(
    ("states", "free"),
    [
        ({}, ["a"]),
        ({"a": RunState.LEASED}, []),
        ({"a": SUCCEEDED}, ["b", "c"]),
        ({"a": SUCCEEDED, "b": RunState.READY}, ["c"]),
        ({"a": SUCCEEDED, "b": SUCCEEDED}, ["c"]),
        ({"a": SUCCEEDED, "b": SUCCEEDED, "c": RunState.PARKED}, []),
        ({"a": SUCCEEDED, "b": SUCCEEDED, "c": SUCCEEDED}, ["d"]),
        ({"a": FAILED}, []),
        ({"a": SUCCEEDED, "b": FAILED, "c": SUCCEEDED}, []),
    ],
)
def test_a_step_starts_when_everything_it_needs_succeeded(
    states: dict[str, RunState], free: list[str]
) -> None:
    assert names(ready_steps(DIAMOND, states)) == free


def test_a_failure_skips_all_steps_that_depend_on_it() -> None:
    progress = WorkflowProgress(DIAMOND)
    progress.ready()
    advance = progress.ready_after("a", FAILED)
    assert advance.start == ()
    assert advance.skip == (
        SkippedStep("b", "needs a, which is failed"),
        SkippedStep("c", "needs a, which is failed"),
        SkippedStep("d", "needs b, which is skipped"),
    )
    assert progress.status is WorkflowStatus.FAILED


def test_a_false_condition_skips_the_step_with_a_reason() -> None:
    spec = workflow(
        step("a"),
        step("b", "a", when="steps.a.result.count > 0"),
        step("c", "a", when="steps.a.result.count == 0 and input.notify"),
        step("d", "b"),
        input={"notify": True},
    )
    progress = WorkflowProgress(spec)
    advance = progress.ready_after("a", SUCCEEDED, {"count": 0})
    assert names(advance.start) == ["c"]
    assert advance.skip == (
        SkippedStep("b", "when steps.a.result.count > 0 is false"),
        SkippedStep("d", "needs b, which is skipped"),
    )
    assert progress.ready_after("c", SUCCEEDED).start == ()
    assert progress.status is WorkflowStatus.SUCCEEDED
    assert names(ready_steps(spec, {"a": SUCCEEDED}, {"a": {"count": 3}})) == ["b"]
    assert names(ready_steps(spec, {"a": SUCCEEDED}, {"a": {"count": 0}}, given={"notify": False})) == []


@pytest.mark.parametrize(
    ("run_if", "became", "runs"),
    [
        (RunIf.SUCCEEDED, (SUCCEEDED, SUCCEEDED), True),
        (RunIf.SUCCEEDED, (SUCCEEDED, SKIPPED), False),
        (RunIf.SUCCEEDED, (SUCCEEDED, RunState.CANCELLED), False),
        (RunIf.ANY, (SUCCEEDED, FAILED), True),
        (RunIf.ANY, (SKIPPED, SUCCEEDED), True),
        (RunIf.ANY, (SKIPPED, FAILED), False),
        (RunIf.ALWAYS, (FAILED, FAILED), True),
        (RunIf.ALWAYS, (SKIPPED, RunState.CANCELLED), True),
    ],
)
def test_run_if_checks_the_states_of_the_needs(
    run_if: RunIf, became: tuple[RunState, RunState], runs: bool
) -> None:
    spec = workflow(step("a"), step("b"), step("c", "a", "b", run_if=run_if))
    states = dict(zip("ab", became, strict=True))
    assert names(ready_steps(spec, states)) == (["c"] if runs else [])


def test_a_step_waits_until_all_its_needs_are_finished_for_every_run_if() -> None:
    for run_if in RunIf:
        spec = workflow(step("a"), step("b"), step("c", "a", "b", run_if=run_if))
        assert names(ready_steps(spec, {"a": SUCCEEDED, "b": RunState.LEASED})) == []


def test_a_step_with_run_if_always_can_read_the_failure() -> None:
    spec = workflow(step("a"), step("tell", "a", run_if=RunIf.ALWAYS, when="steps.a.state != 'succeeded'"))
    assert names(WorkflowProgress(spec).ready_after("a", FAILED).start) == ["tell"]
    assert names(WorkflowProgress(spec).ready_after("a", SUCCEEDED).start) == []


def test_a_step_that_finishes_twice_has_no_second_effect() -> None:
    progress = WorkflowProgress(DIAMOND)
    assert names(progress.ready_after("a", SUCCEEDED).start) == ["b", "c"]
    assert progress.ready_after("a", FAILED).start == ()
    assert progress.ready_after("a", FAILED).skip == ()
    assert progress.states["a"] is SUCCEEDED


def test_a_parked_step_is_not_finished_and_can_continue() -> None:
    progress = WorkflowProgress(DIAMOND)
    assert progress.ready_after("a", RunState.PARKED).start == ()
    assert progress.status is WorkflowStatus.PARKED
    assert names(progress.ready_after("a", SUCCEEDED).start) == ["b", "c"]


def test_a_step_of_another_workflow_is_not_found() -> None:
    with pytest.raises(NotFound):
        WorkflowProgress(DIAMOND).ready_after("z", SUCCEEDED)


def test_successors_are_in_the_order_of_the_definition() -> None:
    assert successors(DIAMOND) == {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, WorkflowStatus.RUNNING),
        ({"a": SUCCEEDED, "b": SUCCEEDED, "c": SUCCEEDED}, WorkflowStatus.RUNNING),
        (dict.fromkeys("abcd", SUCCEEDED), WorkflowStatus.SUCCEEDED),
        (dict.fromkeys("abcd", SKIPPED), WorkflowStatus.SUCCEEDED),
        ({**dict.fromkeys("abcd", SUCCEEDED), "b": FAILED}, WorkflowStatus.FAILED),
        ({**dict.fromkeys("abcd", SUCCEEDED), "b": RunState.CANCELLED}, WorkflowStatus.CANCELLED),
        ({"a": FAILED, "b": RunState.CANCELLED, "c": SKIPPED, "d": SKIPPED}, WorkflowStatus.FAILED),
        ({"a": SUCCEEDED, "b": FAILED, "c": RunState.LEASED}, WorkflowStatus.RUNNING),
        ({"a": SUCCEEDED, "b": RunState.PARKED, "c": RunState.LEASED}, WorkflowStatus.RUNNING),
        ({"a": SUCCEEDED, "b": RunState.PARKED, "c": SUCCEEDED}, WorkflowStatus.PARKED),
        (
            {"a": SUCCEEDED, "b": FAILED, "c": SUCCEEDED, "d": SKIPPED, "z": RunState.LEASED},
            WorkflowStatus.FAILED,
        ),
    ],
)
def test_a_run_ends_when_every_step_is_finished(
    states: dict[str, RunState], expected: WorkflowStatus
) -> None:
    assert workflow_status(DIAMOND, states) is expected
    assert WorkflowProgress(DIAMOND, states).status is expected


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


def by_definition(spec: WorkflowSpec, states: Mapping[str, RunState], results: Mapping[str, Any]) -> set[str]:
    """The names of steps that may start, computed from the rules alone until nothing changes."""
    known = dict(states)
    while True:
        free: set[str] = set()
        skipped: set[str] = set()
        for one in spec.steps:
            became = [known.get(need) for need in one.needs]
            if one.name in known or not all(state in TERMINAL_STATES for state in became):
                continue
            good = [state is SUCCEEDED for state in became]
            bad = any(state in (RunState.FAILED, RunState.CANCELLED) for state in became)
            wanted = {
                RunIf.SUCCEEDED: all(good),
                RunIf.ANY: any(good),
                RunIf.FAILED: bad,
                RunIf.ALWAYS: True,
            }[one.run_if]
            if one.when and (results.get(one.needs[0]) or 0) <= 4:
                wanted = False
            (free if wanted or not one.needs else skipped).add(one.name)
        if not skipped:
            return free
        known.update(dict.fromkeys(skipped, SKIPPED))


@given(spec=dags(), seed=st.integers(0, 10_000))
@settings(max_examples=150)
def test_incremental_progress_agrees_with_the_rules(spec: WorkflowSpec, seed: int) -> None:
    chance = random.Random(seed)
    progress = WorkflowProgress(spec)
    results: dict[str, Any] = {}
    states: dict[str, RunState] = {}
    started: list[str] = []
    skipped: list[str] = []
    advance = progress.ready()
    while True:
        expected = by_definition(spec, states, results)
        started += names(advance.start)
        skipped += [one.name for one in advance.skip]
        states.update(dict.fromkeys((one.name for one in advance.skip), SKIPPED))
        assert expected == {name for name in started if name not in states}
        assert expected == set(names(ready_steps(spec, states, results)))
        if not expected:
            break
        name = chance.choice(sorted(expected))
        states[name] = chance.choice([SUCCEEDED, SUCCEEDED, FAILED, RunState.CANCELLED])
        results[name] = chance.randint(0, 9)
        advance = progress.ready_after(name, states[name], results[name])
    assert sorted(started + skipped) == sorted(names(spec.steps))
    assert progress.states == states
    assert progress.status is workflow_status(spec, states)
    assert progress.status not in (WorkflowStatus.RUNNING, WorkflowStatus.PARKED)


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
    results = {"fetch": {"items": [{"id": 7}]}}
    assert resolve_input(one, results, given={"region": "eu"}) == {
        "all": {"items": [{"id": 7}]},
        "first": [{"id": 7}],
        "region": "eu",
        "plain": {"a": [1, None, "steps.fetch.result"]},
    }


def test_the_default_replaces_a_missing_value_but_not_null() -> None:
    one = step("b", "a", input={"x": {"$from": "steps.a.result.x", "default": 5}})
    assert resolve_input(one, {"a": {"x": None}}) == {"x": None}
    assert resolve_input(one, {"a": {}}) == {"x": 5}
    assert resolve_input(one, {}) == {"x": 5}


def test_a_reference_without_a_value_is_refused_with_its_path() -> None:
    one = step("b", "a", input={"deep": [{"x": {"$from": "steps.a.result.x"}}]})
    with pytest.raises(InvalidWorkflow, match="finds no value") as refused:
        resolve_input(one, {"a": {}})
    assert refused.value.field == "b.input.deep[0].x"


def test_a_step_can_refer_only_to_steps_it_needs() -> None:
    one = step("b", input={"x": {"$from": "steps.a.result", "default": "unseen"}})
    assert resolve_input(one, {"a": "secret"}) == {"x": "unseen"}


def test_a_step_runs_for_each_item_of_a_list_up_to_its_limit() -> None:
    one = step(
        "load", "fetch", each=Each(source="steps.fetch.result", limit=3), input={"id": {"$from": "item.id"}}
    )
    items = each_items(one, {"fetch": [{"id": 1}, {"id": 2}]})
    assert [resolve_input(one, {}, item=item) for item in items] == [{"id": 1}, {"id": 2}]
    assert each_items(one, {"fetch": []}) == ()
    for result, what in (([1] * 4, "4 items"), ({"id": 1}, "no list"), (None, "no list")):
        with pytest.raises(InvalidWorkflow, match=what):
            each_items(one, {"fetch": result})
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
