"""Steps that wait for a person or an event: no lease, no attempt, one answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.run.run import Run
from timewright.errors import Forbidden, InvalidInput, InvalidWorkflow, NotAllowed, NotFound, Stale
from timewright.ledger.replan import Actor
from timewright.ledger.workflow_runs import waits
from timewright.ledger.workflow_runs.waits import WaitingStep, find_waiting_step
from timewright.operations import operations
from timewright.ports import Transaction
from timewright.testing.targets import succeed

FORM = {"approved": "boolean", "size": ["s", "m"], "note": {"type": "text", "required": False}}


def ask_step(name: str, *needs: str, **wait: Any) -> dict[str, Any]:
    return {"name": name, "needs": list(needs), "wait": wait, "description": "Publish the draft?"}


def put_question(harness: WorkflowHarness, **fields: Any) -> str:
    """A draft, a question about it, and what follows; returns the workflow run."""
    harness.put(
        call_step("draft"),
        {
            **ask_step("check", "draft", answer={"to": "editors", "form": FORM}, **fields),
            "input": {"draft": {"$from": "steps.draft.result"}},
        },
        call_step("publish", "check", input={"size": {"$from": "steps.check.result.size"}}),
    )
    harness.script(draft=succeed("a text"))
    return harness.start()


def asked(harness: WorkflowHarness) -> list[dict[str, Any]]:
    return list(harness.ask("approval list")["answers"])


def test_the_question_and_its_data_reach_a_person_and_the_answer_reaches_the_next_step(
    harness: WorkflowHarness,
) -> None:
    run = put_question(harness)
    [question] = asked(harness)
    assert question["question"] == "Publish the draft?"
    assert question["payload"] == {"draft": "a text"}
    assert (question["to"], question["workflow_run"], question["until"]) == ("editors", run, None)
    assert question["form"]["size"] == {
        "type": "choice",
        "choices": ["s", "m"],
        "required": True,
        "label": "",
    }
    harness.ask("run answer", run=question["run"], answer={"approved": True, "size": "m"})
    harness.bench.tick()
    assert harness.given("publish") == [{"size": "m"}]
    assert harness.state(run) == "succeeded"
    assert asked(harness) == []


def test_thinking_for_a_month_costs_no_attempt_and_survives_a_restart(
    harness: WorkflowHarness, another: Callable[[str], WorkflowHarness]
) -> None:
    run = put_question(harness)
    harness.advance(days=30)
    later = another("later")
    later.target = harness.target
    later.advance(minutes=1)
    waiting = harness.step_run(run, "check")
    assert (waiting.attempts, waiting.fence, waiting.losses) == (0, 1, 0)
    assert (
        "it waits for an answer from editors; no worker has it"
        in harness.ask("run explain", run=waiting.id)["because"]
    )
    later.ask("run answer", run=waiting.id, answer={"approved": True, "size": "s"})
    harness.bench.tick()
    assert harness.state(run) == "succeeded"


def test_a_question_has_templates(harness: WorkflowHarness) -> None:
    harness.ask("channel create", channel="editors", to="poll", events=[])
    ask = {**ask_step("check", answer={"to": "editors"}), "each": {"$from": "input.names"}}
    question = {"description": "Publish {{ item }} of {{ steps.draft.result }}?"}
    harness.put(call_step("draft"), ask | question, input={"names": ["a", "b"]})
    harness.script(draft=succeed("today"))
    harness.start()
    wanted = ["Publish a of today?", "Publish b of today?"]
    assert [one["question"] for one in asked(harness)] == wanted
    told = harness.ask("run list", queue="channel.editors")["runs"]
    messages = [harness.ask("run get", run=one["id"])["payload"] for one in told]
    assert sorted(one["sentence"] for one in messages) == wanted
    with pytest.raises(InvalidWorkflow, match="nowhere"):
        harness.put({**ask_step("check", answer={}), "description": "{{ steps.nowhere.result }}"})


def test_an_answer_is_taken_once(harness: WorkflowHarness) -> None:
    run = put_question(harness)
    check = harness.step_run(run, "check").id
    harness.ask("run answer", run=check, answer={"approved": True, "size": "m"})
    with pytest.raises(NotAllowed, match="no longer waits for an answer"):
        harness.ask("run answer", run=check, answer={"approved": False, "size": "s"})
    harness.bench.tick()
    assert harness.result(check) == {"approved": True, "size": "m"}
    assert harness.launches()["publish"] == 1


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"approved": True}, "answer.size"),
        ({"approved": "yes", "size": "m"}, "answer.approved"),
        ({"approved": True, "size": "xl"}, "answer.size"),
        ({"approved": True, "size": "m", "more": 1}, "answer.more"),
        ("yes", "answer"),
    ],
)
def test_an_answer_that_does_not_fit_the_form_is_refused(
    harness: WorkflowHarness, answer: Any, field: str
) -> None:
    run = put_question(harness)
    check = harness.step_run(run, "check").id
    with pytest.raises(InvalidInput) as error:
        harness.ask("run answer", run=check, answer=answer)
    assert error.value.field == field
    assert field.partition(".")[2] in error.value.message
    assert error.value.fix == "{approved: true, size: s|m, note: TEXT}"
    assert harness.state(check) == "leased"


def test_a_chosen_run_is_answered_not_the_oldest(harness: WorkflowHarness) -> None:
    first, second = put_question(harness), harness.start()
    harness.ask(
        "run answer", run=harness.step_run(second, "check").id, answer={"approved": True, "size": "m"}
    )
    harness.bench.tick()
    assert (harness.state(first), harness.state(second)) == ("leased", "succeeded")


def test_after_until_the_step_fails_or_has_its_else(harness: WorkflowHarness) -> None:
    run = put_question(harness, until="2d")
    assert asked(harness)[0]["until"] is not None
    harness.advance(days=2, seconds=1)
    assert harness.steps(run) == {"draft": "succeeded", "check": "failed", "publish": "skipped"}
    other = put_question(harness, until="2d", **{"else": {"approved": False, "size": "s"}})
    harness.advance(days=2, seconds=1)
    assert harness.given("publish") == [{"size": "s"}]
    assert harness.state(other) == "succeeded"
    assert harness.step_run(other, "check").attempts == 0


def test_nobody_answers_by_a_report_and_an_agent_not_at_all(harness: WorkflowHarness) -> None:
    run = put_question(harness)
    check = harness.step_run(run, "check")
    with pytest.raises(Stale):
        harness.ask("run report", run=check.id, fence=1, outcome={"kind": "succeeded", "result": 1})
    with pytest.raises(NotFound):
        harness.ask("queue complete", lease=check.lease_id, result=1)
    agent = replace(harness.context, by=Actor(name="assistant", origin="agent"))
    with pytest.raises(Forbidden):
        operations["run answer"](agent, {"run": check.id, "answer": {"approved": True, "size": "m"}})


def test_a_cancel_ends_what_waits_at_once_and_a_retry_asks_again(harness: WorkflowHarness) -> None:
    run = put_question(harness)
    harness.ask("run cancel", run=run)
    assert harness.steps(run)["check"] == "cancelled"
    assert harness.state(run) == "cancelled"
    harness.ask("run retry", run=run)
    harness.bench.tick()
    [question] = asked(harness)
    harness.ask("run answer", run=question["run"], answer={"approved": True, "size": "m"})
    harness.bench.tick()
    assert harness.state(run) == "succeeded"
    assert harness.launches() == {"draft": 1, "publish": 1}


def told(harness: WorkflowHarness, channel: str) -> list[tuple[str, str]]:
    """Lease and complete what waits for a polling channel."""
    leases = harness.ask("queue lease", queue=f"channel.{channel}", holder="client", limit=50)["leases"]
    for one in leases:
        harness.ask("queue complete", run=one["run"], fence=one["fence"])
    return [(one["payload"]["type"], one["payload"]["sentence"]) for one in leases]


def test_a_question_is_told_once_to_the_channel_it_names_and_to_those_that_want_it(
    harness: WorkflowHarness,
) -> None:
    harness.ask("channel create", channel="editors", to="poll", schedules=["billing-*"])
    harness.ask("channel create", channel="all", to="poll", events=["answer.wanted"])
    harness.ask("channel create", channel="incidents", to="poll")
    run = put_question(harness)
    question = [("answer-wanted", "Publish the draft?")]
    assert [told(harness, one) for one in ("editors", "all", "incidents")] == [question, question, []]
    harness.ask("run answer", run=harness.step_run(run, "check").id, answer={"approved": True, "size": "m"})
    harness.advance(minutes=1)
    assert [told(harness, one) for one in ("editors", "all")] == [[], []]
    harness.put(
        {
            **ask_step("vote", answer={}),
            "each": {"$from": "input.names", "limit": 9},
            "input": {"name": {"$from": "item"}},
        },
        input={"names": list("abcdefg")},
    )
    harness.start()
    assert told(harness, "all") == [("answer-wanted", "7 questions wait for an answer")]


def test_an_event_ends_the_steps_whose_match_is_true(harness: WorkflowHarness) -> None:
    wait = {"event": {"name": "payment", "match": "event.order == input.order"}}
    harness.put(ask_step("paid", **wait), call_step("ship", "paid"), input={"order": 0})
    first, second = harness.start(input={"order": 1}), harness.start(input={"order": 2})
    assert harness.ask("workflow signal", event="refund", data={"order": 2})["runs"] == []
    ended = harness.ask("workflow signal", event="payment", data={"order": 2})["runs"]
    assert [one["id"] for one in ended] == [harness.step_run(second, "paid").id]
    harness.bench.tick()
    assert (harness.state(first), harness.state(second)) == ("leased", "succeeded")
    assert harness.result(harness.step_run(second, "paid").id) == {"order": 2}
    with pytest.raises(NotAllowed, match="waits for an event"):
        harness.ask("run answer", run=harness.step_run(first, "paid").id, answer=1)


def test_an_event_reads_only_the_steps_that_wait_for_it(
    harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("payment", "refund"):
        harness.put(ask_step("told", event={"name": name}), name=name)
        for _ in range(3):
            harness.start(name)
    put_question(harness)
    read: list[str] = []

    def count(tx: Transaction, run: Run) -> WaitingStep:
        read.append(run.id)
        return find_waiting_step(tx, run)

    monkeypatch.setattr(waits, "find_waiting_step", count)
    ended = [one["id"] for one in harness.ask("workflow signal", event="refund")["runs"]]
    assert len(ended) == 3
    assert read == ended
    read.clear()
    assert [one["run"] for one in asked(harness)] == read
    assert len(read) == 1


def test_the_match_of_an_event_sees_the_item_of_a_fan_out(harness: WorkflowHarness) -> None:
    wait = {"event": {"name": "payment", "match": "event.order == item.order"}}
    orders = [{"order": 1}, {"order": 2}]
    harness.put({**ask_step("paid", **wait), "each": {"$from": "input.orders"}}, input={"orders": orders})
    run = harness.start()
    for order in (2, 1):
        [ended] = harness.ask("workflow signal", event="payment", data={"order": order})["runs"]
        assert harness.run(ended["id"]).payload["item"] == order - 1
    harness.bench.tick()
    assert harness.state(run) == "succeeded"


def test_a_wait_only_for_time_ends_by_itself(harness: WorkflowHarness) -> None:
    harness.put(ask_step("pause", until="10m", **{"else": {}}), call_step("go", "pause"))
    run = harness.start()
    harness.advance(minutes=9)
    assert harness.launches() == {}
    harness.advance(minutes=1)
    assert harness.state(run) == "succeeded"


@pytest.mark.parametrize(
    ("step", "field"),
    [
        ({"name": "a"}, "steps[0].target"),
        ({"name": "a", "wait": {}}, "steps[0].wait"),
        ({"name": "a", "wait": {"until": "0s"}}, "steps[0].wait.until"),
        ({"name": "a", "wait": {"answer": {}}, "target": {"call": "b"}}, "steps[0].target"),
        ({"name": "a", "wait": {"answer": {}}, "lease": "5m"}, "steps[0].lease"),
        ({"name": "a", "wait": {"answer": {}}, "limits": ["crm"]}, "steps[0].limits"),
        ({"name": "a", "wait": {"event": {"name": "x", "match": "y =="}}}, "steps[0].wait.event.match"),
        ({"name": "a", "wait": {"event": {"name": "x", "match": "item.y"}}}, "steps[0].wait.event.match"),
        (
            {"name": "a", "wait": {"answer": {"form": {"x": {"type": "choice"}}}}},
            "steps[0].wait.answer.form.x",
        ),
    ],
)
def test_a_wait_that_cannot_work_is_refused(
    harness: WorkflowHarness, step: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidWorkflow) as error:
        harness.put(step)
    assert error.value.field == field


def test_a_hand_off_has_its_payload_and_its_queue_is_listed(harness: WorkflowHarness) -> None:
    step = {"name": "review", "target": {"handoff": {"payload": {"kind": "review"}}}, "input": {"text": "a"}}
    harness.put(step, name="reviews")
    harness.start("reviews")
    [queue] = harness.ask("queue list")["queues"]
    assert (queue["queue"], queue["counts"]) == ("reviews", {"ready": 1})
    [lease] = harness.ask("queue lease", queue="reviews", length=timedelta(minutes=5))["leases"]
    assert lease["payload"] == {"kind": "review", "text": "a"}
