"""A workflow run becomes runs of its steps: in order, once each, with what earlier steps answered."""

from __future__ import annotations

from datetime import timedelta

from tests.workflows.stage import Stage, note
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run import RunState, Succeeded
from timewright.ledger.lease import lease_ready
from timewright.ledger.settle import Answer, settle_answers
from timewright.ledger.unfold_parts import UNFOLDED
from timewright.testing.targets import fail, hang, succeed


def test_steps_run_after_what_they_need_and_the_last_one_ends_the_workflow(stage: Stage) -> None:
    stage.put(note("fetch"), note("left", "fetch"), note("right", "fetch"), note("join", "left", "right"))
    stage.script(left=succeed(after=MINUTE))
    run = stage.start()
    assert stage.steps(run) == {
        "fetch": "succeeded",
        "left": "leased",
        "right": "succeeded",
        "join": "waiting",
    }
    assert (stage.state(run), stage.run(run).holder) == ("leased", UNFOLDED)
    stage.advance(minutes=1)
    assert set(stage.steps(run).values()) == {"succeeded"}
    assert stage.state(run) == "succeeded"
    assert stage.launches() == {"fetch": 1, "left": 1, "right": 1, "join": 1}


def test_every_step_is_a_run_with_its_workflow_as_parent(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"))
    run = stage.start()
    assert [child.parent for child in stage.children(run)] == [run, run]
    assert [child.planned_at for child in stage.children(run)] == [stage.run(run).planned_at] * 2
    assert len({child.lane for child in stage.children(run)}) == 2


def test_a_step_is_given_what_earlier_steps_answered(stage: Stage) -> None:
    reference = {"rows": {"$from": "steps.fetch.result.rows"}, "day": {"$from": "input.day"}}
    stage.put(note("fetch"), note("load", "fetch", input=reference), input={"day": "monday"})
    stage.script(fetch=succeed({"rows": [1, 2]}), load=succeed("loaded"))
    run = stage.start(input={"day": "tuesday"})
    assert stage.given("load") == [{"rows": [1, 2], "day": "tuesday"}]
    assert stage.result(run) == {"load": "loaded"}


def test_a_reference_that_leads_nowhere_fails_its_step_and_nothing_is_launched(stage: Stage) -> None:
    stage.put(note("fetch"), note("load", "fetch", input={"rows": {"$from": "steps.fetch.result.rows"}}))
    run = stage.start()
    assert stage.steps(run) == {"fetch": "succeeded", "load": "failed"}
    assert stage.launches() == {"fetch": 1}
    assert "leads nowhere" in stage.step_run(run, "load").reason
    assert (stage.state(run), stage.run(run).error) == ("failed", "failed: load")


def test_an_input_that_is_too_large_fails_its_step_and_says_so(stage: Stage) -> None:
    stage.put(note("fetch"), note("load", "fetch", input={"all": {"$from": "steps.fetch.result"}}))
    stage.script(fetch=succeed("x" * 300_000))
    run = stage.start()
    assert stage.steps(run)["load"] == "failed"
    assert "bytes for one run" in stage.step_run(run, "load").reason


def test_a_condition_that_does_not_hold_skips_the_step_and_those_behind_it(stage: Stage) -> None:
    stage.put(
        note("look"),
        note("mend", "look", when="steps.look.result.broken > 0"),
        note("tell", "mend"),
        note("close", "mend", run_if="always"),
    )
    stage.script(look=succeed({"broken": 0}))
    run = stage.start()
    assert stage.steps(run) == {
        "look": "succeeded",
        "mend": "skipped",
        "tell": "skipped",
        "close": "succeeded",
    }
    assert stage.step_run(run, "mend").reason == "when steps.look.result.broken > 0 does not hold"
    assert stage.step_run(run, "tell").reason == "needs mend, which is skipped"
    assert stage.state(run) == "succeeded"


def test_a_failed_step_fails_the_workflow_after_everything_else_has_ended(stage: Stage) -> None:
    once = {"max_attempts": 1}
    stage.put(note("a", retry=once), note("b", "a"), note("slow"), note("clean", "a", run_if="always"))
    stage.script(a=fail("no disk"), slow=succeed(after=MINUTE))
    run = stage.start()
    assert stage.steps(run) == {"a": "failed", "b": "skipped", "slow": "leased", "clean": "succeeded"}
    assert stage.state(run) == "leased"
    stage.advance(minutes=1)
    assert (stage.state(run), stage.run(run).error) == ("failed", "failed: a")


def test_a_step_is_retried_under_its_own_policy(stage: Stage) -> None:
    stage.put(note("a", retry={"max_attempts": 3, "backoff": "10s"}), note("b", "a"))
    stage.script(a=[fail(), fail(), succeed("third")])
    run = stage.start()
    assert stage.steps(run) == {"a": "ready", "b": "waiting"}
    stage.advance(seconds=10)
    assert stage.steps(run) == {"a": "ready", "b": "waiting"}
    stage.advance(seconds=10)
    assert set(stage.steps(run).values()) == {"succeeded"}
    assert stage.launches() == {"a": 3, "b": 1}
    assert len({launch.key for launch in stage.target.launched if launch.payload.get("step") == "a"}) == 1


def test_a_time_limit_ends_a_step(stage: Stage) -> None:
    stage.put(note("a", time_limit="30s", retry={"max_attempts": 1}))
    stage.script(a=hang())
    run = stage.start()
    stage.advance(seconds=30)
    assert (stage.steps(run), stage.state(run)) == ({"a": "failed"}, "failed")


def test_a_time_limit_ends_a_workflow_and_stops_what_its_steps_have_under_way(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), time_limit="5m")
    stage.script(a=hang())
    run = stage.start()
    stage.advance(minutes=4)
    assert stage.state(run) == "leased"
    stage.advance(minutes=2)
    assert stage.state(run) == "failed"
    assert "time limit of the workflow was reached after 5m" in stage.run(run).error
    stopped = stage.step_run(run, "a")
    assert (stopped.state, stopped.reason) == (RunState.CANCELLED, "its workflow is over")
    assert stage.launches() == {"a": 1}
    assert stage.living() == []


def test_a_step_runs_for_each_item_of_a_list_and_answers_with_a_list(stage: Stage) -> None:
    stage.put(
        note("list"),
        note("each", "list", each={"$from": "steps.list.result", "limit": 5}, input={"n": {"$from": "item"}}),
        note("sum", "each", input={"all": {"$from": "steps.each.result"}}),
    )
    stage.script(list=succeed([10, 20, 30]), each=[succeed("a"), succeed("b"), succeed("c")])
    run = stage.start()
    assert stage.given("each") == [{"n": 10}, {"n": 20}, {"n": 30}]
    assert stage.given("sum") == [{"all": ["a", "b", "c"]}]
    assert stage.state(run) == "succeeded"


def test_more_items_than_allowed_fail_the_step_before_any_of_them_runs(stage: Stage) -> None:
    stage.put(note("list"), note("each", "list", each={"$from": "steps.list.result", "limit": 2}))
    stage.script(list=succeed([1, 2, 3]))
    run = stage.start()
    assert stage.steps(run) == {"list": "succeeded", "each": "failed"}
    assert "3 items" in stage.step_run(run, "each").reason
    assert stage.launches() == {"list": 1}


def test_no_items_are_an_answer_and_one_that_fails_fails_the_step(stage: Stage) -> None:
    stage.put(
        note("none", each={"$from": "input.none"}),
        note("some", "none", each={"$from": "input.some"}, retry={"max_attempts": 1}),
        note("after", "some", run_if="always", input={"all": {"$from": "steps.some.result"}}),
    )
    stage.script(some=[succeed(1), fail("two"), succeed(3)])
    run = stage.start(input={"none": [], "some": ["x", "y", "z"]})
    assert stage.steps(run) == {"none": "succeeded", "some": "failed", "after": "succeeded"}
    assert stage.given("after") == [{"all": [1, None, 3]}]
    assert stage.state(run) == "failed"


def test_a_workflow_may_be_a_step_of_another(stage: Stage) -> None:
    given = {"n": {"$from": "input.n"}}
    stage.put(note("double", input=given), name="inner", input={"n": 1})
    inner = {"name": "inner", "target": {"workflow": "inner"}, "input": given}
    after = note("after", "inner", input={"was": {"$from": "steps.inner.result.double"}})
    stage.put(inner, after, name="outer", input={"n": 21})
    stage.script(double=succeed(42))
    run = stage.start("outer")
    assert stage.given("double") == [{"n": 21}]
    assert stage.given("after") == [{"was": 42}]
    assert stage.state(run) == "succeeded"
    inside = stage.step_run(run, "inner")
    assert [child.parent for child in stage.children(inside.id)] == [inside.id]


def test_the_time_limit_of_a_step_holds_for_the_workflow_it_runs(stage: Stage) -> None:
    stage.put(note("slow"), name="inner")
    stage.put({"name": "in", "target": {"workflow": "inner"}, "time_limit": "2m"}, name="outer")
    stage.script(slow=hang())
    run = stage.start("outer")
    stage.advance(minutes=3)
    assert "reached after 2m" in stage.step_run(run, "in").error
    assert stage.state(run) == "failed"
    assert stage.living() == []


def test_an_answer_about_a_launch_that_is_given_twice_is_no_news(stage: Stage) -> None:
    stage.put(note("a"))
    stage.ask("workflow run", workflow="flow")
    (lease,) = lease_ready(stage.store, ids=stage.bench.ids, holder="w", capacity=1, now=stage.now).leases
    answer = Answer(run=lease.run, outcome=Succeeded(), started_at=stage.now)
    first = settle_answers(stage.store, [answer], now=stage.now)
    again = settle_answers(stage.store, [answer], now=stage.now)
    assert (first.stale, again.stale, again.facts) == ((), (), ())
    assert len(stage.children(lease.run.id)) == 1


def test_workflows_that_run_each_other_without_end_are_stopped(stage: Stage) -> None:
    stage.put({"name": "b", "target": {"workflow": "b"}}, name="a")
    stage.put({"name": "a", "target": {"workflow": "a"}}, name="b")
    run = stage.start("a")
    stage.advance(minutes=1)
    assert stage.state(run) == "failed"
    assert stage.living() == []


def test_a_workflow_that_is_not_there_fails_the_launch(stage: Stage) -> None:
    stage.ask("schedule create", name="lost", once="2026-03-10T12:01:00Z", workflow="gone", retry=1)
    stage.advance(minutes=2)
    (row,) = stage.ask("run list", schedule="lost")["runs"]
    assert (row["state"], row["error"]) == ("failed", "no workflow gone")


def test_a_schedule_sees_its_workflow_as_one_run_in_flight(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), schedules=[{"cron": "* * * * *", "overlap": "skip"}])
    stage.script(a=succeed(after=90 * timedelta(seconds=1)))
    stage.advance(minutes=3, seconds=30)
    rows = stage.ask("run list", schedule="flow")["runs"][::-1]
    assert [row["reason"] or row["state"] for row in rows] == ["succeeded", "overlap", "leased"]
    assert stage.ask("schedule get", schedule="flow")["standing"]["failures"] == 0


def test_a_run_remembers_its_version_while_a_newer_one_is_put(stage: Stage) -> None:
    stage.put(note("a", time_limit="2h"), note("b", "a"))
    stage.script(a=succeed(after=HOUR))
    run = stage.start()
    stage.put(note("a", time_limit="2h"), note("c", "a"))
    stage.advance(hours=1)
    assert stage.steps(run) == {"a": "succeeded", "b": "succeeded"}
    assert stage.ask("run get", run=run)["payload"]["version"] == 1
    later = stage.start()
    stage.advance(hours=1)
    assert stage.steps(later) == {"a": "succeeded", "c": "succeeded"}


def test_a_step_that_is_handed_off_waits_in_a_queue_named_like_its_workflow(stage: Stage) -> None:
    approve = {"name": "approve", "target": {"handoff": {"payload": {"ask": "go on?"}}}, "needs": ["a"]}
    stage.put(note("a"), approve, note("b", "approve"))
    run = stage.start()
    assert stage.steps(run) == {"a": "succeeded", "approve": "ready", "b": "waiting"}
    (lease,) = stage.ask("queue lease", queue="flow")["leases"]
    assert lease["payload"]["step"] == "approve"
    stage.ask("queue complete", run=lease["run"], fence=lease["fence"], result="yes")
    stage.bench.tick()
    assert stage.state(run) == "succeeded"
