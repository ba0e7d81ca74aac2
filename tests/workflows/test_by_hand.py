"""What people do with a workflow run: hold it up, stop all of it, try it again, repeat it, ask why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.workflows.stage import Stage, note
from timewright.core.moments import MINUTE
from timewright.core.run import RunState
from timewright.errors import NotAllowed
from timewright.testing.targets import fail, hang, succeed, vanish

ONCE = {"max_attempts": 1}


def test_a_paused_run_starts_no_further_steps_until_it_goes_on(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), note("c"), note("d", "c"), time_limit="10m")
    stage.script(a=succeed(after=MINUTE), c=succeed(after=2 * MINUTE))
    run = stage.start()
    stage.ask("workflow pause", run=run)
    stage.advance(hours=5)
    assert stage.steps(run) == {"a": "succeeded", "b": "waiting", "c": "succeeded", "d": "waiting"}
    assert stage.state(run) == "leased"
    stage.ask("workflow resume", run=run)
    stage.bench.tick()
    assert set(stage.steps(run).values()) == {"succeeded"}
    assert stage.launches() == {"a": 1, "b": 1, "c": 1, "d": 1}
    with pytest.raises(NotAllowed, match="no workflow that is under way"):
        stage.ask("workflow pause", run=run)


def test_a_resume_of_a_run_that_was_never_paused_changes_nothing(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"))
    stage.script(a=hang())
    run = stage.start()
    stage.ask("workflow resume", run=run)
    stage.bench.tick()
    assert stage.launches() == {"a": 1}


def test_a_cancel_stops_the_whole_tree(stage: Stage) -> None:
    stage.put(note("deep"), note("deeper", "deep"), name="inner")
    stage.put(note("a"), note("b", "a"), {"name": "in", "target": {"workflow": "inner"}}, note("c", "in"))
    stage.script(a=hang(), deep=hang())
    run = stage.start()
    inside = stage.step_run(run, "in").id
    stage.ask("run cancel", run=run, reason="wrong day")
    stage.advance(seconds=30)
    assert stage.state(run) == "cancelled"
    assert stage.state(inside) == "cancelled"
    assert stage.steps(run)["a"] == "cancelled"
    assert stage.launches() == {"a": 1, "deep": 1, "in": 1}
    assert stage.living() == []


def test_a_cancel_ends_at_once_when_nobody_holds_a_step(stage: Stage) -> None:
    stage.put(note("a", retry={"max_attempts": 9, "backoff": "1h"}), note("b", "a"))
    stage.script(a=fail())
    run = stage.start()
    stage.ask("run cancel", run=run)
    assert stage.state(run) == "cancelled"
    assert stage.steps(run) == {"a": "cancelled", "b": "waiting"}


def test_a_cancelled_tree_ends_also_when_its_worker_is_gone(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"))
    stage.script(a=vanish())
    run = stage.start()
    stage.ask("run cancel", run=run)
    assert stage.state(run) == "leased"
    stage.advance(minutes=1)
    assert stage.state(run) == "cancelled"
    assert stage.living() == []


def test_a_replaced_run_takes_its_steps_with_it(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), schedules=[{"cron": "* * * * *", "overlap": "replace"}])
    stage.script(a=[hang(), succeed()])
    stage.advance(minutes=2, seconds=30)
    rows = stage.ask("run list", schedule="flow")["runs"][::-1]
    assert [row["state"] for row in rows] == ["cancelled", "succeeded"]
    assert stage.steps(rows[0]["id"])["a"] == "cancelled"
    # Its steps are asked in the same breath, not when the grace of their workflow is over.
    assert stage.step_run(rows[0]["id"], "a").finished_at == datetime(2026, 3, 10, 12, 2, tzinfo=UTC)


def test_a_step_that_is_cancelled_is_settled_for_those_who_need_it(stage: Stage) -> None:
    stage.put(note("a", retry={"max_attempts": 9, "backoff": "1h"}), note("b", "a", run_if="always"))
    stage.script(a=fail())
    run = stage.start()
    stage.ask("run cancel", run=stage.step_run(run, "a").id)
    stage.bench.tick()
    assert stage.steps(run) == {"a": "cancelled", "b": "succeeded"}
    assert stage.state(run) == "cancelled"


def test_a_retry_goes_on_from_what_failed_and_repeats_nothing_that_succeeded(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a", retry=ONCE), note("c", "b"), note("d", "a"))
    stage.script(b=[fail("no disk"), succeed("now")])
    run = stage.start()
    assert stage.steps(run) == {"a": "succeeded", "b": "failed", "c": "skipped", "d": "succeeded"}
    failed = stage.step_run(run, "b")
    stage.ask("run retry", run=run)
    stage.bench.tick()
    assert set(stage.steps(run).values()) == {"succeeded"}
    assert stage.state(run) == "succeeded"
    assert stage.launches() == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert stage.step_run(run, "b").id == failed.id
    assert stage.step_run(run, "b").fence == failed.fence + 1


def test_a_retry_of_the_failed_step_retries_its_workflow(stage: Stage) -> None:
    stage.put(note("a", retry=ONCE), note("b", "a"))
    stage.script(a=[fail(), succeed()])
    run = stage.start()
    stage.ask("run retry", run=stage.step_run(run, "a").id)
    stage.bench.tick()
    assert stage.state(run) == "succeeded"


def test_a_step_is_not_retried_behind_the_back_of_a_workflow_that_is_under_way(stage: Stage) -> None:
    stage.put(note("a", retry=ONCE), note("slow"))
    stage.script(a=fail(), slow=hang())
    run = stage.start()
    with pytest.raises(NotAllowed) as refusal:
        stage.ask("run retry", run=stage.step_run(run, "a").id)
    assert f"run retry {run}" in (refusal.value.fix or "")


def test_only_the_items_that_failed_are_tried_again(stage: Stage) -> None:
    stage.put(
        note("each", each={"$from": "input.of"}, retry=ONCE, input={"n": {"$from": "item"}}),
        note("sum", "each", input={"all": {"$from": "steps.each.result"}}),
    )
    stage.script(each=[succeed("a"), fail(), succeed("c"), succeed("b")])
    run = stage.start(input={"of": [1, 2, 3]})
    assert stage.state(run) == "failed"
    stage.ask("run retry", run=run)
    stage.bench.tick()
    assert stage.given("each") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 2}]
    assert stage.given("sum") == [{"all": ["a", "b", "c"]}]
    assert stage.state(run) == "succeeded"


def test_a_retry_reaches_into_a_workflow_that_is_a_step(stage: Stage) -> None:
    stage.put(note("x"), note("y", "x", retry=ONCE), note("z", "y"), name="inner")
    stage.put(note("a"), {"name": "in", "target": {"workflow": "inner"}, "needs": ["a"]}, note("b", "in"))
    stage.script(y=[fail("no disk"), succeed()])
    run = stage.start()
    assert stage.steps(run) == {"a": "succeeded", "in": "failed", "b": "skipped"}
    assert stage.step_run(run, "in").error == "failed: y"
    stage.ask("run retry", run=stage.step_run(stage.step_run(run, "in").id, "y").id)
    stage.bench.tick()
    assert stage.state(run) == "succeeded"
    assert stage.launches() == {"a": 1, "in": 2, "x": 1, "y": 2, "z": 1, "b": 1}


def test_a_paused_run_can_be_cancelled(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"))
    stage.script(a=succeed(after=MINUTE))
    run = stage.start()
    stage.ask("workflow pause", run=run)
    stage.advance(minutes=2)
    stage.ask("run cancel", run=run)
    assert stage.state(run) == "cancelled"
    assert stage.launches() == {"a": 1}


def test_a_cancelled_run_can_be_tried_again(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), note("c", "b"))
    stage.script(b=[hang(), succeed()])
    run = stage.start()
    stage.ask("run cancel", run=run)
    stage.advance(seconds=20)
    assert stage.state(run) == "cancelled"
    stage.ask("run retry", run=run)
    stage.bench.tick()
    assert stage.state(run) == "succeeded"
    assert stage.launches() == {"a": 1, "b": 2, "c": 1}


def test_a_parked_step_holds_its_workflow_up_until_a_person_resets_it(stage: Stage) -> None:
    stage.put(note("a", retry={"max_attempts": 1, "exhausted": "park"}), note("b", "a"), note("c"))
    stage.script(a=[fail("odd"), succeed()])
    run = stage.start()
    stage.advance(hours=1)
    assert stage.steps(run) == {"a": "parked", "b": "waiting", "c": "succeeded"}
    because = " ".join(stage.ask("run explain", run=run)["because"])
    assert "1 of 3 steps are settled, 0 runs of steps are under way" in because
    assert "1 runs of steps are parked" in because
    stage.ask("run reset", run=stage.step_run(run, "a").id)
    stage.bench.tick()
    assert stage.state(run) == "succeeded"


def test_a_parked_item_that_is_reset_completes_its_step(stage: Stage) -> None:
    park = {"max_attempts": 1, "exhausted": "park"}
    stage.put(note("each", each={"$from": "input.of"}, retry=park), note("after", "each"))
    stage.script(each=[succeed(), fail(), succeed()])
    run = stage.start(input={"of": [1, 2]})
    assert stage.steps(run) == {"each": "running", "after": "waiting"}
    (parked,) = [child for child in stage.children(run) if child.state is RunState.PARKED]
    stage.ask("run reset", run=parked.id)
    stage.bench.tick()
    assert stage.steps(run) == {"each": "succeeded", "after": "succeeded"}
    assert stage.state(run) == "succeeded"


def test_a_parked_step_that_is_cancelled_lets_its_workflow_end(stage: Stage) -> None:
    stage.put(note("a", retry={"max_attempts": 1, "exhausted": "park"}), note("b", "a"))
    stage.script(a=fail())
    run = stage.start()
    stage.ask("run cancel", run=stage.step_run(run, "a").id)
    stage.bench.tick()
    assert stage.steps(run) == {"a": "cancelled", "b": "skipped"}
    assert stage.state(run) == "cancelled"


def test_a_run_is_repeated_with_the_version_and_input_it_had(stage: Stage) -> None:
    stage.put(note("a", input={"day": {"$from": "input.day"}}), input={"day": "monday"})
    first = stage.start(input={"day": "friday"})
    stage.put(note("b"))
    again = stage.start(like=first)
    assert stage.steps(again) == {"a": "succeeded"}
    assert stage.given("a") == [{"day": "friday"}] * 2
    assert again != first


def test_the_same_client_key_gives_the_same_run(stage: Stage) -> None:
    stage.put(note("a"))
    assert stage.start(client_key="k") == stage.start(client_key="k")
    assert stage.launches() == {"a": 1}


def test_a_step_says_what_it_waited_for(stage: Stage) -> None:
    stage.put(note("a"), note("b", retry=ONCE), note("c", "a", "b", run_if="any"), note("d", "b"))
    stage.script(a=succeed(after=MINUTE), b=fail("no disk"))
    run = stage.start()
    stage.advance(minutes=1)
    told = stage.ask("run explain", run=stage.step_run(run, "c").id)
    assert told["because"][0] == f"it is step c of workflow flow version 1, in {run}"
    assert told["because"][1] == (
        "it waited for a (succeeded at 2026-03-10T12:01:00Z), b (failed at 2026-03-10T12:00:00Z)"
    )
    assert told["summary"].startswith("flow.c: the run planned for 2026-03-10T12:00:00Z ran and succeeded")
    skipped = stage.ask("run explain", run=stage.step_run(run, "d").id)
    assert skipped["fate"] == "skipped"
    assert "it was skipped: needs b, which is failed" in skipped["because"]


def test_a_drawing_shows_the_layers_and_how_a_run_stands(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), note("all", "a", each={"$from": "input.of"}))
    stage.script(b=hang(), all=[succeed(), hang()])
    run = stage.start(input={"of": [1, 2]})
    assert stage.ask("workflow graph", workflow="flow")["text"].splitlines() == [
        "flow v1: 3 steps, 2 needs, 2 layers",
        "  1 a",
        "  2 b    ← a",
        "    all  ← a  for each of input.of",
    ]
    drawn = stage.ask("workflow graph", workflow="flow", run=run)
    assert drawn["text"].splitlines()[1:] == [
        "  1 a    succeeded",
        "  2 b    leased            ← a",
        "    all  running (1 left)  ← a  for each of input.of",
    ]
    assert drawn["steps"][0]["run"] == stage.step_run(run, "a").id


def test_every_change_by_hand_is_in_the_audit_log(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"))
    stage.script(a=hang())
    run = stage.start()
    for operation in ("workflow pause", "workflow resume", "run cancel"):
        stage.ask(operation, run=run)
    stage.ask("workflow delete", workflow="flow")
    actions = [entry["action"] for entry in stage.ask("audit list")["entries"]]
    assert set(actions) >= {
        "workflow.put",
        "workflow.run",
        "workflow.pause",
        "workflow.resume",
        "run.cancel",
        "workflow.delete",
    }


def test_cancelled_steps_are_not_looked_at_again(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"))
    stage.script(a=succeed(after=MINUTE))
    run = stage.start()
    stage.ask("run cancel", run=run)
    stage.advance(minutes=2)
    states = {child.payload["step"]: child.state for child in stage.children(run)}
    assert states == {"a": RunState.CANCELLED}
    assert stage.state(run) == "cancelled"
