"""Writing schedules: create, put, update, revisions and restore."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import NOON, OperationsHarness, instant
from timewright.core.facts import ScheduleChanged
from timewright.core.moments import parse_duration
from timewright.core.policies.policies import Floor
from timewright.errors import Conflict, InvalidInput, NotFound, TimewrightError, UnknownField
from timewright.operations import OperationContext
from timewright.operations.schedules.writes import CreateSchedule, create_schedule
from timewright.settings import Settings

REPORT: dict[str, Any] = {"name": "weekly", "cron": "0 8 * * 1", "note": "plan the week"}


@pytest.fixture
def empty() -> OperationsHarness:
    return OperationsHarness()


def test_a_new_schedule_shows_its_creator_and_its_next_five_occurrences(empty: OperationsHarness) -> None:
    made = empty.ask("schedule create", REPORT)
    assert made["schedule"]["created_by"] == "ada"
    assert made["schedule"]["revision"] == 1
    assert made["progress"]["next_at"] == "2026-03-16T08:00:00Z"
    assert [one["planned_at"][:10] for one in made["next"]] == [
        "2026-03-16", "2026-03-23", "2026-03-30", "2026-04-06", "2026-04-13",
    ]  # fmt: skip


def test_a_function_takes_a_typed_request_and_gives_a_typed_answer(empty: OperationsHarness) -> None:
    made = create_schedule(empty.context, CreateSchedule(draft=REPORT))
    assert made.schedule.name == "weekly"
    assert made.progress.next_at is not None


def test_facts_are_sent_after_the_commit(empty: OperationsHarness) -> None:
    empty.ask("schedule create", REPORT)
    (fact,) = empty.facts
    assert isinstance(fact, ScheduleChanged)
    assert (fact.change, fact.actor) == ("created", "ada")


def test_field_names_of_other_schedulers_are_accepted_and_normalised(
    empty: OperationsHarness,
) -> None:
    made = empty.ask(
        "schedule create",
        name="old words",
        baselineIntervalMs=90_000,
        url="https://example.com",
        concurrencyPolicy="FORBID",
        catchUpPolicy="fire_immediately",
        maxRetries=5,
        priority="HIGH",
    )["schedule"]
    assert made["trigger"]["interval"] == "1m30s"
    assert (made["overlap"], made["catch_up"], made["priority"]) == ("skip", "all", 50)
    assert made["retry"]["max_attempts"] == 5


def test_a_name_in_use_is_a_conflict(harness: OperationsHarness) -> None:
    with pytest.raises(Conflict) as error:
        harness.ask("schedule create", name="nightly-report", every="1h", note="x")
    assert error.value.field == "name"


def test_an_archived_schedule_releases_its_name(harness: OperationsHarness) -> None:
    old = harness.ask("schedule delete", schedule="nightly-report")["schedule"]["id"]
    new = harness.ask("schedule create", name="nightly-report", every="1h", note="x")["schedule"]["id"]
    assert new != old
    assert harness.ask("schedule get", schedule="nightly-report")["schedule"]["id"] == new
    kept = harness.ask("schedule get", schedule=old)
    assert kept["progress"]["state"] == "archived"
    assert old in kept["schedule"]["name"]
    assert len(harness.ask("run list", schedule=old)["runs"]) == 11


def test_a_deleted_schedule_that_is_put_again_is_a_new_one(harness: OperationsHarness) -> None:
    old = harness.ask("schedule delete", schedule="nightly-report")["schedule"]["id"]
    put = harness.ask("schedule put", name="nightly-report", every="1h", note="x")
    assert put["change"] == "created"
    assert put["detail"]["schedule"]["id"] != old


def test_a_request_writes_into_its_own_namespace_only(harness: OperationsHarness) -> None:
    for operation, fields in (
        ("schedule create", REPORT),
        ("schedule put", REPORT),
        ("schedule update", {"schedule": "nightly-report"}),
    ):
        with pytest.raises(InvalidInput) as error:
            harness.ask(operation, fields, namespace="other")
        assert error.value.field == "namespace"


def test_an_update_without_a_field_is_refused(harness: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("schedule update", schedule="nightly-report", reason="?")
    assert error.value.message == "no field of nightly-report is to be changed"
    assert error.value.fix == "schedule update nightly-report with every: 5m"


def test_a_name_is_free_in_every_namespace(harness: OperationsHarness) -> None:
    made = harness.in_namespace().ask("schedule create", name="nightly-report", every="1h", note="x")
    assert made["schedule"]["namespace"] == "other"
    assert harness.ask("schedule get", schedule="nightly-report")["schedule"]["trigger"]["kind"] == "cron"


@pytest.mark.parametrize("field", ["revision", "created_at", "created_by", "origin", "owner"])
def test_server_fields_cannot_be_set(empty: OperationsHarness, field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        empty.ask("schedule create", REPORT, **{field: "x"})
    assert error.value.field == field


def test_a_refused_draft_leaves_nothing_behind(empty: OperationsHarness) -> None:
    for bad in (
        {"cron": "61 * * * *"},
        {"zone": "Mars/Olympus"},
        {"every": "0s", "cron": None},
        {"grace": "1 fortnight"},
        {"start_at": "2026-03-10T25:00:00"},
        {"calendar": {"only": ["nobody-made-it"]}},
    ):
        with pytest.raises(TimewrightError) as error:
            empty.ask("schedule create", {**REPORT, **bad})
        assert error.value.field
        assert error.value.rule
        assert error.value.fix
    assert empty.ask("schedule list")["schedules"] == []
    assert empty.facts == []


def test_the_minimum_interval_of_the_settings_is_enforced(empty: OperationsHarness) -> None:
    empty.context = _with_floor(empty, "1m")
    with pytest.raises(InvalidInput) as error:
        empty.ask("schedule create", name="eager", every="5s", note="x")
    assert error.value.field == "trigger.every"
    empty.ask("schedule create", name="patient", every="1m", note="x")
    with pytest.raises(InvalidInput):
        empty.ask("schedule update", schedule="patient", every="5s")


def test_a_handoff_target_needs_a_queue(empty: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        empty.ask("schedule create", name="for others", every="1h", handoff=True)
    assert error.value.field == "queue"
    empty.ask("schedule create", name="for others", every="1h", handoff={"payload": 1}, queue="others")
    assert [one["queue"] for one in empty.ask("queue list")["queues"]] == ["others"]


def test_putting_the_same_definition_twice_changes_nothing(empty: OperationsHarness) -> None:
    words = {"name": "poll", "every": "10m", "call": "poll", "metadata": {"a": 1}}
    assert empty.ask("schedule put", words)["change"] == "created"
    empty.advance(hours=3)
    again = empty.ask("schedule put", words)
    assert again["change"] == "unchanged"
    assert again["detail"]["schedule"]["revision"] == 1
    assert again["detail"]["schedule"]["trigger"]["anchor"] == instant(NOON)


def test_a_put_replaces_everything_and_keeps_the_progress(harness: OperationsHarness) -> None:
    put = harness.ask("schedule put", name="nightly-report", cron="30 3 * * *", note="hello")
    assert put["change"] == "updated"
    assert put["detail"]["schedule"]["group"] is None
    assert put["detail"]["schedule"]["revision"] == 2
    assert put["detail"]["progress"]["runs"] == 10 + 1, "with the one by hand"


def test_a_put_does_not_clear_a_pause(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="nightly-report", reason="audit")
    put = harness.ask("schedule put", name="nightly-report", cron="30 3 * * *", note="hello")
    assert put["detail"]["progress"]["state"] == "paused"


def test_a_once_that_has_run_may_be_put_again_as_it_was(empty: OperationsHarness) -> None:
    words = {"name": "launch", "once": "2026-03-10T13:00:00Z", "call": "launch"}
    empty.ask("schedule put", words)
    empty.advance(hours=2)
    assert empty.ask("schedule put", words)["change"] == "unchanged"
    with pytest.raises(InvalidInput) as error:
        empty.ask("schedule put", {**words, "once": "2026-03-10T13:30:00Z"})
    assert error.value.field == "trigger.at"


def test_a_put_needs_a_name(empty: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        empty.ask("schedule put", every="1h", note="x")
    assert error.value.field == "name"


def test_an_edit_changes_only_the_given_fields(harness: OperationsHarness) -> None:
    before = harness.ask("schedule get", schedule="nightly-report")["schedule"]
    after = harness.ask("schedule update", schedule="nightly-report", overlap="queue")["schedule"]
    assert {name for name in after if after[name] != before[name]} == {"overlap", "revision"}


def test_a_zone_alone_keeps_the_expression(harness: OperationsHarness) -> None:
    after = harness.ask("schedule update", schedule="nightly-report", zone="Asia/Tokyo")
    assert after["schedule"]["trigger"]["expression"] == "0 3 * * *"
    assert after["progress"]["next_at"] == "2026-03-10T18:00:00Z"


def test_a_method_alone_keeps_the_address(harness: OperationsHarness) -> None:
    after = harness.ask("schedule update", schedule="nightly-report", method="PUT")["schedule"]
    assert after["target"]["method"] == "PUT"
    assert after["target"]["url"] == "https://example.com/report"


def test_an_edited_interval_keeps_its_anchor(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll")
    empty.advance(minutes=3)
    after = empty.ask("schedule update", schedule="poll", every="4m")
    assert after["schedule"]["trigger"]["anchor"] == instant(NOON)
    assert after["progress"]["next_at"] == "2026-03-10T12:04:00Z"


def test_an_edit_of_one_number_of_the_retry_keeps_the_others(empty: OperationsHarness) -> None:
    empty.ask("schedule create", REPORT, retry={"max_attempts": 7, "backoff": ["1m", "5m"]})
    after = empty.ask("schedule update", schedule="weekly", max_attempts=2)["schedule"]["retry"]
    assert after["max_attempts"] == 2
    assert after["backoff"]["steps"] == ["1m", "5m"]


def test_an_edit_that_names_an_old_revision_is_a_conflict(harness: OperationsHarness) -> None:
    harness.ask("schedule update", schedule="nightly-report", grace="5m", revision=1)
    for operation, fields in (
        ("schedule update", {"schedule": "nightly-report", "grace": "9m"}),
        ("schedule put", {"name": "nightly-report", "every": "1h", "note": "x"}),
    ):
        with pytest.raises(Conflict) as error:
            harness.ask(operation, fields, revision=1)
        assert error.value.field == "revision"
        assert "revision 2" in (error.value.fix or "")
    assert harness.ask("schedule get", schedule="nightly-report")["schedule"]["grace"] == "5m"


def test_a_put_of_a_new_schedule_cannot_name_a_revision(empty: OperationsHarness) -> None:
    with pytest.raises(Conflict):
        empty.ask("schedule put", REPORT, revision=3)


def test_an_edit_may_give_a_new_name_unless_it_is_taken(harness: OperationsHarness) -> None:
    harness.ask("schedule update", schedule="nightly-report", name="nightly")
    assert harness.ask("schedule get", schedule="nightly")["schedule"]["revision"] == 2
    with pytest.raises(NotFound):
        harness.ask("schedule get", schedule="nightly-report")
    with pytest.raises(Conflict):
        harness.ask("schedule update", schedule="nightly", name="orders-poll")


def test_a_misspelt_field_of_an_edit_is_rejected_with_a_suggestion(harness: OperationsHarness) -> None:
    with pytest.raises(UnknownField) as error:
        harness.ask("schedule update", schedule="nightly-report", overlapp="queue")
    assert error.value.fix == "did you mean overlap?"


def test_revisions_show_who_changed_what_and_why_newest_first(harness: OperationsHarness) -> None:
    harness.ask("schedule update", schedule="nightly-report", grace="5m", reason="the server is slow")
    harness.ask("schedule update", schedule="nightly-report", zone="Asia/Tokyo", overlap="queue")
    rows = harness.ask("schedule revisions", schedule="nightly-report")["revisions"]
    assert [row["revision"] for row in rows] == [3, 2, 1]
    assert [row["changed"] for row in rows] == [["trigger", "overlap"], ["grace"], []]
    assert (rows[1]["reason"], rows[1]["actor"]) == ("the server is slow", "ada")


def test_an_earlier_revision_is_restored_as_a_new_one(harness: OperationsHarness) -> None:
    harness.ask("schedule update", schedule="nightly-report", cron="0 5 * * *")
    back = harness.ask("schedule restore", schedule="nightly-report", to=1)
    assert back["schedule"]["revision"] == 3
    assert back["schedule"]["trigger"]["expression"] == "0 3 * * *"
    with pytest.raises(NotFound) as error:
        harness.ask("schedule restore", schedule="nightly-report", to=9)
    assert error.value.field == "revision"


def _with_floor(harness: OperationsHarness, interval: str) -> OperationContext:
    settings = Settings(interval_floor=Floor(interval=parse_duration(interval)))
    return replace(harness.context, settings=settings)


@pytest.mark.parametrize(
    ("at", "fix"),
    [("2026-03-10T09:00Z", "a later instant, or catch_up: last"), ("2026-03-08T09:00Z", "a later instant")],
)
def test_catch_up_is_proposed_only_for_an_instant_that_it_would_run(at: str, fix: str) -> None:
    with pytest.raises(InvalidInput) as error:
        OperationsHarness().ask("schedule create", name="late", at=at, note="x")
    assert error.value.fix == fix
