"""Calendars, limits, the audit log and system health."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.errors import InvalidInput, NotAllowed, NotFound, TimewrightError


def test_a_calendar_is_replaced_completely_and_counts_revisions(harness: OperationsHarness) -> None:
    first = harness.ask("calendar get", calendar="holidays")["calendar"]
    assert (first["revision"], first["yearly"]) == (1, ["12-25"])
    second = harness.ask("calendar put", name="holidays", dates=["2026-04-03"])["calendar"]
    assert (second["revision"], second["yearly"], second["dates"]) == (2, [], ["2026-04-03"])
    assert harness.ask("calendar get", calendar="holidays")["calendar"] == second


def test_a_calendar_in_use_cannot_be_deleted(harness: OperationsHarness) -> None:
    harness.ask("schedule update", schedule="nightly-report", calendar={"except": ["holidays"]})
    assert harness.ask("calendar get", calendar="holidays")["used_by"] == ["nightly-report"]
    with pytest.raises(NotAllowed) as error:
        harness.ask("calendar delete", calendar="holidays")
    assert "nightly-report" in error.value.message
    harness.ask("schedule archive", schedule="nightly-report")
    harness.ask("calendar delete", calendar="holidays", reason="moved")
    with pytest.raises(NotFound):
        harness.ask("calendar get", calendar="holidays")


def test_a_misspelt_calendar_is_rejected_with_a_suggestion(harness: OperationsHarness) -> None:
    with pytest.raises(NotFound) as error:
        harness.ask("calendar get", calendar="holiday")
    assert error.value.fix == "did you mean holidays?"


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
def test_an_invalid_calendar_is_rejected(harness: OperationsHarness, fields: dict[str, Any]) -> None:
    with pytest.raises(TimewrightError) as error:
        harness.ask("calendar put", fields)
    assert error.value.field
    assert error.value.rule
    kept = [one["name"] for one in harness.ask("calendar list")["calendars"]]
    assert kept == ["germany", "holidays", "old-office"]


def test_calendars_belong_to_one_namespace(harness: OperationsHarness) -> None:
    neighbour = harness.in_namespace()
    neighbour.ask("calendar put", name="holidays", yearly=["01-01"])
    assert harness.ask("calendar get", calendar="holidays")["calendar"]["yearly"] == ["12-25"]
    neighbour.ask("calendar delete", calendar="holidays")
    assert harness.ask("calendar get", calendar="holidays")["calendar"]["yearly"] == ["12-25"]


def test_a_limit_holds_across_schedules_and_shows_its_use(harness: OperationsHarness) -> None:
    assert harness.ask("limit set", limit="crm-api", max_running=1)["revision"] == 2
    for name in ("crm one", "crm two"):
        harness.ask("schedule create", name=name, every="10m", handoff=True, queue=name, limits=["crm-api"])
        harness.ask("schedule run", schedule=name)
    assert len(harness.ask("queue lease", queue="crm one")["leases"]) == 1
    assert harness.ask("queue lease", queue="crm two")["leases"] == []
    (waiting,) = harness.ask("queue plan", queue="crm two")["waiting"]
    assert (waiting["reason"], waiting["blocked_by"]) == ("limit", "limit:default/crm-api")
    (limit,) = harness.ask("limit list")["limits"]
    assert (limit["max_running"], limit["in_flight"], limit["available"]) == (1, 1, 0)


@pytest.mark.parametrize("most", [0, -1, 100_001, "5", 1.5, None, True])
def test_a_limit_is_a_whole_number_from_one_up(harness: OperationsHarness, most: object) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("limit set", limit="crm-api", max_running=most)
    assert error.value.field == ("limit" if most is None else "max_running")


def test_the_audit_log_shows_who_did_what_and_why(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="nightly-report", reason="audit")
    line = harness.ask("audit list", limit=1)["entries"][0]
    assert (line["actor"], line["action"], line["reason"]) == ("ada", "schedule.pause", "audit")
    assert (line["before"], line["after"]) == ("active", "paused")


def test_the_audit_log_is_filtered_and_paged(harness: OperationsHarness) -> None:
    for number in range(7):
        harness.ask("schedule update", schedule="orders-poll", grace=f"{number + 1}m")
    found: list[str] = []
    cursor = ""
    while True:
        page = harness.ask("audit list", schedule="orders-poll", action="schedule.", limit=3, cursor=cursor)
        found += [line["action"] for line in page["entries"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == ["schedule.update"] * 7 + ["schedule.create"]
    assert harness.ask("audit list", actor="bob")["entries"] == []
    assert harness.in_namespace().ask("audit list")["entries"] == []


def test_health_shows_the_delay_and_what_is_parked(
    harness: OperationsHarness,
) -> None:
    fine = harness.ask("health")
    assert (fine["instances"], fine["late_by"], fine["next_wake"]) == (0, "0s", "2026-03-10T12:03:00Z")
    # Two leases of workers, and the step that waits for an answer.
    assert (fine["parked_runs"], fine["leased_runs"], fine["ready_runs"]) == (1, 3, 2)
    harness.sleep(minutes=10)
    assert harness.ask("health")["late_by"] == "7m"
    assert harness.in_namespace().ask("health")["parked_runs"] == 0
