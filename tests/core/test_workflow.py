"""Workflows: what is refused, what may start when, what each step is given, and how a run ends."""

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

from timewright.core.policies import Retry
from timewright.core.run import TERMINAL, RunState
from timewright.core.target import AnyTarget, Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.core.workflow import (
    MAX_EDGES,
    MAX_STEPS,
    Each,
    Progress,
    RunIf,
    Skipped,
    Step,
    Verdict,
    WorkflowSpec,
    decode_workflow,
    graph,
    items_of,
    layers,
    ready,
    resolve_input,
    successors,
    validate,
    verdict,
    with_input,
)
from timewright.errors import InvalidInput, InvalidWorkflow, NotFound

REFUSED = json.loads(
    (Path(__file__).parent / "data" / "workflows" / "refused.json").read_text(encoding="utf-8")
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


# ------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["why"])
def test_a_workflow_is_refused_with_the_path_to_the_fault_because(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_workflow(case["raw"])
    assert refused.value.field == case["field"]
    assert case["says"] in refused.value.message
    assert refused.value.rule
    assert refused.value.fix
    assert case.get("fix") in (None, refused.value.fix)


def test_what_is_written_in_full_is_read_in_full() -> None:
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
    assert spec.given({"day": 1}) == {"region": "eu", "day": 1}


def test_braces_of_other_languages_are_left_alone() -> None:
    command = ("docker", "inspect", "--format", "{{.State.Status}}", "${HOME}")
    workflow(
        step("a", target=Shell(command=command)),
        step("b", target=Http(url="https://example.com", body={"text": "{{ steps.a.result }}"})),
    )


def test_a_step_that_starts_a_workflow_leaves_retrying_to_it() -> None:
    assert step("a", target=Workflow(workflow="x")).attempted_under.max_attempts == 1
    assert step("a").attempted_under == Retry()
    assert step("a", retry=Retry(max_attempts=9)).attempted_under.max_attempts == 9
    with pytest.raises(InvalidWorkflow, match="a retry around retries"):
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


def test_objects_that_are_no_data_are_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="a object"):
        workflow(step("a", input={"x": object()}))
    with pytest.raises(InvalidWorkflow, match="a function"):
        decode_workflow(
            {
                "name": "w",
                "steps": [{"name": "a", "target": test_a_negative_time_limit_is_refused_with_its_path}],
            }
        )


def test_a_bomb_of_shared_steps_is_refused() -> None:
    bomb: list[Any] = ["x"] * 10
    for _ in range(9):
        bomb = [bomb] * 10
    with pytest.raises(InvalidWorkflow, match="too much"):
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


def test_a_million_steps_and_a_million_needs_are_refused_at_once() -> None:
    million = {"name": "big", "steps": raw_workflow(1, lambda _: [])["steps"] * 1_000_000}
    edges = raw_workflow(2_000, lambda n: [f"s{m}" for m in range(min(n, 600))])
    for raw, says in ((million, "1000000 steps"), (edges, "needs")):
        with pytest.raises(InvalidWorkflow, match=says) as refused:
            in_the_time_of(partial(decode_workflow, raw), 5)
        assert refused.value.field == "steps"


def test_as_many_steps_and_needs_as_allowed_are_read_run_and_drawn_quickly() -> None:
    raw = raw_workflow(MAX_STEPS, lambda n: [f"s{m}" for m in range(max(0, n - 5), n)])
    assert sum(len(one["needs"]) for one in raw["steps"]) <= MAX_EDGES
    spec = in_the_time_of(lambda: decode_workflow(raw), 10)
    assert in_the_time_of(lambda: run_to_the_end(spec), 5) == MAX_STEPS
    assert "… and 9800 more" in in_the_time_of(lambda: graph(spec), 2)


def test_ten_thousand_steps_into_one_cost_no_more_than_a_chain() -> None:
    last = MAX_STEPS - 1
    spec = decode_workflow(
        raw_workflow(MAX_STEPS, lambda n: [f"s{m}" for m in range(last)] if n == last else [])
    )
    assert in_the_time_of(lambda: run_to_the_end(spec), 5) == MAX_STEPS


def test_a_cycle_of_ten_thousand_steps_is_found_and_shown_in_part() -> None:
    raw = raw_workflow(MAX_STEPS, lambda n: [f"s{(n + 1) % MAX_STEPS}"])
    with pytest.raises(
        InvalidWorkflow, match=r"a cycle of 10000 steps: s0 needs s1 needs .* needs … s0"
    ) as refused:
        in_the_time_of(lambda: decode_workflow(raw), 10)
    assert len(refused.value.message) < 300


def test_a_ladder_of_forty_diamonds_is_walked_by_step_and_not_by_path() -> None:
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
def test_any_data_becomes_a_workflow_or_a_refusal_and_nothing_else(raw: Any) -> None:
    for attempt in (raw, {"name": "w", "steps": raw}, {"name": "w", "steps": [{"name": "a", "target": raw}]}):
        with suppress(InvalidInput):
            assert decode_workflow(attempt).steps


# --------------------------------------------------------------------------------------- what may start when


def run_to_the_end(spec: WorkflowSpec) -> int:
    progress, count = Progress(spec), 0
    waiting = list(progress.ready().start)
    while waiting:
        count += 1
        waiting += progress.ready_after(waiting.pop().name, SUCCEEDED).start
    assert progress.verdict is Verdict.SUCCEEDED
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
    assert names(ready(DIAMOND, states)) == free


def test_a_failure_skips_whatever_needs_it_all_the_way_down() -> None:
    progress = Progress(DIAMOND)
    progress.ready()
    advance = progress.ready_after("a", FAILED)
    assert advance.start == ()
    assert advance.skip == (
        Skipped("b", "needs a, which is failed"),
        Skipped("c", "needs a, which is failed"),
        Skipped("d", "needs b, which is skipped"),
    )
    assert progress.verdict is Verdict.FAILED


def test_a_condition_that_does_not_hold_skips_the_step_and_says_so() -> None:
    spec = workflow(
        step("a"),
        step("b", "a", when="steps.a.result.count > 0"),
        step("c", "a", when="steps.a.result.count == 0 and input.notify"),
        step("d", "b"),
        input={"notify": True},
    )
    progress = Progress(spec)
    advance = progress.ready_after("a", SUCCEEDED, {"count": 0})
    assert names(advance.start) == ["c"]
    assert advance.skip == (
        Skipped("b", "when steps.a.result.count > 0 does not hold"),
        Skipped("d", "needs b, which is skipped"),
    )
    assert progress.ready_after("c", SUCCEEDED).start == ()
    assert progress.verdict is Verdict.SUCCEEDED
    assert names(ready(spec, {"a": SUCCEEDED}, {"a": {"count": 3}})) == ["b"]
    assert names(ready(spec, {"a": SUCCEEDED}, {"a": {"count": 0}}, given={"notify": False})) == []


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
def test_run_if_says_what_must_have_become_of_the_needs(
    run_if: RunIf, became: tuple[RunState, RunState], runs: bool
) -> None:
    spec = workflow(step("a"), step("b"), step("c", "a", "b", run_if=run_if))
    states = dict(zip("ab", became, strict=True))
    assert names(ready(spec, states)) == (["c"] if runs else [])


def test_whatever_it_asks_a_step_waits_until_all_its_needs_are_settled() -> None:
    for run_if in RunIf:
        spec = workflow(step("a"), step("b"), step("c", "a", "b", run_if=run_if))
        assert names(ready(spec, {"a": SUCCEEDED, "b": RunState.LEASED})) == []


def test_an_always_step_can_look_at_what_went_wrong() -> None:
    spec = workflow(step("a"), step("tell", "a", run_if=RunIf.ALWAYS, when="steps.a.state != 'succeeded'"))
    assert names(Progress(spec).ready_after("a", FAILED).start) == ["tell"]
    assert names(Progress(spec).ready_after("a", SUCCEEDED).start) == []


def test_a_step_that_settles_twice_sets_nothing_free_the_second_time() -> None:
    progress = Progress(DIAMOND)
    assert names(progress.ready_after("a", SUCCEEDED).start) == ["b", "c"]
    assert progress.ready_after("a", FAILED).start == ()
    assert progress.ready_after("a", FAILED).skip == ()
    assert progress.states["a"] is SUCCEEDED


def test_a_step_that_is_only_parked_settles_nothing_and_can_go_on() -> None:
    progress = Progress(DIAMOND)
    assert progress.ready_after("a", RunState.PARKED).start == ()
    assert progress.verdict is Verdict.PARKED
    assert names(progress.ready_after("a", SUCCEEDED).start) == ["b", "c"]


def test_a_step_of_another_workflow_is_not_found() -> None:
    with pytest.raises(NotFound):
        Progress(DIAMOND).ready_after("z", SUCCEEDED)


def test_successors_are_told_in_the_order_they_are_written() -> None:
    assert successors(DIAMOND) == {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, Verdict.RUNNING),
        ({"a": SUCCEEDED, "b": SUCCEEDED, "c": SUCCEEDED}, Verdict.RUNNING),
        (dict.fromkeys("abcd", SUCCEEDED), Verdict.SUCCEEDED),
        (dict.fromkeys("abcd", SKIPPED), Verdict.SUCCEEDED),
        ({**dict.fromkeys("abcd", SUCCEEDED), "b": FAILED}, Verdict.FAILED),
        ({**dict.fromkeys("abcd", SUCCEEDED), "b": RunState.CANCELLED}, Verdict.CANCELLED),
        ({"a": FAILED, "b": RunState.CANCELLED, "c": SKIPPED, "d": SKIPPED}, Verdict.FAILED),
        ({"a": SUCCEEDED, "b": FAILED, "c": RunState.LEASED}, Verdict.RUNNING),
        ({"a": SUCCEEDED, "b": RunState.PARKED, "c": RunState.LEASED}, Verdict.RUNNING),
        ({"a": SUCCEEDED, "b": RunState.PARKED, "c": SUCCEEDED}, Verdict.PARKED),
        ({"a": SUCCEEDED, "b": FAILED, "c": SUCCEEDED, "d": SKIPPED, "z": RunState.LEASED}, Verdict.FAILED),
    ],
)
def test_a_run_ends_when_every_step_is_settled(states: dict[str, RunState], expected: Verdict) -> None:
    assert verdict(DIAMOND, states) is expected
    assert Progress(DIAMOND, states).verdict is expected


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
    """The names that may start, from the rules alone, again and again until nothing changes."""
    known = dict(states)
    while True:
        free: set[str] = set()
        skipped: set[str] = set()
        for one in spec.steps:
            became = [known.get(need) for need in one.needs]
            if one.name in known or not all(state in TERMINAL for state in became):
                continue
            good = [state is SUCCEEDED for state in became]
            wanted = {RunIf.SUCCEEDED: all(good), RunIf.ANY: any(good), RunIf.ALWAYS: True}[one.run_if]
            if one.when and (results.get(one.needs[0]) or 0) <= 4:
                wanted = False
            (free if wanted or not one.needs else skipped).add(one.name)
        if not skipped:
            return free
        known.update(dict.fromkeys(skipped, SKIPPED))


@given(spec=dags(), seed=st.integers(0, 10_000))
@settings(max_examples=150)
def test_what_is_counted_step_by_step_is_what_the_rules_say(spec: WorkflowSpec, seed: int) -> None:
    chance = random.Random(seed)
    progress = Progress(spec)
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
        assert expected == set(names(ready(spec, states, results)))
        if not expected:
            break
        name = chance.choice(sorted(expected))
        states[name] = chance.choice([SUCCEEDED, SUCCEEDED, FAILED, RunState.CANCELLED])
        results[name] = chance.randint(0, 9)
        advance = progress.ready_after(name, states[name], results[name])
    assert sorted(started + skipped) == sorted(names(spec.steps))
    assert progress.states == states
    assert progress.verdict is verdict(spec, states)
    assert progress.verdict not in (Verdict.RUNNING, Verdict.PARKED)


@given(spec=dags())
def test_layers_put_every_step_after_all_it_needs(spec: WorkflowSpec) -> None:
    depth = {one.name: n for n, layer in enumerate(layers(spec)) for one in layer}
    assert len(depth) == len(spec.steps)
    for one in spec.steps:
        assert depth[one.name] == max((depth[need] + 1 for need in one.needs), default=0)


@given(spec=dags(), data=st.data())
def test_one_need_too_many_makes_a_cycle_and_is_found(spec: WorkflowSpec, data: st.DataObject) -> None:
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


# ------------------------------------------------------------------------------------- what a step is given


def test_references_are_filled_in_wherever_they_stand() -> None:
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


def test_null_is_found_and_only_what_is_missing_takes_the_default() -> None:
    one = step("b", "a", input={"x": {"$from": "steps.a.result.x", "default": 5}})
    assert resolve_input(one, {"a": {"x": None}}) == {"x": None}
    assert resolve_input(one, {"a": {}}) == {"x": 5}
    assert resolve_input(one, {}) == {"x": 5}


def test_a_reference_that_leads_nowhere_is_refused_with_its_place() -> None:
    one = step("b", "a", input={"deep": [{"x": {"$from": "steps.a.result.x"}}]})
    with pytest.raises(InvalidWorkflow, match="leads nowhere") as refused:
        resolve_input(one, {"a": {}})
    assert refused.value.field == "b.input.deep[0].x"


def test_a_step_sees_only_the_steps_it_needs() -> None:
    one = step("b", input={"x": {"$from": "steps.a.result", "default": "unseen"}})
    assert resolve_input(one, {"a": "secret"}) == {"x": "unseen"}


def test_a_step_runs_for_each_item_of_a_list_up_to_its_limit() -> None:
    one = step(
        "load", "fetch", each=Each(source="steps.fetch.result", limit=3), input={"id": {"$from": "item.id"}}
    )
    items = items_of(one, {"fetch": [{"id": 1}, {"id": 2}]})
    assert [resolve_input(one, {}, item=item) for item in items] == [{"id": 1}, {"id": 2}]
    assert items_of(one, {"fetch": []}) == ()
    for result, what in (([1] * 4, "4 items"), ({"id": 1}, "no list"), (None, "no list")):
        with pytest.raises(InvalidWorkflow, match=what):
            items_of(one, {"fetch": result})
    assert items_of(step("plain"), {}) == ()


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
def test_input_joins_the_targets_data_and_never_what_it_calls(target: AnyTarget, given_to: AnyTarget) -> None:
    assert with_input(target, {"x": 2}) == given_to
    assert with_input(target, {}) == target


def test_an_input_too_large_for_a_commands_environment_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="does not fit"):
        with_input(Shell(command=("ls",)), {"x": "a" * 200_000})


# ----------------------------------------------------------------------------------------------- in a drawing


def test_a_workflow_is_drawn_by_layers() -> None:
    spec = workflow(
        step("fetch"),
        step("parse", "fetch", when="steps.fetch.result.ok"),
        step("clean", "fetch", each=Each(source="steps.fetch.result.items")),
        step("load", "parse", "clean", run_if=RunIf.ANY),
    )
    assert graph(spec).splitlines() == [
        "w v1: 4 steps, 4 needs, 3 layers",
        "  1 fetch",
        "  2 parse  ← fetch  when steps.fetch.result.ok",
        "    clean  ← fetch  for each of steps.fetch.result.items",
        "  3 load   ← parse, clean  if any",
    ]
