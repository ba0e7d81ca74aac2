"""Calendars, limits, the audit log and the health of the house."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.house import House
from timewright.errors import InvalidInput, NotAllowed, NotFound, TimewrightError


def test_a_calendar_is_put_whole_and_counts_its_revisions(house: House) -> None:
    first = house.ask("calendar get", calendar="holidays")["calendar"]
    assert (first["revision"], first["yearly"]) == (1, ["12-25"])
    second = house.ask("calendar put", name="holidays", dates=["2026-04-03"])["calendar"]
    assert (second["revision"], second["yearly"], second["dates"]) == (2, [], ["2026-04-03"])
    assert house.ask("calendar get", calendar="holidays")["calendar"] == second


def test_a_calendar_that_a_schedule_names_stays(house: House) -> None:
    house.ask("schedule update", schedule="nightly-report", calendar={"except": ["holidays"]})
    assert house.ask("calendar get", calendar="holidays")["used_by"] == ["nightly-report"]
    with pytest.raises(NotAllowed) as refusal:
        house.ask("calendar delete", calendar="holidays")
    assert "nightly-report" in refusal.value.message
    house.ask("schedule archive", schedule="nightly-report")
    house.ask("calendar delete", calendar="holidays", reason="moved")
    with pytest.raises(NotFound):
        house.ask("calendar get", calendar="holidays")


def test_a_misspelt_calendar_is_refused_with_the_nearest(house: House) -> None:
    with pytest.raises(NotFound) as refusal:
        house.ask("calendar get", calendar="holiday")
    assert refusal.value.fix == "did you mean holidays?"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "x", "namespace": "other"},
        {"name": "x", "revision": 7},
        {"name": "x", "dates": ["2026-02-30"]},
        {"name": "x", "zone": "Mars/Olympus"},
        {"name": "x", "weekly": [{"days": [7]}]},
        {"name": "\u202ex"},
        {"dates": ["2026-04-03"]},
    ],
)
def test_a_calendar_that_means_nothing_is_refused(house: House, fields: dict[str, Any]) -> None:
    with pytest.raises(TimewrightError) as refusal:
        house.ask("calendar put", fields)
    assert refusal.value.field
    assert refusal.value.rule
    kept = [one["name"] for one in house.ask("calendar list")["calendars"]]
    assert kept == ["germany", "holidays", "old-office"]


def test_calendars_of_two_namespaces_do_not_meet(house: House) -> None:
    neighbour = house.elsewhere()
    neighbour.ask("calendar put", name="holidays", yearly=["01-01"])
    assert house.ask("calendar get", calendar="holidays")["calendar"]["yearly"] == ["12-25"]
    neighbour.ask("calendar delete", calendar="holidays")
    assert house.ask("calendar get", calendar="holidays")["calendar"]["yearly"] == ["12-25"]


def test_a_limit_holds_across_schedules_and_shows_how_full_it_is(house: House) -> None:
    assert house.ask("limit set", limit="crm-api", most=1)["revision"] == 2
    for name in ("crm one", "crm two"):
        house.ask("schedule create", name=name, every="10m", handoff=True, queue=name, limits=["crm-api"])
        house.ask("schedule run", schedule=name)
    assert len(house.ask("queue lease", queue="crm one")["leases"]) == 1
    assert house.ask("queue lease", queue="crm two")["leases"] == []
    (waiting,) = house.ask("queue plan", queue="crm two")["waiting"]
    assert (waiting["reason"], waiting["gate"]) == ("ceiling", "limit:default/crm-api")
    (limit,) = house.ask("limit list")["limits"]
    assert (limit["most"], limit["in_flight"], limit["available"]) == (1, 1, 0)


@pytest.mark.parametrize("most", [0, -1, 100_001, "5", 1.5, None, True])
def test_a_limit_is_a_whole_number_from_one_up(house: House, most: object) -> None:
    with pytest.raises(InvalidInput) as refusal:
        house.ask("limit set", limit="crm-api", most=most)
    assert refusal.value.field == "most"


def test_the_audit_log_says_who_did_what_and_why(house: House) -> None:
    house.ask("schedule pause", schedule="nightly-report", reason="audit")
    line = house.ask("audit list", limit=1)["entries"][0]
    assert (line["actor"], line["action"], line["reason"]) == ("ada", "schedule.pause", "audit")
    assert (line["before"], line["after"]) == ("active", "paused")


def test_the_audit_log_is_sifted_and_walked_in_pages(house: House) -> None:
    for number in range(7):
        house.ask("schedule update", schedule="orders-poll", grace=f"{number + 1}m")
    found: list[str] = []
    cursor = ""
    while True:
        page = house.ask("audit list", schedule="orders-poll", action="schedule.", limit=3, cursor=cursor)
        found += [line["action"] for line in page["entries"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == ["schedule.update"] * 7 + ["schedule.create"]
    assert house.ask("audit list", actor="bob")["entries"] == []
    assert house.elsewhere().ask("audit list")["entries"] == []


def test_the_health_of_the_house_says_how_late_it_is_and_what_waits_for_a_person(house: House) -> None:
    fine = house.ask("health")
    assert (fine["alive"], fine["late_by"], fine["next_wake"]) == (True, "0s", "2026-03-10T12:03:00Z")
    assert (fine["parked_runs"], fine["leased_runs"], fine["ready_runs"]) == (1, 2, 2)
    house.sleep(minutes=10)
    assert house.ask("health")["late_by"] == "7m"
    assert house.elsewhere().ask("health")["parked_runs"] == 0
