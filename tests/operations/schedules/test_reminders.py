"""Reminders: set, list, snooze and cancel."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.harness import NOON, OperationsHarness
from timewright.core.moments import format_instant
from timewright.errors import InvalidInput, NotFound


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def test_a_reminder_runs_at_its_time_with_its_text_as_result(harness: OperationsHarness) -> None:
    made = harness.ask("reminder set", text="call the bank", after="20m", name="bank")
    assert made["next_at"] == format_instant(NOON + timedelta(minutes=20))
    harness.bench.advance(minutes=21)
    (run,) = harness.ask("run list", schedule="bank")["runs"]
    assert run["state"] == "succeeded"
    assert harness.ask("reminder list")["reminders"] == []
    assert [one["name"] for one in harness.ask("reminder list", finished=True)["reminders"]] == ["bank"]


def test_a_reminder_without_a_name_is_given_one_and_is_found_by_it(harness: OperationsHarness) -> None:
    made = harness.ask("reminder set", text="stretch", every="2h")
    (found,) = harness.ask("reminder list")["reminders"]
    assert found == made
    assert found["when"] == "every 2h"
    assert found["name"] == "stretch"
    assert harness.ask("reminder set", text="Stretch!", every="3h")["name"] == "stretch-2"
    assert harness.ask("reminder set", text="日本", every="3h")["name"] == "reminder"


def test_a_cancelled_reminder_does_not_run(harness: OperationsHarness) -> None:
    harness.ask("reminder set", text="tea", at=format_instant(NOON + timedelta(hours=1)), name="tea")
    harness.ask("reminder cancel", reminder="tea", reason="coffee")
    harness.bench.advance(hours=2)
    assert harness.ask("run list")["runs"] == []
    assert harness.ask("reminder list")["reminders"] == []


def test_a_snoozed_reminder_that_has_not_come_yet_comes_once_at_the_new_time(
    harness: OperationsHarness,
) -> None:
    harness.ask("reminder set", text="tea", after="30m", name="tea")
    harness.bench.advance(minutes=10)
    harness.ask("reminder snooze", reminder="tea", after="2h")
    snoozed = harness.ask("reminder snooze", reminder="tea", after="1h")
    assert (snoozed["at"], snoozed["run"]) == (format_instant(NOON + timedelta(minutes=70)), "")
    assert snoozed["reminder"]["next_at"] == snoozed["at"]
    assert harness.ask("reminder list")["reminders"] == [snoozed["reminder"]]
    harness.bench.advance(hours=3)
    (run,) = harness.ask("run list", schedule="tea")["runs"]
    assert (run["state"], run["planned_at"]) == ("succeeded", snoozed["at"])
    assert harness.ask("verify")["holds"]


def test_a_snoozed_repeated_reminder_comes_once_more_and_keeps_its_times(harness: OperationsHarness) -> None:
    harness.ask("reminder set", text="tea", every="1h", name="tea")
    harness.ask("reminder snooze", reminder="tea", after="10m")
    harness.bench.advance(minutes=61)
    assert len(harness.ask("run list", schedule="tea")["runs"]) == 2


def test_a_snoozed_reminder_runs_once_more_even_if_finished(harness: OperationsHarness) -> None:
    harness.ask("reminder set", text="tea", after="30m", name="tea")
    harness.bench.advance(minutes=31)
    snoozed = harness.ask("reminder snooze", reminder="tea", after="1h")
    assert snoozed["at"] == format_instant(NOON + timedelta(minutes=91))
    harness.bench.advance(hours=2)
    runs = harness.ask("run list", schedule="tea")["runs"]
    assert [run["state"] for run in runs] == ["succeeded", "succeeded"]
    assert snoozed["run"] in [run["id"] for run in runs]


def test_a_schedule_that_is_no_reminder_is_not_cancelled_as_one(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="report", every="1h", note="not a reminder")
    for verb in ("cancel", "snooze"):
        with pytest.raises(NotFound):
            harness.ask(f"reminder {verb}", reminder="report")
    assert harness.ask("reminder list")["reminders"] == []


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"at": "2026-03-10T13:00:00Z", "every": "1h"},
        {"zone": "UTC"},
    ],
)
def test_a_reminder_needs_exactly_one_time(harness: OperationsHarness, when: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="exactly one time"):
        harness.ask("reminder set", text="x", **when)


def test_a_reminder_comes_as_often_and_as_long_as_it_is_told(harness: OperationsHarness) -> None:
    harness.ask("reminder set", text="x", name="three", every="1h", max_runs=3)
    harness.ask("reminder set", text="x", name="until", every="1h", end_at="2026-03-10T14:00Z")
    harness.ask("reminder set", text="x", name="rule", rrule="FREQ=DAILY;COUNT=2", zone="Europe/Berlin")
    harness.bench.advance(days=5)
    for name, count in (("three", 3), ("until", 2), ("rule", 2)):
        assert len(harness.ask("run list", schedule=name)["runs"]) == count
    assert harness.ask("reminder list")["reminders"] == []


def test_a_zone_beside_an_interval_is_refused_and_beside_a_phrase_is_used(harness: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("reminder set", text="x", every="1h", zone="Europe/Berlin")
    assert error.value.field == "trigger.zone"
    made = harness.ask("reminder set", text="x", every="weekday at 9", zone="Europe/Berlin")
    assert made["when"] == "at 09:00 on Monday through Friday, Europe/Berlin time"


def test_a_reminder_in_a_zone_follows_its_clocks(harness: OperationsHarness) -> None:
    made = harness.ask("reminder set", text="plants", cron="0 17 * * fri", zone="Europe/Berlin")
    assert made["next_at"] == "2026-03-13T16:00:00Z"


def test_an_instant_without_an_offset_is_read_in_the_zone_beside_it(harness: OperationsHarness) -> None:
    made = harness.ask("reminder set", text="rent", at="2026-12-01T18:00", zone="America/New_York")
    assert made["next_at"] == "2026-12-01T23:00:00Z"
    with pytest.raises(InvalidInput, match="exactly one time"):
        harness.ask("reminder set", text="rent", after="1h", zone="America/New_York")
