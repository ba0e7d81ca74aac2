"""A workflow run starts its steps in order, once each, with the results of earlier steps."""

from __future__ import annotations

from datetime import timedelta

from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import RunState, Succeeded
from timewright.ledger.lease import lease_ready
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ledger.workflow_runs.records import HELD_BY_WORKFLOW
from timewright.testing.targets import fail, hang, succeed


def test_steps_run_after_what_they_need_and_the_last_one_ends_the_workflow(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("fetch"),
        call_step("left", "fetch"),
        call_step("right", "fetch"),
        call_step("join", "left", "right"),
    )
    harness.script(left=succeed(after=MINUTE))
    run = harness.start()
    assert harness.steps(run) == {
        "fetch": "succeeded",
        "left": "leased",
        "right": "succeeded",
        "join": "waiting",
    }
    assert (harness.state(run), harness.run(run).holder) == ("leased", HELD_BY_WORKFLOW)
    harness.advance(minutes=1)
    assert set(harness.steps(run).values()) == {"succeeded"}
    assert harness.state(run) == "succeeded"
    assert harness.launches() == {"fetch": 1, "left": 1, "right": 1, "join": 1}


def test_every_step_is_a_run_with_its_workflow_as_parent(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"))
    run = harness.start()
    assert [child.parent for child in harness.children(run)] == [run, run]
    assert [child.planned_at for child in harness.children(run)] == [harness.run(run).planned_at] * 2
    assert len({child.dedupe_scope for child in harness.children(run)}) == 2


def test_a_step_receives_results_of_earlier_steps(harness: WorkflowHarness) -> None:
    reference = {"rows": {"$from": "steps.fetch.result.rows"}, "day": {"$from": "input.day"}}
    harness.put(call_step("fetch"), call_step("load", "fetch", input=reference), input={"day": "monday"})
    harness.script(fetch=succeed({"rows": [1, 2]}), load=succeed("loaded"))
    run = harness.start(input={"day": "tuesday"})
    assert harness.given("load") == [{"rows": [1, 2], "day": "tuesday"}]
    assert harness.result(run) == {"load": "loaded"}


def test_a_reference_that_leads_nowhere_fails_its_step_and_nothing_is_launched(
    harness: WorkflowHarness,
) -> None:
    harness.put(
        call_step("fetch"), call_step("load", "fetch", input={"rows": {"$from": "steps.fetch.result.rows"}})
    )
    run = harness.start()
    assert harness.steps(run) == {"fetch": "succeeded", "load": "failed"}
    assert harness.launches() == {"fetch": 1}
    assert "finds no value" in harness.step_run(run, "load").reason
    assert (harness.state(run), harness.run(run).error) == ("failed", "failed: load")


def test_an_oversized_input_fails_its_step_with_a_reason(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("fetch"), call_step("load", "fetch", input={"all": {"$from": "steps.fetch.result"}})
    )
    harness.script(fetch=succeed("x" * 300_000))
    run = harness.start()
    assert harness.steps(run)["load"] == "failed"
    assert "bytes for one run" in harness.step_run(run, "load").reason


def test_a_condition_that_does_not_hold_skips_the_step_and_those_behind_it(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("look"),
        call_step("mend", "look", when="steps.look.result.broken > 0"),
        call_step("tell", "mend"),
        call_step("close", "mend", run_if="always"),
    )
    harness.script(look=succeed({"broken": 0}))
    run = harness.start()
    assert harness.steps(run) == {
        "look": "succeeded",
        "mend": "skipped",
        "tell": "skipped",
        "close": "succeeded",
    }
    assert harness.step_run(run, "mend").reason == "when steps.look.result.broken > 0 is false"
    assert harness.step_run(run, "tell").reason == "needs mend, which is skipped"
    assert harness.state(run) == "succeeded"


def test_a_failed_step_fails_the_workflow_after_everything_else_has_ended(harness: WorkflowHarness) -> None:
    once = {"max_attempts": 1}
    harness.put(
        call_step("a", retry=once),
        call_step("b", "a"),
        call_step("slow"),
        call_step("clean", "a", run_if="always"),
    )
    harness.script(a=fail("no disk"), slow=succeed(after=MINUTE))
    run = harness.start()
    assert harness.steps(run) == {"a": "failed", "b": "skipped", "slow": "leased", "clean": "succeeded"}
    assert harness.state(run) == "leased"
    harness.advance(minutes=1)
    assert (harness.state(run), harness.run(run).error) == ("failed", "failed: a")


def test_a_step_is_retried_under_its_own_policy(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", retry={"max_attempts": 3, "backoff": "10s"}), call_step("b", "a"))
    harness.script(a=[fail(), fail(), succeed("third")])
    run = harness.start()
    assert harness.steps(run) == {"a": "ready", "b": "waiting"}
    harness.advance(seconds=10)
    assert harness.steps(run) == {"a": "ready", "b": "waiting"}
    harness.advance(seconds=10)
    assert set(harness.steps(run).values()) == {"succeeded"}
    assert harness.launches() == {"a": 3, "b": 1}
    assert len({launch.key for launch in harness.target.launched if launch.payload.get("step") == "a"}) == 1


def test_a_time_limit_ends_a_step(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", time_limit="30s", retry={"max_attempts": 1}))
    harness.script(a=hang())
    run = harness.start()
    harness.advance(seconds=30)
    assert (harness.steps(run), harness.state(run)) == ({"a": "failed"}, "failed")


def test_a_time_limit_ends_a_workflow_and_stops_its_steps(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), time_limit="5m")
    harness.script(a=hang())
    run = harness.start()
    harness.advance(minutes=4)
    assert harness.state(run) == "leased"
    harness.advance(minutes=2)
    assert harness.state(run) == "failed"
    assert "time limit of the workflow was reached after 5m" in harness.run(run).error
    stopped = harness.step_run(run, "a")
    assert (stopped.state, stopped.reason) == (RunState.CANCELLED, "the workflow has ended")
    assert harness.launches() == {"a": 1}
    assert harness.living() == []


def test_a_fan_out_step_runs_for_each_item_and_returns_a_list(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("list"),
        call_step(
            "each", "list", each={"$from": "steps.list.result", "limit": 5}, input={"n": {"$from": "item"}}
        ),
        call_step("sum", "each", input={"all": {"$from": "steps.each.result"}}),
    )
    harness.script(list=succeed([10, 20, 30]), each=[succeed("a"), succeed("b"), succeed("c")])
    run = harness.start()
    assert harness.given("each") == [{"n": 10}, {"n": 20}, {"n": 30}]
    assert harness.given("sum") == [{"all": ["a", "b", "c"]}]
    assert harness.state(run) == "succeeded"


def test_more_items_than_allowed_fail_the_step_before_any_of_them_runs(harness: WorkflowHarness) -> None:
    harness.put(call_step("list"), call_step("each", "list", each={"$from": "steps.list.result", "limit": 2}))
    harness.script(list=succeed([1, 2, 3]))
    run = harness.start()
    assert harness.steps(run) == {"list": "succeeded", "each": "failed"}
    assert "3 items" in harness.step_run(run, "each").reason
    assert harness.launches() == {"list": 1}


def test_a_fan_out_without_items_succeeds_and_a_failed_item_fails_the_step(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("none", each={"$from": "input.none"}),
        call_step("some", "none", each={"$from": "input.some"}, retry={"max_attempts": 1}),
        call_step("after", "some", run_if="always", input={"all": {"$from": "steps.some.result"}}),
    )
    harness.script(some=[succeed(1), fail("two"), succeed(3)])
    run = harness.start(input={"none": [], "some": ["x", "y", "z"]})
    assert harness.steps(run) == {"none": "succeeded", "some": "failed", "after": "succeeded"}
    assert harness.given("after") == [{"all": [1, None, 3]}]
    assert harness.state(run) == "failed"


def test_a_workflow_may_be_a_step_of_another(harness: WorkflowHarness) -> None:
    given = {"n": {"$from": "input.n"}}
    harness.put(call_step("double", input=given), name="inner", input={"n": 1})
    inner = {"name": "inner", "target": {"workflow": "inner"}, "input": given}
    after = call_step("after", "inner", input={"was": {"$from": "steps.inner.result.double"}})
    harness.put(inner, after, name="outer", input={"n": 21})
    harness.script(double=succeed(42))
    run = harness.start("outer")
    assert harness.given("double") == [{"n": 21}]
    assert harness.given("after") == [{"was": 42}]
    assert harness.state(run) == "succeeded"
    inside = harness.step_run(run, "inner")
    assert [child.parent for child in harness.children(inside.id)] == [inside.id]


def test_the_time_limit_of_a_step_holds_for_the_workflow_it_runs(harness: WorkflowHarness) -> None:
    harness.put(call_step("slow"), name="inner")
    harness.put({"name": "in", "target": {"workflow": "inner"}, "time_limit": "2m"}, name="outer")
    harness.script(slow=hang())
    run = harness.start("outer")
    harness.advance(minutes=3)
    assert "reached after 2m" in harness.step_run(run, "in").error
    assert harness.state(run) == "failed"
    assert harness.living() == []


def test_a_repeated_launch_result_changes_nothing(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"))
    harness.ask("workflow run", workflow="flow")
    (lease,) = lease_ready(
        harness.store, ids=harness.bench.ids, holder="w", capacity=1, now=harness.now
    ).leases
    answer = AttemptResult(run=lease.run, outcome=Succeeded(), started_at=harness.now)
    first = settle_results(harness.store, [answer], now=harness.now)
    again = settle_results(harness.store, [answer], now=harness.now)
    assert (first.stale, again.stale, again.facts) == ((), (), ())
    assert len(harness.children(lease.run.id)) == 1


def test_workflows_that_run_each_other_without_end_are_stopped(harness: WorkflowHarness) -> None:
    harness.put({"name": "b", "target": {"workflow": "b"}}, name="a")
    harness.put({"name": "a", "target": {"workflow": "a"}}, name="b")
    run = harness.start("a")
    harness.advance(minutes=1)
    assert harness.state(run) == "failed"
    assert harness.living() == []


def test_an_unknown_workflow_fails_the_launch(harness: WorkflowHarness) -> None:
    harness.ask("schedule create", name="lost", once="2026-03-10T12:01:00Z", workflow="gone", retry=1)
    harness.advance(minutes=2)
    (row,) = harness.ask("run list", schedule="lost")["runs"]
    assert (row["state"], row["error"]) == ("failed", "no workflow gone")


def test_a_schedule_sees_its_workflow_as_one_run_in_flight(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), schedules=[{"cron": "* * * * *", "overlap": "skip"}])
    harness.script(a=succeed(after=90 * timedelta(seconds=1)))
    harness.advance(minutes=3, seconds=30)
    rows = harness.ask("run list", schedule="flow")["runs"][::-1]
    assert [row["reason"] or row["state"] for row in rows] == ["succeeded", "overlap", "leased"]
    assert harness.ask("schedule get", schedule="flow")["progress"]["failures"] == 0


def test_a_run_remembers_its_version_while_a_newer_one_is_put(harness: WorkflowHarness) -> None:
    harness.put(call_step("a", time_limit="2h"), call_step("b", "a"))
    harness.script(a=succeed(after=HOUR))
    run = harness.start()
    harness.put(call_step("a", time_limit="2h"), call_step("c", "a"))
    harness.advance(hours=1)
    assert harness.steps(run) == {"a": "succeeded", "b": "succeeded"}
    assert harness.ask("run get", run=run)["payload"]["version"] == 1
    later = harness.start()
    harness.advance(hours=1)
    assert harness.steps(later) == {"a": "succeeded", "c": "succeeded"}


def test_a_step_that_is_handed_off_waits_in_a_queue_named_like_its_workflow(harness: WorkflowHarness) -> None:
    approve = {"name": "approve", "target": {"handoff": {"payload": {"ask": "go on?"}}}, "needs": ["a"]}
    harness.put(call_step("a"), approve, call_step("b", "approve"))
    run = harness.start()
    assert harness.steps(run) == {"a": "succeeded", "approve": "ready", "b": "waiting"}
    (lease,) = harness.ask("queue lease", queue="flow")["leases"]
    assert lease["payload"] == {"ask": "go on?"}
    assert lease["metadata"] == {"workflow": "flow", "step": "approve"}
    harness.ask("queue complete", run=lease["run"], fence=lease["fence"], result="yes")
    harness.bench.tick()
    assert harness.state(run) == "succeeded"


def test_a_step_that_is_a_workflow_fails_rather_than_lose_its_large_result(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), name="inner")
    harness.put({"name": "child", "target": {"workflow": "inner"}}, call_step("b", "child"))
    harness.script(a=succeed("x" * 70_000))
    outer, alone = harness.start(), harness.start("inner")
    harness.advance(minutes=1)
    assert harness.state(alone) == "succeeded"
    assert harness.steps(outer)["child"] == "failed"
    error = harness.step_run(outer, "child").error
    assert error.startswith("the results of its last steps have 70008 bytes; at most 65536 bytes")
