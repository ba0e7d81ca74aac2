"""Writing schedules: created once, put as often as one likes, changed in part, and brought back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.house import NOON, House, instant
from timewright.core.facts import ScheduleChanged
from timewright.core.moments import parse_duration
from timewright.core.policies import Floor
from timewright.errors import Conflict, InvalidInput, NotFound, TimewrightError, UnknownField
from timewright.operations import Context
from timewright.operations.drafts import Create, create_schedule
from timewright.settings import Settings

REPORT: dict[str, Any] = {"name": "weekly", "cron": "0 8 * * 1", "note": "plan the week"}


@pytest.fixture
def empty() -> House:
    return House()


def test_a_schedule_is_made_with_who_made_it_and_its_next_five_times(empty: House) -> None:
    made = empty.ask("schedule create", REPORT)
    assert made["schedule"]["created_by"] == "ada"
    assert made["schedule"]["revision"] == 1
    assert made["standing"]["next_at"] == "2026-03-16T08:00:00Z"
    assert [one["planned_at"][:10] for one in made["next"]] == [
        "2026-03-16", "2026-03-23", "2026-03-30", "2026-04-06", "2026-04-13",
    ]  # fmt: skip


def test_a_function_takes_a_typed_request_and_gives_a_typed_answer(empty: House) -> None:
    made = create_schedule(empty.context, Create(draft=REPORT))
    assert made.schedule.name == "weekly"
    assert made.standing.next_at is not None


def test_what_happened_is_told_once_it_is_true(empty: House) -> None:
    empty.ask("schedule create", REPORT)
    (fact,) = empty.told
    assert isinstance(fact, ScheduleChanged)
    assert (fact.change, fact.actor) == ("created", "ada")


def test_words_of_other_schedulers_are_understood_and_one_spelling_is_emitted(empty: House) -> None:
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


def test_a_name_that_is_taken_is_refused(house: House) -> None:
    with pytest.raises(Conflict) as refusal:
        house.ask("schedule create", name="nightly-report", every="1h", note="x")
    assert refusal.value.field == "name"


def test_a_name_belongs_to_the_living(house: House) -> None:
    old = house.ask("schedule delete", schedule="nightly-report")["schedule"]["id"]
    new = house.ask("schedule create", name="nightly-report", every="1h", note="x")["schedule"]["id"]
    assert new != old
    assert house.ask("schedule get", schedule="nightly-report")["schedule"]["id"] == new
    kept = house.ask("schedule get", schedule=old)
    assert kept["standing"]["state"] == "archived"
    assert old in kept["schedule"]["name"]
    assert len(house.ask("run list", schedule=old)["runs"]) == 11


def test_a_deleted_schedule_that_is_put_again_is_a_new_one(house: House) -> None:
    old = house.ask("schedule delete", schedule="nightly-report")["schedule"]["id"]
    put = house.ask("schedule put", name="nightly-report", every="1h", note="x")
    assert put["change"] == "created"
    assert put["kept"]["schedule"]["id"] != old


def test_a_request_writes_into_its_own_namespace_only(house: House) -> None:
    for operation, fields in (
        ("schedule create", REPORT),
        ("schedule put", REPORT),
        ("schedule update", {"schedule": "nightly-report"}),
    ):
        with pytest.raises(InvalidInput) as refusal:
            house.ask(operation, fields, namespace="other")
        assert refusal.value.field == "namespace"


def test_a_name_is_free_in_every_namespace(house: House) -> None:
    made = house.elsewhere().ask("schedule create", name="nightly-report", every="1h", note="x")
    assert made["schedule"]["namespace"] == "other"
    assert house.ask("schedule get", schedule="nightly-report")["schedule"]["trigger"]["kind"] == "cron"


@pytest.mark.parametrize("field", ["revision", "created_at", "created_by", "origin"])
def test_what_timewright_writes_is_not_set_by_hand(empty: House, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        empty.ask("schedule create", REPORT, **{field: "x"})
    assert refusal.value.field == field


def test_a_refused_draft_leaves_nothing_behind(empty: House) -> None:
    for bad in (
        {"cron": "61 * * * *"},
        {"zone": "Mars/Olympus"},
        {"every": "0s", "cron": None},
        {"grace": "1 fortnight"},
        {"start_at": "2026-03-10T12:00:00"},
        {"calendar": {"only": ["nobody-made-it"]}},
    ):
        with pytest.raises(TimewrightError) as refusal:
            empty.ask("schedule create", {**REPORT, **bad})
        assert refusal.value.field
        assert refusal.value.rule
        assert refusal.value.fix
    assert empty.ask("schedule list")["schedules"] == []
    assert empty.told == []


def test_the_floor_of_the_house_holds(empty: House) -> None:
    empty.context = _with_floor(empty, "1m")
    with pytest.raises(InvalidInput) as refusal:
        empty.ask("schedule create", name="eager", every="5s", note="x")
    assert refusal.value.field == "trigger.every"
    empty.ask("schedule create", name="patient", every="1m", note="x")
    with pytest.raises(InvalidInput):
        empty.ask("schedule update", schedule="patient", every="5s")


def test_a_handoff_waits_in_a_queue_or_is_refused(empty: House) -> None:
    with pytest.raises(InvalidInput) as refusal:
        empty.ask("schedule create", name="for others", every="1h", handoff=True)
    assert refusal.value.field == "queue"
    empty.ask("schedule create", name="for others", every="1h", handoff={"payload": 1}, queue="others")
    assert [one["queue"] for one in empty.ask("queue list")["queues"]] == ["others"]


def test_the_same_words_put_twice_change_nothing(empty: House) -> None:
    words = {"name": "poll", "every": "10m", "call": "poll", "metadata": {"a": 1}}
    assert empty.ask("schedule put", words)["change"] == "created"
    empty.advance(hours=3)
    again = empty.ask("schedule put", words)
    assert again["change"] == "unchanged"
    assert again["kept"]["schedule"]["revision"] == 1
    assert again["kept"]["schedule"]["trigger"]["anchor"] == instant(NOON)


def test_a_put_replaces_all_and_keeps_where_the_schedule_stands(house: House) -> None:
    put = house.ask("schedule put", name="nightly-report", cron="30 3 * * *", note="hello")
    assert put["change"] == "updated"
    assert put["kept"]["schedule"]["group"] is None
    assert put["kept"]["schedule"]["revision"] == 2
    assert put["kept"]["standing"]["runs"] == 10


def test_a_put_does_not_clear_a_pause(house: House) -> None:
    house.ask("schedule pause", schedule="nightly-report", reason="audit")
    put = house.ask("schedule put", name="nightly-report", cron="30 3 * * *", note="hello")
    assert put["kept"]["standing"]["state"] == "paused"


def test_a_once_that_has_run_may_be_put_again_as_it_was(empty: House) -> None:
    words = {"name": "launch", "once": "2026-03-10T13:00:00Z", "call": "launch"}
    empty.ask("schedule put", words)
    empty.advance(hours=2)
    assert empty.ask("schedule put", words)["change"] == "unchanged"
    with pytest.raises(InvalidInput) as refusal:
        empty.ask("schedule put", {**words, "once": "2026-03-10T13:30:00Z"})
    assert refusal.value.field == "trigger.at"


def test_a_put_needs_a_name(empty: House) -> None:
    with pytest.raises(InvalidInput) as refusal:
        empty.ask("schedule put", every="1h", note="x")
    assert refusal.value.field == "name"


def test_an_edit_changes_what_it_says_and_nothing_else(house: House) -> None:
    before = house.ask("schedule get", schedule="nightly-report")["schedule"]
    after = house.ask("schedule update", schedule="nightly-report", overlap="queue")["schedule"]
    assert {name for name in after if after[name] != before[name]} == {"overlap", "revision"}


def test_a_zone_alone_keeps_the_expression(house: House) -> None:
    after = house.ask("schedule update", schedule="nightly-report", zone="Asia/Tokyo")
    assert after["schedule"]["trigger"]["expression"] == "0 3 * * *"
    assert after["standing"]["next_at"] == "2026-03-10T18:00:00Z"


def test_a_method_alone_keeps_the_address(house: House) -> None:
    after = house.ask("schedule update", schedule="nightly-report", method="PUT")["schedule"]
    assert after["target"]["method"] == "PUT"
    assert after["target"]["url"] == "https://example.com/report"


def test_an_edited_interval_keeps_its_anchor(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll")
    empty.advance(minutes=3)
    after = empty.ask("schedule update", schedule="poll", every="4m")
    assert after["schedule"]["trigger"]["anchor"] == instant(NOON)
    assert after["standing"]["next_at"] == "2026-03-10T12:04:00Z"


def test_an_edit_of_one_number_of_the_retry_keeps_the_others(empty: House) -> None:
    empty.ask("schedule create", REPORT, retry={"max_attempts": 7, "backoff": ["1m", "5m"]})
    after = empty.ask("schedule update", schedule="weekly", max_attempts=2)["schedule"]["retry"]
    assert after["max_attempts"] == 2
    assert after["backoff"]["steps"] == ["1m", "5m"]


def test_an_edit_that_names_an_old_revision_is_a_conflict(house: House) -> None:
    house.ask("schedule update", schedule="nightly-report", grace="5m", revision=1)
    for operation, fields in (
        ("schedule update", {"schedule": "nightly-report", "grace": "9m"}),
        ("schedule put", {"name": "nightly-report", "every": "1h", "note": "x"}),
    ):
        with pytest.raises(Conflict) as refusal:
            house.ask(operation, fields, revision=1)
        assert refusal.value.field == "revision"
        assert "revision 2" in (refusal.value.fix or "")
    assert house.ask("schedule get", schedule="nightly-report")["schedule"]["grace"] == "5m"


def test_a_put_of_what_is_not_there_cannot_name_a_revision(empty: House) -> None:
    with pytest.raises(Conflict):
        empty.ask("schedule put", REPORT, revision=3)


def test_an_edit_may_give_a_new_name_unless_it_is_taken(house: House) -> None:
    house.ask("schedule update", schedule="nightly-report", name="nightly")
    assert house.ask("schedule get", schedule="nightly")["schedule"]["revision"] == 2
    with pytest.raises(NotFound):
        house.ask("schedule get", schedule="nightly-report")
    with pytest.raises(Conflict):
        house.ask("schedule update", schedule="nightly", name="orders-poll")


def test_a_misspelt_field_of_an_edit_is_refused_with_the_nearest(house: House) -> None:
    with pytest.raises(UnknownField) as refusal:
        house.ask("schedule update", schedule="nightly-report", overlapp="queue")
    assert refusal.value.fix == "did you mean overlap?"


def test_revisions_say_who_changed_what_and_why_newest_first(house: House) -> None:
    house.ask("schedule update", schedule="nightly-report", grace="5m", reason="the server is slow")
    house.ask("schedule update", schedule="nightly-report", zone="Asia/Tokyo", overlap="queue")
    rows = house.ask("schedule revisions", schedule="nightly-report")["revisions"]
    assert [row["revision"] for row in rows] == [3, 2, 1]
    assert [row["changed"] for row in rows] == [["trigger", "overlap"], ["grace"], []]
    assert (rows[1]["reason"], rows[1]["actor"]) == ("the server is slow", "ada")


def test_an_earlier_revision_comes_back_as_a_new_one(house: House) -> None:
    house.ask("schedule update", schedule="nightly-report", cron="0 5 * * *")
    back = house.ask("schedule restore", schedule="nightly-report", to=1)
    assert back["schedule"]["revision"] == 3
    assert back["schedule"]["trigger"]["expression"] == "0 3 * * *"
    with pytest.raises(NotFound) as refusal:
        house.ask("schedule restore", schedule="nightly-report", to=9)
    assert refusal.value.field == "revision"


def _with_floor(house: House, interval: str) -> Context:
    settings = Settings(interval_floor=Floor(interval=parse_duration(interval)))
    return replace(house.context, settings=settings)
