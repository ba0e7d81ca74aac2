"""Where a namespace requires approval, nothing that an agent wrote runs before a person approved it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import NOON, OperationsHarness
from timewright import Scheduler
from timewright.core.run.run import RunState
from timewright.errors import Forbidden, NotAllowed, TimewrightError
from timewright.operations import operations
from timewright.operations.access.authentication import ALL_SCOPES, Caller, context_for
from timewright.operations.access.permissions import AGENT_RULES, AgentRule
from timewright.ports import RunFilter

UNAPPROVED = "written by an agent, approved by nobody"
AGENT = Caller(actor="night-agent", origin="agent", scopes=ALL_SCOPES)

PERSON_STEPS = [{"name": "load", "target": {"note": "written by a person"}}]
AGENT_STEPS = [{"name": "load", "target": {"note": UNAPPROVED}}]


def as_agent(harness: OperationsHarness) -> OperationsHarness:
    other = copy(harness)
    other.context = context_for(harness.context, AGENT)
    return other


@pytest.fixture
def harness() -> OperationsHarness:
    """A person's schedules and workflow, and beside them what an agent wrote and nobody approved."""
    made = OperationsHarness()
    made.ask("namespace set", name="default", agent_approval=True)
    made.ask("calendar put", name="work", weekly=["daily 00:00-24:00"])
    made.ask("workflow put", name="load", steps=PERSON_STEPS)
    made.ask("schedule create", name="nightly", every="1h", workflow="load")
    made.ask("schedule create", name="pinned", manual=True, note="fine", calendar="only work")
    made.advance(hours=1, minutes=1)
    agent = as_agent(made)
    agent.ask("schedule create", name="sneaky", every="10m", note=UNAPPROVED)
    agent.ask("schedule create", name="by-hand", manual=True, note=UNAPPROVED)
    agent.ask("workflow put", name="load", steps=AGENT_STEPS)
    agent.ask("workflow put", name="own", steps=AGENT_STEPS, schedules=[{"every": "10m"}])
    return made


def launched(harness: OperationsHarness) -> str:
    """Every target that was launched."""
    return " ".join(str(launch.target) for launch in harness.bench.target.launched)


def values(harness: OperationsHarness) -> dict[str, list[Any]]:
    """Values for the fields of any request that point at what the agent wrote."""
    runs = harness.store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows
    return {
        "schedule": ["sneaky", "by-hand", "nightly", "pinned"],
        "workflow": ["load", "own"],
        "version": [None, 2, 1],
        "run": [run.id for run in runs][:4],
        "reminder": ["sneaky", "by-hand"],
        "calendar": ["work"],
        "name": ["sneaky", "nightly", "load", "own", "new"],
        "to": [NOON.replace(hour=14).isoformat(), 1],
        "since": [NOON.isoformat()],
        "note": [UNAPPROVED],
        "every": ["5m"],
        "steps": [AGENT_STEPS],
    }


def requests(operation: Any, known: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Requests for an operation: its examples, and each with its fields replaced by known values."""
    found: list[dict[str, Any]] = [dict(example) for example in operation.examples] or [{}]
    fields = {*operation.request_type.__struct_fields__}
    if operation.request_type.flattens is not None:
        fields |= {"name", "note", "every", "steps"}
    for name in sorted(fields & known.keys()):
        found += [{**one, name: value} for one in list(found) for value in known[name] if value is not None]
    return found[:200]


WRITES = [one for one in operations if not one.read_only]


@pytest.mark.parametrize("operation", WRITES, ids=lambda one: one.name)
def test_no_operation_lets_an_agent_run_what_nobody_approved(
    operation: Any, harness: OperationsHarness
) -> None:
    agent = as_agent(harness)
    for request in requests(operation, values(harness)):
        try:
            agent.ask(operation.name, {**request, "dry_run": False})
        except TimewrightError:
            continue
    harness.advance(hours=3)
    assert UNAPPROVED not in launched(harness)


def test_every_operation_that_writes_has_a_rule_for_agents() -> None:
    assert set(AGENT_RULES) == {one.name for one in WRITES}


def test_a_refused_operation_names_the_person_s_way(harness: OperationsHarness) -> None:
    refused = [name for name, rule in AGENT_RULES.items() if rule is AgentRule.REFUSED]
    for name in refused:
        with pytest.raises(Forbidden) as refusal:
            as_agent(harness).ask(name, dict(operations[name].examples[0]))
        assert refusal.value.fix


def test_a_person_s_unpinned_schedule_runs_the_newest_approved_version(harness: OperationsHarness) -> None:
    harness.advance(hours=1)
    assert harness.ask("run list", schedule="nightly", limit=1)["runs"][0]["state"] == "succeeded"
    assert UNAPPROVED not in launched(harness)
    (waiting, own) = harness.ask("approval list")["workflows"]
    assert (waiting["workflow"], waiting["version"], waiting["author"]) == ("load", 2, "night-agent")
    assert waiting["spec"]["steps"][0]["target"]["text"] == UNAPPROVED
    assert own["workflow"] == "own"
    harness.ask("workflow approve", workflow="load")
    harness.advance(hours=1)
    assert UNAPPROVED in launched(harness)


def test_an_approved_workflow_gets_its_schedules_and_a_rejected_one_never_runs(
    harness: OperationsHarness,
) -> None:
    assert harness.ask("workflow get", workflow="own")["state"] == "pending_approval"
    approved = harness.ask("workflow approve", workflow="own", reason="read it")
    assert list(approved["schedules"]) == ["own"]
    harness.ask("workflow reject", workflow="load", reason="no")
    with pytest.raises(NotAllowed, match="was rejected"):
        harness.ask("workflow run", workflow="load", version=2)
    assert harness.ask("workflow get", workflow="load", version=2)["state"] == "rejected"
    assert harness.ask("workflow get", workflow="load", version=2)["author"] == "night-agent"
    assert harness.ask("workflow run", workflow="load")["run"]["state"] == "ready"
    assert [row["action"] for row in harness.ask("audit list")["entries"]][:3] == [
        "workflow.run",
        "workflow.reject",
        "workflow.approve",
    ]


def test_a_person_who_puts_the_same_workflow_makes_it_their_own(harness: OperationsHarness) -> None:
    made = harness.ask("workflow put", name="load", steps=AGENT_STEPS)
    assert (made["change"], made["version"], made["state"]) == ("updated", 3, "approved")


def test_an_agent_cannot_approve_also_where_approval_is_off(harness: OperationsHarness) -> None:
    harness.ask("namespace set", name="default", agent_approval=False)
    with pytest.raises(Forbidden, match="agents cannot approve"):
        as_agent(harness).ask("workflow approve", workflow="load")


def test_an_agent_in_the_process_is_bound_by_the_same_rules() -> None:
    app = Scheduler(":memory:")
    app.namespaces.set("default", agent_approval=True)
    agent = app.as_agent("planner")
    made = agent.schedules.create("sneaky", every="10m", note=UNAPPROVED)
    assert (made.progress.state, made.schedule.created_by, made.schedule.origin) == (
        "pending_approval",
        "planner",
        "agent",
    )
    put: Callable[..., Any] = agent.workflows.put
    assert put(name="own", steps=AGENT_STEPS).state == "pending_approval"
    with pytest.raises(NotAllowed):
        agent.workflows.run("own")
    with pytest.raises(Forbidden):
        agent.call("key create", key="mine", role="admin")
    assert app.approvals.list().approvals[0].created_by == "planner"
    app.stop()


def test_work_that_ended_before_is_not_approval(harness: OperationsHarness) -> None:
    agent = as_agent(harness)
    with pytest.raises(NotAllowed, match="waits for approval"):
        agent.ask("schedule run", schedule="by-hand")
    with pytest.raises(NotAllowed, match="waits for approval"):
        agent.ask("schedule backfill", schedule="sneaky", since=NOON.isoformat())
    assert agent.ask("schedule run", schedule="pinned")["run"]["state"] == RunState.READY
    assert replace(AGENT, actor="x").origin == "agent"
