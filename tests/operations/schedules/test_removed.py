"""What a person archived is not made again by an agent, and the refusal says who and why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.errors import NotAllowed, TimewrightError
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, context_for

AGENT = Caller(actor="helper", origin="agent", scopes=ROLES["editor"])
POLL: dict[str, Any] = {"name": "poll", "every": "10m", "note": "look"}


def by_agent(harness: OperationsHarness, **fields: Any) -> Any:
    return operations["schedule create"](context_for(harness.context, AGENT), {**POLL, **fields})


@pytest.fixture
def harness() -> OperationsHarness:
    harness = OperationsHarness()
    harness.ask("schedule create", **POLL)
    harness.ask("schedule archive", schedule="poll", reason="too many mails")
    return harness


@pytest.mark.parametrize("fields", [{}, {"name": "other"}, {"every": "1h"}, {"force": True}])
def test_an_agent_is_refused_what_a_person_archived(
    harness: OperationsHarness, fields: dict[str, Any]
) -> None:
    with pytest.raises(NotAllowed) as refused:
        by_agent(harness, **fields)
    assert "too many mails" in refused.value.message
    assert "removed poll" in refused.value.message


def test_another_schedule_is_not_affected(harness: OperationsHarness) -> None:
    assert by_agent(harness, name="other", note="something else")["schedule"]["name"] == "other"


def test_after_thirty_days_it_may_be_made_again(harness: OperationsHarness) -> None:
    harness.sleep(days=31)
    assert by_agent(harness)["schedule"]["name"] == "poll"


def test_where_a_person_approves_it_waits_for_that(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_approval=True)
    assert by_agent(harness)["progress"]["state"] == "pending_approval"


def test_a_person_may_make_it_again(harness: OperationsHarness) -> None:
    assert harness.ask("schedule create", **POLL)["schedule"]["name"] == "poll"


def test_a_schedule_that_an_agent_archived_itself_may_be_made_again() -> None:
    harness = OperationsHarness()
    by_agent(harness)
    operations["schedule archive"](context_for(harness.context, AGENT), {"schedule": "poll"})
    assert by_agent(harness)["schedule"]["name"] == "poll"


ROUTES: dict[str, dict[str, Any]] = {
    "schedule put": POLL,
    "schedule put-many": {"schedules": [POLL]},
    "reminder set": {"name": "poll", "text": "look", "every": "10m"},
    "workflow put": {
        "name": "load",
        "steps": [{"name": "a", "target": {"note": "x"}}],
        "schedules": [{"name": "poll", "every": "1h"}],
    },
    "apply": {"files": {"x.yaml": "schedules: [{name: poll, every: 10m, note: look}]"}},
}


@pytest.mark.parametrize("operation", ROUTES)
def test_no_other_operation_makes_it_again(harness: OperationsHarness, operation: str) -> None:
    with pytest.raises(TimewrightError, match="too many mails"):
        operations[operation](context_for(harness.context, AGENT), ROUTES[operation])


def test_a_rejected_schedule_counts_as_removed(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_approval=True)
    by_agent(harness, name="again", note="again")
    harness.ask("approval reject", schedule="again", reason="not wanted")
    harness.ask("namespace set", name="default", agent_approval=False)
    with pytest.raises(NotAllowed, match="not wanted"):
        by_agent(harness, name="again", note="again")


def test_a_workflow_that_a_person_deleted_gets_no_schedule_from_an_agent(harness: OperationsHarness) -> None:
    flow = {**ROUTES["workflow put"], "schedules": [{"every": "1h"}]}
    harness.ask("workflow put", flow)
    harness.ask("workflow delete", workflow="load", reason="never again")
    operations["workflow put"](context_for(harness.context, AGENT), flow)
    assert harness.ask("schedule list", name_starts="load")["schedules"] == []
    with pytest.raises(NotAllowed, match="never again"):
        by_agent(harness, name="load")
