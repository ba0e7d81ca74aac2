"""Workflows are kept in versions; the schedules they bring come, change and go with them."""

from __future__ import annotations

import pytest

from tests.workflows.stage import Stage, note
from timewright.core.run import RunState
from timewright.errors import Conflict, InvalidInput, NotFound

DAILY = {"cron": "0 6 * * *", "zone": "Europe/Berlin", "user_id": "ada"}


def test_every_version_is_kept_and_the_same_words_make_no_new_one(stage: Stage) -> None:
    assert stage.put(note("a"))["change"] == "created"
    assert stage.put(note("a"))["change"] == "unchanged"
    assert (stage.put(note("b"))["change"], stage.put(note("c"))["version"]) == ("updated", 3)
    names = [
        stage.ask("workflow get", workflow="flow", version=version)["workflow"]["steps"][0]["name"]
        for version in (1, 2, 3)
    ]
    assert names == ["a", "b", "c"]
    assert stage.ask("workflow get", workflow="flow")["version"] == 3
    with pytest.raises(NotFound):
        stage.ask("workflow get", workflow="flow", version=4)


def test_a_version_that_is_not_the_next_one_is_refused(stage: Stage) -> None:
    stage.put(note("a"), version=1)
    with pytest.raises(Conflict, match="the next version of workflow flow is 2, not 1"):
        stage.put(note("b"), version=1)
    with pytest.raises(Conflict, match="is 2, not 5"):
        stage.put(note("b"), version=5)
    assert stage.put(note("b"), version=2)["version"] == 2


def test_a_schedule_of_a_workflow_has_all_that_was_written_and_runs_that_version(stage: Stage) -> None:
    written = {
        **DAILY,
        "start_at": "2026-03-11T00:00:00Z",
        "end_at": "2026-12-31T00:00:00Z",
        "jitter_ms": 2000,
        "overlap_policy": "queue",
        "catchup_policy": "fire_immediately",
        "input": {"day": "today"},
    }
    schedules = stage.put(note("a"), schedules=[written])["schedules"]
    kept = stage.ask("schedule get", schedule="flow")["schedule"]
    assert schedules == {"flow": kept["id"]}
    assert kept["target"] == {
        "kind": "workflow", "workflow": "flow", "version": 1, "user": "ada", "input": {"day": "today"},
    }  # fmt: skip
    assert (kept["overlap"], kept["catch_up"], kept["jitter"]) == ("queue", "all", "2s")
    assert (kept["start_at"], kept["end_at"]) == ("2026-03-11T00:00:00Z", "2026-12-31T00:00:00Z")
    assert kept["trigger"]["zone"] == "Europe/Berlin"
    assert kept["preset"] == "workflow"


def test_what_is_handed_to_a_run_of_its_schedule_is_its_input(stage: Stage) -> None:
    given = {"day": {"$from": "input.day"}, "hour": {"$from": "input.hour"}}
    stage.put(
        note("a", input=given), input={"day": 1, "hour": 2}, schedules=[{**DAILY, "input": {"hour": 3}}]
    )
    run = stage.ask("schedule run", schedule="flow", payload={"day": 4})["run"]["id"]
    stage.bench.tick()
    assert stage.given("a") == [{"day": 4, "hour": 3}]
    assert stage.ask("run get", run=run)["payload"]["input"] == {"day": 4, "hour": 3}


def test_a_new_version_changes_its_schedules_retires_the_others_and_keeps_a_pause(stage: Stage) -> None:
    two = [{**DAILY, "name": "morning"}, {"cron": "0 18 * * *", "name": "evening"}]
    first = stage.put(note("a"), schedules=two)["schedules"]
    stage.ask("schedule pause", schedule="morning", reason="on holiday")
    second = stage.put(note("b"), schedules=[{**DAILY, "name": "morning", "cron": "0 7 * * *"}])["schedules"]
    assert second == {"morning": first["morning"]}
    morning = stage.ask("schedule get", schedule="morning")
    assert (morning["standing"]["state"], morning["standing"]["reason"]) == ("paused", "on holiday")
    assert (morning["schedule"]["target"]["version"], morning["trigger"][:8]) == (2, "at 07:00")
    assert stage.ask("schedule get", schedule="evening")["standing"]["state"] == "archived"
    assert [row["name"] for row in stage.ask("schedule list")["schedules"]] == ["morning"]


def test_a_workflow_takes_no_schedule_that_is_not_its_own(stage: Stage) -> None:
    stage.ask("schedule create", name="flow", every="1h", note="mine")
    with pytest.raises(Conflict, match="schedule flow is not one of this workflow"):
        stage.put(note("a"), schedules=[DAILY])
    assert stage.ask("workflow list")["workflows"] == []
    assert stage.ask("schedule get", schedule="flow")["schedule"]["target"]["kind"] == "note"


def test_a_deploy_is_one_transaction(stage: Stage) -> None:
    stage.put(note("a"), schedules=[{**DAILY, "name": "one"}])
    with pytest.raises(InvalidInput):
        stage.put(
            note("b"),
            schedules=[{"cron": "0 1 * * *", "name": "two"}, {"cron": "61 * * * *", "name": "three"}],
        )
    assert [row["name"] for row in stage.ask("schedule list")["schedules"]] == ["one"]
    assert stage.ask("workflow get", workflow="flow")["version"] == 1


def test_a_deleted_workflow_retires_its_schedules_and_lets_runs_end(stage: Stage) -> None:
    stage.put(note("a"), note("b", "a"), schedules=[DAILY])
    run = stage.ask("workflow run", workflow="flow")["run"]["id"]
    assert stage.ask("workflow delete", workflow="flow")["retired"] == ["flow"]
    stage.bench.tick()
    assert stage.run(run).state is RunState.SUCCEEDED
    assert stage.ask("workflow list")["workflows"] == []
    with pytest.raises(NotFound):
        stage.ask("workflow run", workflow="flow")
    assert stage.put(note("a"))["version"] == 2


def test_what_belongs_to_another_namespace_is_not_found(stage: Stage) -> None:
    stage.put(note("a"))
    elsewhere = stage.elsewhere()
    with pytest.raises(NotFound):
        elsewhere.ask("workflow get", workflow="flow")
    assert elsewhere.ask("workflow put", name="flow", steps=[note("z")])["version"] == 1
    assert stage.ask("workflow get", workflow="flow")["workflow"]["steps"][0]["name"] == "a"


def test_workflows_are_listed_in_pages(stage: Stage) -> None:
    for name in ("c", "a", "b"):
        stage.put(note("x"), name=name)
    page = stage.ask("workflow list", limit=2)
    rest = stage.ask("workflow list", limit=2, cursor=page["cursor"])
    assert [row["workflow"] for row in (*page["workflows"], *rest["workflows"])] == ["a", "b", "c"]
    assert rest["cursor"] == ""
