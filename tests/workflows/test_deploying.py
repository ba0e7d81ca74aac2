"""Workflows have versions; their schedules are created, changed and archived with them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.moments import MINUTE, SECOND
from timewright.core.policies.policies import LeaseTerms, Retry
from timewright.core.run.run import RunState
from timewright.errors import Conflict, InvalidInput, NotFound
from timewright.operations.registry import operations
from timewright.settings import ScheduleDefaults, Settings
from timewright.testing.targets import hang

DAILY = {"cron": "0 6 * * *", "zone": "Europe/Berlin", "user_id": "ada"}


def test_every_version_is_kept_and_an_unchanged_definition_makes_no_new_one(harness: WorkflowHarness) -> None:
    assert harness.put(call_step("a"))["change"] == "created"
    assert harness.put(call_step("a"))["change"] == "unchanged"
    assert (harness.put(call_step("b"))["change"], harness.put(call_step("c"))["version"]) == ("updated", 3)
    names = [
        harness.ask("workflow get", workflow="flow", version=version)["workflow"]["steps"][0]["name"]
        for version in (1, 2, 3)
    ]
    assert names == ["a", "b", "c"]
    assert harness.ask("workflow get", workflow="flow")["version"] == 3
    with pytest.raises(NotFound):
        harness.ask("workflow get", workflow="flow", version=4)


def test_a_version_that_is_not_the_next_one_is_refused(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), version=1)
    with pytest.raises(Conflict, match="the next version of workflow flow is 2, not 1"):
        harness.put(call_step("b"), version=1)
    with pytest.raises(Conflict, match="is 2, not 5"):
        harness.put(call_step("b"), version=5)
    assert harness.put(call_step("b"), version=2)["version"] == 2


def test_a_schedule_of_a_workflow_has_all_that_was_written_and_runs_that_version(
    harness: WorkflowHarness,
) -> None:
    written = {
        **DAILY,
        "start_at": "2026-03-11T00:00:00Z",
        "end_at": "2026-12-31T00:00:00Z",
        "jitter_ms": 2000,
        "overlap_policy": "queue",
        "catchup_policy": "fire_immediately",
        "input": {"day": "today"},
    }
    schedules = harness.put(call_step("a"), schedules=[written])["schedules"]
    kept = harness.ask("schedule get", schedule="flow")["schedule"]
    assert schedules == {"flow": kept["id"]}
    assert kept["target"] == {
        "kind": "workflow", "workflow": "flow", "version": 1, "user": "ada", "input": {"day": "today"},
    }  # fmt: skip
    assert (kept["overlap"], kept["catch_up"], kept["jitter"]) == ("queue", "all", "2s")
    assert (kept["start_at"], kept["end_at"]) == ("2026-03-11T00:00:00Z", "2026-12-31T00:00:00Z")
    assert kept["trigger"]["zone"] == "Europe/Berlin"
    assert kept["preset"] == "workflow"


def test_the_payload_of_a_manual_run_is_the_workflow_input(harness: WorkflowHarness) -> None:
    given = {"day": {"$from": "input.day"}, "hour": {"$from": "input.hour"}}
    harness.put(
        call_step("a", input=given), input={"day": 1, "hour": 2}, schedules=[{**DAILY, "input": {"hour": 3}}]
    )
    run = harness.ask("schedule run", schedule="flow", payload={"day": 4})["run"]["id"]
    harness.bench.tick()
    assert harness.given("a") == [{"day": 4, "hour": 3}]
    assert harness.ask("run get", run=run)["payload"]["input"] == {"day": 4, "hour": 3}


def test_a_new_version_changes_its_schedules_retires_the_others_and_keeps_a_pause(
    harness: WorkflowHarness,
) -> None:
    two = [{**DAILY, "name": "morning"}, {"cron": "0 18 * * *", "name": "evening"}]
    first = harness.put(call_step("a"), schedules=two)["schedules"]
    harness.ask("schedule pause", schedule="morning", reason="on holiday")
    second = harness.put(call_step("b"), schedules=[{**DAILY, "name": "morning", "cron": "0 7 * * *"}])[
        "schedules"
    ]
    assert second == {"morning": first["morning"]}
    morning = harness.ask("schedule get", schedule="morning")
    assert (morning["progress"]["state"], morning["progress"]["reason"]) == ("paused", "on holiday")
    assert (morning["schedule"]["target"]["version"], morning["trigger"][:8]) == (2, "at 07:00")
    assert harness.ask("schedule get", schedule="evening")["progress"]["state"] == "archived"
    assert [row["name"] for row in harness.ask("schedule list")["schedules"]] == ["morning"]


def test_a_workflow_takes_no_schedule_that_is_not_its_own(harness: WorkflowHarness) -> None:
    harness.ask("schedule create", name="flow", every="1h", note="mine")
    with pytest.raises(Conflict, match="schedule flow exists and does not belong to this workflow"):
        harness.put(call_step("a"), schedules=[DAILY])
    assert harness.ask("workflow list")["workflows"] == []
    assert harness.ask("schedule get", schedule="flow")["schedule"]["target"]["kind"] == "note"


def test_a_deploy_is_one_transaction(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), schedules=[{**DAILY, "name": "one"}])
    with pytest.raises(InvalidInput):
        harness.put(
            call_step("b"),
            schedules=[{"cron": "0 1 * * *", "name": "two"}, {"cron": "61 * * * *", "name": "three"}],
        )
    assert [row["name"] for row in harness.ask("schedule list")["schedules"]] == ["one"]
    assert harness.ask("workflow get", workflow="flow")["version"] == 1


def test_a_deleted_workflow_retires_its_schedules_and_lets_runs_end(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), schedules=[DAILY])
    run = harness.ask("workflow run", workflow="flow")["run"]["id"]
    assert harness.ask("workflow delete", workflow="flow")["retired"] == ["flow"]
    harness.bench.tick()
    assert harness.run(run).state is RunState.SUCCEEDED
    assert harness.ask("workflow list")["workflows"] == []
    with pytest.raises(NotFound):
        harness.ask("workflow run", workflow="flow")
    assert harness.put(call_step("a"))["version"] == 2


def test_workflows_of_other_namespaces_are_not_found(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"))
    elsewhere = harness.in_namespace()
    with pytest.raises(NotFound):
        elsewhere.ask("workflow get", workflow="flow")
    assert elsewhere.ask("workflow put", name="flow", steps=[call_step("z")])["version"] == 1
    assert harness.ask("workflow get", workflow="flow")["workflow"]["steps"][0]["name"] == "a"


def test_workflows_are_listed_in_pages(harness: WorkflowHarness) -> None:
    for name in ("c", "a", "b"):
        harness.put(call_step("x"), name=name)
    page = harness.ask("workflow list", limit=2)
    rest = harness.ask("workflow list", limit=2, cursor=page["cursor"])
    assert [row["workflow"] for row in (*page["workflows"], *rest["workflows"])] == ["a", "b", "c"]
    assert rest["cursor"] == ""


def test_the_defaults_of_the_settings_hold_for_steps(harness: WorkflowHarness) -> None:
    lease = LeaseTerms(length=15 * SECOND, time_limit=MINUTE)
    defaults = ScheduleDefaults(lease=lease, retry=Retry(max_attempts=2))
    context = replace(harness.context, settings=Settings(defaults=defaults))
    steps = [call_step("a"), call_step("b", lease="40s", retry={"max_attempts": 5})]
    operations["workflow put"](context, {"name": "flow", "steps": steps})
    found = harness.ask("workflow get", workflow="flow")["workflow"]["steps"]
    assert [(one["lease"], one["time_limit"]) for one in found] == [("15s", "1m"), ("40s", "1m")]
    assert [one["retry"]["max_attempts"] for one in found] == [2, 5]
    harness.script(a=hang())
    leased = harness.step_run(harness.start(), "a")
    assert leased.lease_until is not None
    assert leased.leased_at is not None
    assert leased.lease_until - leased.leased_at == 15 * SECOND
