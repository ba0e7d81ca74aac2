"""Pauses of a namespace, group, owner, queue or provider: nothing of it starts, everything else goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from timewright.core.run.run import RunState
from timewright.errors import Forbidden, InvalidInput, NotFound
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.testing.bench import Bench
from timewright.testing.targets import succeed

SUCCEEDED, SKIPPED, READY = RunState.SUCCEEDED, RunState.SKIPPED, RunState.READY
# Each scope with the name that the schedule "inside" has, and "outside" has not.
SCOPES = {
    "group": {"group": "reports"},
    "queue": {"queue": "mail"},
    "provider": {"provider": "openai"},
}


def states(bench: Bench, name: str) -> list[RunState]:
    return [run.state for run in bench.runs(name)]


def with_both(**fields: Any) -> Bench:
    bench = Bench()
    bench.schedule("inside", "every 1h", catch_up="all", **fields)
    bench.schedule("outside", "every 1h", catch_up="all")
    return bench


def verified(bench: Bench) -> None:
    assert bench.call("verify")["violations"] == []


def as_agent(bench: Bench) -> OperationContext:
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    return context_for(context, Caller(actor="bot", origin="agent", scopes=ROLES["editor"]))


@pytest.mark.parametrize("scope", SCOPES)
def test_occurrences_in_a_pause_that_waits_are_caught_up(scope: str) -> None:
    bench = with_both(**SCOPES[scope])
    (name,) = SCOPES[scope].values()
    bench.call("pause", scope=scope, name=name, due="wait")
    bench.advance(hours=3)
    assert (states(bench, "inside"), len(bench.runs("outside"))) == ([], 3)
    verified(bench)
    bench.call("resume", scope=scope, name=name)
    bench.advance(seconds=10)
    assert states(bench, "inside") == [SUCCEEDED] * 3
    verified(bench)


@pytest.mark.parametrize("scope", SCOPES)
def test_occurrences_in_a_pause_that_skips_are_never_caught_up(scope: str) -> None:
    bench = with_both(**SCOPES[scope])
    (name,) = SCOPES[scope].values()
    bench.advance(minutes=90)
    bench.call("pause", scope=scope, name=name, due="skip")
    bench.advance(hours=2)
    bench.call("resume", scope=scope, name=name)
    bench.advance(hours=1)
    assert states(bench, "inside") == [SUCCEEDED, SKIPPED, SKIPPED, SUCCEEDED]
    assert [run.reason for run in bench.runs("inside")][1:3] == ["paused", "paused"]
    assert states(bench, "outside") == [SUCCEEDED] * 4
    verified(bench)


def test_a_pause_of_the_owner_holds_for_what_the_file_declares() -> None:
    bench = Bench()
    text = "owner: prod\nschedules:\n  - {name: inside, every: 1h, note: x, catch_up: all}\n"
    bench.call("apply", files={"prod.yaml": text})
    bench.schedule("outside", "every 1h")
    owner = bench.call("schedule get", schedule="inside")["schedule"]["owner"]
    bench.call("pause", scope="owner", name=owner)
    bench.advance(hours=2)
    assert (len(bench.runs("inside")), len(bench.runs("outside"))) == (0, 2)
    bench.call("resume", scope="owner", name=owner)
    bench.advance(seconds=10)
    assert len(bench.runs("inside")) == 2


def test_a_pause_of_a_namespace_leaves_other_namespaces_alone() -> None:
    bench = with_both()
    bench.call("namespace create", name="other")
    context = OperationContext(
        store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers, namespace="other"
    )
    operations["pause"](context, {"scope": "namespace"})
    bench.advance(hours=1)
    assert states(bench, "inside") == [SUCCEEDED]
    bench.call("pause", scope="namespace")
    bench.advance(hours=1)
    assert states(bench, "inside") == [SUCCEEDED]


def test_a_timed_pause_ends_by_itself() -> None:
    bench = with_both(group="reports")
    until = (bench.now + timedelta(minutes=150)).isoformat()
    bench.call("pause", scope="group", name="reports", due="wait", until=until)
    bench.call("schedule run", schedule="inside")
    bench.advance(minutes=149)
    assert states(bench, "inside") == [READY]
    bench.advance(minutes=2)
    assert states(bench, "inside") == [SUCCEEDED] * 3
    verified(bench)


def test_ready_runs_wait_under_both_kinds_of_pause_and_others_pass_them() -> None:
    bench = with_both(group="reports", overlap="allow")
    bench.call("pause", scope="group", name="reports")
    for _ in range(40):
        bench.call("schedule run", schedule="inside", force=True)
    bench.call("schedule run", schedule="outside")
    bench.advance(seconds=5)
    assert set(states(bench, "inside")) == {READY}
    assert states(bench, "outside") == [SUCCEEDED]
    (run, *_) = bench.runs("inside")
    assert "group reports is paused by" in bench.call("run explain", run=run.id)["because"][-1]
    assert not bench.call("overdue")["overdue"]
    bench.call("resume", scope="group", name="reports")
    bench.advance(seconds=30)
    assert set(states(bench, "inside")) == {SUCCEEDED}
    verified(bench)


@pytest.mark.parametrize("scope", ["installation", "namespace", *SCOPES])
def test_a_run_that_a_pause_holds_says_so_and_how_to_resume(scope: str) -> None:
    fields = SCOPES.get(scope, {})
    bench = with_both(**fields)
    name = "".join(fields.values())
    bench.call("pause", scope=scope, name=name, reason="wrong numbers")
    bench.call("schedule run", schedule="inside")
    (run,) = bench.runs("inside")
    for _ in range(2):  # before an engine has looked at it, and after
        answer = bench.call("run explain", run=run.id)
        what = f"{scope} {name or 'default'}" if scope != "installation" else "the installation"
        assert answer["because"][-1].startswith(f"it waits until someone resumes it: {what} is paused by ")
        assert answer["because"][-1].endswith(": wrong numbers")
        assert [one["operation"] for one in answer["remedies"]] == ["resume"]
        assert "pause_" not in answer["summary"]
        bench.advance(seconds=5)
    bench.call(answer["remedies"][0]["operation"], **answer["remedies"][0]["request"])
    bench.advance(seconds=30)
    assert states(bench, "inside") == [SUCCEEDED]


def test_queue_entries_wait_for_the_end_of_a_pause_of_their_queue() -> None:
    bench = Bench()
    for queue in ("mail", "web"):
        bench.call("queue add", queue=queue, payload=1)
    bench.call("pause", scope="queue", name="mail", reason="bounces")
    waiting = bench.call("queue plan", queue="mail")["waiting"]
    assert [(one["reason"], one["until"]) for one in waiting] == [("pause", None)]
    assert bench.call("queue lease", queue="mail", holder="w")["leases"] == []
    assert len(bench.call("queue lease", queue="web", holder="w")["leases"]) == 1
    bench.call("resume", scope="queue", name="mail")
    assert len(bench.call("queue lease", queue="mail", holder="w")["leases"]) == 1


def test_the_steps_of_a_workflow_wait_with_its_schedule() -> None:
    bench = Bench()
    steps = [{"name": "a", "target": {"call": "a"}}, {"name": "b", "target": {"call": "b"}, "needs": ["a"]}]
    bench.call("workflow put", name="flow", steps=steps)
    bench.call("schedule create", name="inside", every="1h", workflow="flow", group="reports")
    bench.target.script("", succeed(after=timedelta(minutes=10)))
    bench.advance(hours=1)
    bench.call("pause", scope="group", name="reports")
    bench.advance(minutes=30)
    steps = bench.call("run list", state="ready")["runs"]
    assert len(steps) == 1
    assert "group reports is paused" in bench.call("run explain", run=steps[0]["id"])["because"][-1]
    bench.call("resume", scope="group", name="reports")
    bench.advance(minutes=11)
    assert states(bench, "inside") == [SUCCEEDED]


def test_cancel_running_asks_the_runs_under_way_in_the_scope_to_stop() -> None:
    bench = with_both(group="reports")
    for name in ("inside", "outside"):
        bench.target.script(name, succeed(after=timedelta(minutes=30)))
    bench.advance(hours=1)
    answer = bench.call("pause", scope="group", name="reports", cancel_running=True, reason="wrong numbers")
    assert answer["cancelled"] == 1
    bench.advance(minutes=1)
    assert states(bench, "inside") == [RunState.CANCELLED]
    assert states(bench, "outside") == [RunState.LEASED]


def test_a_schedule_made_in_a_paused_group_is_paused() -> None:
    bench = with_both(group="reports")
    bench.call("group pause", group="reports")
    bench.schedule("later", "every 1h", group="reports")
    bench.advance(hours=2)
    assert bench.runs("later") == []
    assert bench.call("schedule get", schedule="later")["paused_by"].startswith("group reports by ")


def test_an_edit_in_a_pause_that_skips_admits_nothing_of_it() -> None:
    bench = with_both(group="reports")
    bench.call("group pause", group="reports")
    bench.advance(minutes=150)
    bench.call("schedule update", schedule="inside", every="20m")
    bench.advance(minutes=10)
    bench.call("group resume", group="reports")
    bench.advance(minutes=19)
    assert SUCCEEDED not in states(bench, "inside")[:2]
    assert states(bench, "inside")[-1] is SUCCEEDED
    verified(bench)


def test_an_agent_may_pause_and_may_not_lift_the_pause_of_a_person() -> None:
    bench = with_both(group="reports")
    agent = as_agent(bench)
    operations["pause"](agent, {"scope": "group", "name": "reports"})
    assert operations["resume"](agent, {"scope": "group", "name": "reports"})["pauses"] == []
    bench.call("pause", scope="group", name="reports", reason="audit")
    for operation, request in (
        ("resume", {"scope": "group", "name": "reports"}),
        ("group resume", {"group": "reports"}),
    ):
        with pytest.raises(Forbidden, match="may not end this pause"):
            operations[operation](agent, request)
    bench.call("schedule pause", schedule="outside", reason="audit")
    with pytest.raises(Forbidden, match="may not end this pause"):
        operations["schedule resume"](agent, {"schedule": "outside"})
    with pytest.raises(Forbidden, match="admin"):
        operations["pause"](agent, {})
    assert len(bench.call("resume")["pauses"]) == 1


@pytest.mark.parametrize("scope", ["group", "queue", "owner", "provider"])
def test_a_pause_of_an_unknown_name_is_refused(scope: str) -> None:
    bench = with_both(group="reports")
    with pytest.raises(NotFound, match=f"no {scope} 'report'"):
        bench.call("pause", scope=scope, name="report")
    with pytest.raises(InvalidInput, match="name is missing"):
        bench.call("pause", scope=scope)
    assert bench.call("resume")["pauses"] == []


def test_explain_names_the_pause_and_the_command_that_ends_it() -> None:
    bench = with_both(group="reports")
    bench.call("pause", scope="group", name="reports", reason="audit")
    answer = bench.call("schedule explain", schedule="inside")
    assert answer["status"] == "paused"
    assert answer["remedies"][0]["command"] == "timewright resume --scope group --name reports"
