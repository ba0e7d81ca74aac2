"""Reminders: set, listed, told once or again and again, cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.house import NOON, House
from timewright.core.moments import spell_instant
from timewright.errors import InvalidInput, NotFound


@pytest.fixture
def place() -> House:
    return House()


def test_a_reminder_comes_at_its_time_and_its_text_is_the_result(place: House) -> None:
    made = place.ask("reminder set", text="call the bank", after="20m", name="bank")
    assert made["next_at"] == spell_instant(NOON + timedelta(minutes=20))
    place.bench.advance(minutes=21)
    (run,) = place.ask("run list", schedule="bank")["runs"]
    assert run["state"] == "succeeded"
    assert place.ask("reminder list")["reminders"] == []
    assert [one["name"] for one in place.ask("reminder list", over=True)["reminders"]] == ["bank"]


def test_a_reminder_without_a_name_is_given_one_and_is_found_by_it(place: House) -> None:
    made = place.ask("reminder set", text="stretch", every="2h")
    (found,) = place.ask("reminder list")["reminders"]
    assert found == made
    assert found["when"] == "every 2h"
    assert found["name"] == "stretch"
    assert place.ask("reminder set", text="Stretch!", every="3h")["name"] == "stretch-2"
    assert place.ask("reminder set", text="日本", every="3h")["name"] == "reminder"


def test_a_cancelled_reminder_does_not_come(place: House) -> None:
    place.ask("reminder set", text="tea", at=spell_instant(NOON + timedelta(hours=1)), name="tea")
    place.ask("reminder cancel", reminder="tea", reason="coffee")
    place.bench.advance(hours=2)
    assert place.ask("run list")["runs"] == []
    assert place.ask("reminder list")["reminders"] == []


@pytest.mark.parametrize("before", [False, True])
def test_a_snoozed_reminder_comes_once_more_also_when_it_is_over(place: House, before: bool) -> None:
    place.ask("reminder set", text="tea", after="30m", name="tea")
    place.bench.advance(minutes=10 if before else 31)
    snoozed = place.ask("reminder snooze", reminder="tea", after="1h")
    assert snoozed["at"] == spell_instant(NOON + timedelta(minutes=70 if before else 91))
    place.bench.advance(hours=2)
    runs = place.ask("run list", schedule="tea")["runs"]
    assert [run["state"] for run in runs] == ["succeeded", "succeeded"]
    assert snoozed["run"] in [run["id"] for run in runs]


def test_a_schedule_that_is_no_reminder_is_not_cancelled_as_one(place: House) -> None:
    place.ask("schedule create", name="report", every="1h", note="not a reminder")
    for verb in ("cancel", "snooze"):
        with pytest.raises(NotFound):
            place.ask(f"reminder {verb}", reminder="report")
    assert place.ask("reminder list")["reminders"] == []


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"at": "2026-03-10T13:00:00Z", "every": "1h"},
        {"every": "1h", "zone": "Europe/Berlin"},
        {"zone": "UTC"},
    ],
)
def test_exactly_one_time_is_asked_for(place: House, when: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="when shall it come"):
        place.ask("reminder set", text="x", **when)


def test_a_reminder_in_a_zone_follows_its_clocks(place: House) -> None:
    made = place.ask("reminder set", text="plants", cron="0 17 * * fri", zone="Europe/Berlin")
    assert made["next_at"] == "2026-03-13T16:00:00Z"
