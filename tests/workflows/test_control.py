"""Control of workflow runs: pause, cancel, retry, repeat, explain."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.moments import MINUTE
from timewright.core.run.run import RunState
from timewright.errors import Forbidden, NotAllowed
from timewright.ledger.replan import Actor
from timewright.operations import operations
from timewright.testing.targets import fail, hang, succeed, vanish

ONCE = {"max_attempts": 1}


def test_a_paused_run_starts_no_further_steps_until_it_goes_on(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), call_step("c"), call_step("d", "c"), time_limit="10m")
    harness.script(a=succeed(after=MINUTE), c=succeed(after=2 * MINUTE))
    run = harness.start()
    harness.ask("workflow pause", run=run)
    harness.advance(hours=5)
    assert harness.steps(run) == {"a": "succeeded", "b": "waiting", "c": "succeeded", "d": "waiting"}
    assert harness.state(run) == "leased"
    harness.ask("workflow resume", run=run)
    harness.bench.tick()
    assert set(harness.steps(run).values()) == {"succeeded"}
    assert harness.launches() == {"a": 1, "b": 1, "c": 1, "d": 1}
    with pytest.raises(NotAllowed, match="is not a workflow run with running steps"):
        harness.ask("workflow pause", run=run)


def test_a_resume_of_a_run_that_was_never_paused_changes_nothing(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"))
    harness.script(a=hang())
    run = harness.start()
    harness.ask("workflow resume", run=run)
    harness.bench.tick()
    assert harness.launches() == {"a": 1}


def test_a_cancel_stops_the_whole_tree(harness: WorkflowHarness) -> None:
    harness.put(call_step("deep"), call_step("deeper", "deep"), name="inner")
    harness.put(
        call_step("a"),
        call_step("b", "a"),
        {"name": "in", "target": {"workflow": "inner"}},
        call_step("c", "in"),
    )
    harness.script(a=hang(), deep=hang())
    run = harness.start()
    inside = harness.step_run(run, "in").id
    harness.ask("run cancel", run=run, reason="wrong day")
    harness.advance(seconds=30)
    assert harness.state(run) == "cancelled"
    assert harness.state(inside) == "cancelled"
    assert harness.steps(run)["a"] == "cancelled"
    assert harness.launches() == {"a": 1, "deep": 1, "in": 1}
    assert harness.living() == []


def test_a_cancel_ends_at_once_if_no_step_is_leased(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", retry={"max_attempts": 9, "backoff": "1h"}), call_step("b", "a"))
    harness.script(a=fail())
    run = harness.start()
    harness.ask("run cancel", run=run)
    assert harness.state(run) == "cancelled"
    assert harness.steps(run) == {"a": "cancelled", "b": "waiting"}


def test_a_cancelled_workflow_ends_even_if_its_worker_died(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"))
    harness.script(a=vanish())
    run = harness.start()
    harness.ask("run cancel", run=run)
    assert harness.state(run) == "leased"
    harness.advance(minutes=1)
    assert harness.state(run) == "cancelled"
    assert harness.living() == []


def test_a_replaced_run_takes_its_steps_with_it(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), schedules=[{"cron": "* * * * *", "overlap": "replace"}])
    harness.script(a=[hang(), succeed()])
    harness.advance(minutes=2, seconds=30)
    rows = harness.ask("run list", schedule="flow")["runs"][::-1]
    assert [row["state"] for row in rows] == ["cancelled", "succeeded"]
    assert harness.steps(rows[0]["id"])["a"] == "cancelled"
    # Its steps receive the cancel request in the same transaction, not after the grace of the workflow.
    assert harness.step_run(rows[0]["id"], "a").finished_at == datetime(2026, 3, 10, 12, 2, tzinfo=UTC)


def test_a_cancelled_step_is_settled_for_its_successors(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("a", retry={"max_attempts": 9, "backoff": "1h"}), call_step("b", "a", run_if="always")
    )
    harness.script(a=fail())
    run = harness.start()
    harness.ask("run cancel", run=harness.step_run(run, "a").id)
    harness.bench.tick()
    assert harness.steps(run) == {"a": "cancelled", "b": "succeeded"}
    assert harness.state(run) == "cancelled"


def test_a_retry_repeats_failed_steps_and_no_succeeded_ones(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a", retry=ONCE), call_step("c", "b"), call_step("d", "a"))
    harness.script(b=[fail("no disk"), succeed("now")])
    run = harness.start()
    assert harness.steps(run) == {"a": "succeeded", "b": "failed", "c": "skipped", "d": "succeeded"}
    failed = harness.step_run(run, "b")
    harness.ask("run retry", run=run)
    harness.bench.tick()
    assert set(harness.steps(run).values()) == {"succeeded"}
    assert harness.state(run) == "succeeded"
    assert harness.launches() == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert harness.step_run(run, "b").id == failed.id
    assert harness.step_run(run, "b").fence == failed.fence + 1


def test_a_retry_from_a_step_repeats_it_and_all_behind_it(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), call_step("c", "b", retry=ONCE), call_step("d", "a"))
    harness.script(c=[fail("bad rows of b"), succeed("now")])
    run = harness.start()
    before = harness.step_run(run, "b")
    harness.ask("run retry", run=before.id, from_step=True)
    assert harness.ask("workflow graph", workflow="flow", run=run)["steps"][1]["state"] == "waiting"
    harness.bench.tick()
    assert harness.state(run) == "succeeded"
    assert harness.launches() == {"a": 1, "b": 2, "c": 2, "d": 1}
    shown = harness.ask("workflow graph", workflow="flow", run=run)["runs"]
    assert [one["step"] for one in shown].count("b") == 1
    assert before.id not in [one["run"] for one in shown]
    assert harness.ask("verify")["violations"] == []


def test_a_retry_with_changed_input_gives_it_to_the_step_and_its_result_to_those_behind_it(
    harness: WorkflowHarness,
) -> None:
    harness.put(
        call_step("a", input={"day": {"$from": "input.day"}, "size": 1}),
        call_step("b", "a", input={"rows": {"$from": "steps.a.result"}}, retry=ONCE),
        input={"day": "monday"},
    )
    harness.script(a=[succeed(1), succeed(2)], b=[fail("no"), fail("no"), succeed("now")])
    run = harness.start()
    harness.ask("run retry", run=harness.step_run(run, "a").id, input={"day": "tuesday"})
    harness.bench.tick()
    harness.ask("run retry", run=harness.step_run(run, "b").id, from_step=True)
    harness.bench.tick()
    assert harness.state(run) == "succeeded"
    assert harness.given("a") == [{"day": "monday", "size": 1}, {"day": "tuesday", "size": 1}]
    assert harness.given("b") == [{"rows": 1}, {"rows": 2}, {"rows": 2}]
    assert harness.ask("verify")["violations"] == []


def test_a_retry_of_a_run_that_goes_on_changes_no_input(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("a", input={"day": 1}), call_step("b", "a", retry={"max_attempts": 2, "backoff": "1m"})
    )
    harness.script(b=[fail("no"), fail("no"), succeed("now")])
    run = harness.start()
    with pytest.raises(NotAllowed, match="is leased"):
        harness.ask("run retry", run=harness.step_run(run, "a").id, input={"day": 2})
    harness.advance(minutes=2)
    harness.ask("run retry", run=run)
    harness.bench.tick()
    assert harness.given("a") == [{"day": 1}]


def test_an_agent_does_not_change_the_input_of_an_approved_workflow(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", input={"day": 1}, retry=ONCE))
    harness.script(a=fail())
    run = harness.start()
    harness.ask("namespace set", name="default", agent_approval=True)
    agent = replace(harness.context, by=Actor(name="assistant", origin="agent"))
    with pytest.raises(Forbidden, match="cannot change the input"):
        operations["run retry"](agent, {"run": harness.step_run(run, "a").id, "input": {"day": 2}})


def test_a_retry_from_a_run_that_is_no_step_is_refused(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", retry=ONCE))
    harness.script(a=fail())
    run = harness.start()
    with pytest.raises(NotAllowed, match="is not a step"):
        harness.ask("run retry", run=run, from_step=True)


def test_a_graph_counts_the_items_of_a_step_and_times_each_run(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", each={"$from": "input.numbers"}), call_step("b", "a"), input={"numbers": []})
    run = harness.start(input={"numbers": [1, 2, 3]})
    graph = harness.ask("workflow graph", workflow="flow", run=run)
    assert graph["steps"][0]["items"] == {"succeeded": 3}
    assert [(one["step"], one["item"]) for one in graph["runs"]] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", None),
    ]
    assert all(one["first_started_at"] and one["finished_at"] for one in graph["runs"])
    label = harness.ask("run get", run=graph["runs"][1]["run"])["run"]["workflow"]
    assert label == "flow › a[1]"


def test_a_retry_of_the_failed_step_retries_its_workflow(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", retry=ONCE), call_step("b", "a"))
    harness.script(a=[fail(), succeed()])
    run = harness.start()
    harness.ask("run retry", run=harness.step_run(run, "a").id)
    harness.bench.tick()
    assert harness.state(run) == "succeeded"


def test_a_step_of_a_running_workflow_cannot_be_retried(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", retry=ONCE), call_step("slow"))
    harness.script(a=fail(), slow=hang())
    run = harness.start()
    with pytest.raises(NotAllowed) as refusal:
        harness.ask("run retry", run=harness.step_run(run, "a").id)
    assert f"run retry {run}" in (refusal.value.fix or "")


def test_a_step_of_a_workflow_that_succeeded_is_not_retried(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"))
    run = harness.start()
    with pytest.raises(NotAllowed, match="is succeeded") as refused:
        harness.ask("run retry", run=harness.step_run(run, "a").id, from_step=True)
    assert refused.value.fix == "start a new run: workflow run"


def test_only_the_items_that_failed_are_tried_again(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("each", each={"$from": "input.of"}, retry=ONCE, input={"n": {"$from": "item"}}),
        call_step("sum", "each", input={"all": {"$from": "steps.each.result"}}),
    )
    harness.script(each=[succeed("a"), fail(), succeed("c"), succeed("b")])
    run = harness.start(input={"of": [1, 2, 3]})
    assert harness.state(run) == "failed"
    harness.ask("run retry", run=run)
    harness.bench.tick()
    assert harness.given("each") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 2}]
    assert harness.given("sum") == [{"all": ["a", "b", "c"]}]
    assert harness.state(run) == "succeeded"


def test_a_retry_reaches_into_a_workflow_that_is_a_step(harness: WorkflowHarness) -> None:
    harness.put(call_step("x"), call_step("y", "x", retry=ONCE), call_step("z", "y"), name="inner")
    harness.put(
        call_step("a"), {"name": "in", "target": {"workflow": "inner"}, "needs": ["a"]}, call_step("b", "in")
    )
    harness.script(y=[fail("no disk"), succeed()])
    run = harness.start()
    assert harness.steps(run) == {"a": "succeeded", "in": "failed", "b": "skipped"}
    assert harness.step_run(run, "in").error == "failed: y"
    harness.ask("run retry", run=harness.step_run(harness.step_run(run, "in").id, "y").id)
    harness.bench.tick()
    assert harness.state(run) == "succeeded"
    assert harness.launches() == {"a": 1, "in": 2, "x": 1, "y": 2, "z": 1, "b": 1}


def test_a_paused_run_can_be_cancelled(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"))
    harness.script(a=succeed(after=MINUTE))
    run = harness.start()
    harness.ask("workflow pause", run=run)
    harness.advance(minutes=2)
    harness.ask("run cancel", run=run)
    assert harness.state(run) == "cancelled"
    assert harness.launches() == {"a": 1}


def test_a_cancelled_run_can_be_tried_again(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), call_step("c", "b"))
    harness.script(b=[hang(), succeed()])
    run = harness.start()
    harness.ask("run cancel", run=run)
    harness.advance(seconds=20)
    assert harness.state(run) == "cancelled"
    harness.ask("run retry", run=run)
    harness.bench.tick()
    assert harness.state(run) == "succeeded"
    assert harness.launches() == {"a": 1, "b": 2, "c": 1}


def test_a_parked_step_holds_its_workflow_up_until_a_person_resets_it(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("a", retry={"max_attempts": 1, "exhausted": "park"}), call_step("b", "a"), call_step("c")
    )
    harness.script(a=[fail("odd"), succeed()])
    run = harness.start()
    harness.advance(hours=1)
    assert harness.steps(run) == {"a": "parked", "b": "waiting", "c": "succeeded"}
    because = " ".join(harness.ask("run explain", run=run)["because"])
    assert "1 of 3 steps are settled, 0 step runs are active" in because
    assert "1 step runs are parked" in because
    harness.ask("run reset", run=harness.step_run(run, "a").id)
    harness.bench.tick()
    assert harness.state(run) == "succeeded"


def test_a_parked_item_that_is_reset_completes_its_step(harness: WorkflowHarness) -> None:
    park = {"max_attempts": 1, "exhausted": "park"}
    harness.put(call_step("each", each={"$from": "input.of"}, retry=park), call_step("after", "each"))
    harness.script(each=[succeed(), fail(), succeed()])
    run = harness.start(input={"of": [1, 2]})
    assert harness.steps(run) == {"each": "running", "after": "waiting"}
    (parked,) = [child for child in harness.children(run) if child.state is RunState.PARKED]
    harness.ask("run reset", run=parked.id)
    harness.bench.tick()
    assert harness.steps(run) == {"each": "succeeded", "after": "succeeded"}
    assert harness.state(run) == "succeeded"


def test_a_parked_step_that_is_cancelled_lets_its_workflow_end(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", retry={"max_attempts": 1, "exhausted": "park"}), call_step("b", "a"))
    harness.script(a=fail())
    run = harness.start()
    harness.ask("run cancel", run=harness.step_run(run, "a").id)
    harness.bench.tick()
    assert harness.steps(run) == {"a": "cancelled", "b": "skipped"}
    assert harness.state(run) == "cancelled"


def test_a_run_is_repeated_with_the_version_and_input_it_had(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", input={"day": {"$from": "input.day"}}), input={"day": "monday"})
    first = harness.start(input={"day": "friday"})
    harness.put(call_step("b"))
    again = harness.start(like=first)
    assert harness.steps(again) == {"a": "succeeded"}
    assert harness.given("a") == [{"day": "friday"}] * 2
    assert again != first


def test_the_same_client_key_gives_the_same_run(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"))
    assert harness.start(client_key="k") == harness.start(client_key="k")
    assert harness.launches() == {"a": 1}


def test_a_step_explains_what_it_waited_for(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("a"),
        call_step("b", retry=ONCE),
        call_step("c", "a", "b", run_if="any"),
        call_step("d", "b"),
    )
    harness.script(a=succeed(after=MINUTE), b=fail("no disk"))
    run = harness.start()
    harness.advance(minutes=1)
    told = harness.ask("run explain", run=harness.step_run(run, "c").id)
    assert told["because"][0] == f"it is step c of workflow flow version 1, in {run}"
    assert told["because"][1] == (
        "it waited for a (succeeded at 2026-03-10T12:01:00Z), b (failed at 2026-03-10T12:00:00Z)"
    )
    assert told["summary"].startswith("flow.c: the run planned for 2026-03-10T12:00:00Z ran and succeeded")
    skipped = harness.ask("run explain", run=harness.step_run(run, "d").id)
    assert skipped["status"] == "skipped"
    assert "it was skipped: needs b, which is failed" in skipped["because"]


def test_a_graph_shows_the_layers_and_the_state_of_a_run(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), call_step("all", "a", each={"$from": "input.of"}))
    harness.script(b=hang(), all=[succeed(), hang()])
    run = harness.start(input={"of": [1, 2]})
    assert harness.ask("workflow graph", workflow="flow")["text"].splitlines() == [
        "flow v1: 3 steps, 2 needs, 2 layers",
        "  1 a",
        "  2 b    ← a",
        "    all  ← a  for each of input.of",
    ]
    drawn = harness.ask("workflow graph", workflow="flow", run=run)
    assert drawn["text"].splitlines()[1:] == [
        "  1 a    succeeded",
        "  2 b    leased            ← a",
        "    all  running (1 left)  ← a  for each of input.of",
    ]
    assert drawn["steps"][0]["run"] == harness.step_run(run, "a").id


def test_every_change_by_hand_is_in_the_audit_log(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"))
    harness.script(a=hang())
    run = harness.start()
    for operation in ("workflow pause", "workflow resume", "run cancel"):
        harness.ask(operation, run=run)
    harness.ask("workflow delete", workflow="flow")
    actions = [entry["action"] for entry in harness.ask("audit list")["entries"]]
    assert set(actions) >= {
        "workflow.put",
        "workflow.run",
        "workflow.pause",
        "workflow.resume",
        "run.cancel",
        "workflow.delete",
    }


def test_cancelled_steps_are_not_started_again(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"))
    harness.script(a=succeed(after=MINUTE))
    run = harness.start()
    harness.ask("run cancel", run=run)
    harness.advance(minutes=2)
    states = {child.payload["step"]: child.state for child in harness.children(run)}
    assert states == {"a": RunState.CANCELLED}
    assert harness.state(run) == "cancelled"
