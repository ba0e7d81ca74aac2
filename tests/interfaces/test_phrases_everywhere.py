"""Times as people write them mean the same at every interface, and the answer repeats how they were read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.all_interfaces import Interfaces, Refusal
from tests.interfaces.http.http_client import client_for
from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness, sample_harness
from timewright import Scheduler
from timewright.operations import operations

CREATE = operations["schedule create"]


@pytest.fixture(scope="module")
def interfaces() -> Iterator[Interfaces]:
    harness = sample_harness()
    with client_for(harness) as client:
        yield Interfaces(harness, client)


def ways(interfaces: Interfaces) -> list[Callable[..., Any]]:
    return [interfaces.python, interfaces.http, interfaces.agents, interfaces.terminal]


@pytest.mark.parametrize(
    ("fields", "trigger", "read_as"),
    [
        (
            {"every": "weekday at 9am", "zone": "Europe/Berlin"},
            "at 09:00 on Monday through Friday, Europe/Berlin time",
            "every weekday at 09:00, Europe/Berlin",
        ),
        ({"every": "daily at 9am"}, "at 09:00 every day, UTC", "every day at 09:00, UTC"),
        (
            {"cron": "first monday of the month at 9am"},
            None,
            "on the first Monday of every month at 09:00, UTC",
        ),
        (
            {"every": "day at 9:15am and 5:30pm"},
            "at 09:15 and 17:30 every day, UTC",
            "every day at 09:15 and 17:30, UTC",
        ),
        ({"every": "five minutes"}, "every 5m", "every 5 minutes"),
        ({"cron": "cron(0 9 ? * MON-FRI *)"}, "at 09:00 on Monday through Friday, UTC", None),
        (
            {"every": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0"},
            "every week on Monday at 09:00, UTC",
            None,
        ),
    ],
)
def test_a_recurrence_is_read_the_same_everywhere(
    interfaces: Interfaces, fields: dict[str, Any], trigger: str | None, read_as: str | None
) -> None:
    for ask in ways(interfaces):
        answer = ask(CREATE, {"name": "phrase", "note": "x", "dry_run": True, **fields})
        assert trigger is None or answer["trigger"] == trigger
        assert read_as is None or answer["read_as"] == read_as
        assert answer["read_as"]


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("every 2nd tuesday", "trigger.every", "two readings"),
        ("biweekly", "trigger.every", "two readings"),
        ("day at 13:01am", "trigger.every", "13:01am"),
        ("year on octopus 3", "trigger.every", "octopus"),
        ("every weekday morning", "trigger.every", "time in the morning"),
    ],
)
def test_a_refusal_is_the_same_everywhere(interfaces: Interfaces, text: str, field: str, words: str) -> None:
    refusals = [ask(CREATE, {"name": "phrase", "note": "x", "every": text}) for ask in ways(interfaces)]
    assert all(isinstance(refusal, Refusal) for refusal in refusals)
    assert len(set(refusals)) == 1
    assert refusals[0].field == field
    assert words in refusals[0].message


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("tomorrow 9am", "2026-03-11T09:00:00Z"),
        ("in 10 minutes", "2026-03-10T12:10:00Z"),
        ("+2h", "2026-03-10T14:00:00Z"),
        ("friday 5pm", "2026-03-13T17:00:00Z"),
        ("25 dec", "2026-12-25T00:00:00Z"),
        ("2026-12-25 09:00", "2026-12-25T09:00:00Z"),
    ],
)
def test_an_instant_is_read_the_same_everywhere(interfaces: Interfaces, text: str, at: str) -> None:
    for ask in ways(interfaces):
        answer = ask(CREATE, {"name": "phrase", "note": "x", "dry_run": True, "at": text})
        assert answer["schedule"]["trigger"] == {"kind": "once", "at": at}
        paused = ask(
            operations["schedule pause"], {"schedule": "nightly-report", "until": text, "dry_run": True}
        )
        assert paused["progress"]["paused_until"] == at


def test_an_instant_is_read_in_the_zone_that_is_given(interfaces: Interfaces) -> None:
    fields = {
        "name": "phrase",
        "note": "x",
        "dry_run": True,
        "at": "2026-12-25T09:00",
        "zone": "Europe/Berlin",
    }
    for ask in ways(interfaces):
        assert ask(CREATE, fields)["schedule"]["trigger"]["at"] == "2026-12-25T08:00:00Z"


def test_an_ambiguous_instant_is_refused_everywhere(interfaces: Interfaces) -> None:
    for ask in ways(interfaces):
        refusal = ask(CREATE, {"name": "phrase", "note": "x", "at": "01/02/2027"})
        assert refusal.code == "invalid_instant"
        assert refusal.fix == "1 february 2027; or 2 january 2027"


def test_a_calendar_in_a_phrase_becomes_the_rule_of_the_schedule() -> None:
    harness = sample_harness()
    harness.ask("calendar put", name="holidays", dates=["2026-03-12"])
    made = harness.ask("schedule create", name="office", every="day at 9 except holidays", note="x")
    assert made["schedule"]["calendar"]["except"] == ["holidays"]
    assert made["read_as"] == "every day at 09:00, except holidays, UTC"


def test_a_reminder_takes_a_phrase(harness_with_nothing: OperationsHarness) -> None:
    made = harness_with_nothing.ask("reminder set", text="stand up", every="weekday at 10am")
    assert made["when"] == "at 10:00 on Monday through Friday, UTC"


@pytest.fixture
def harness_with_nothing() -> OperationsHarness:
    return OperationsHarness()


def test_the_command_line_prints_how_a_phrase_was_read(harness_with_nothing: OperationsHarness) -> None:
    said = invoke(
        harness_with_nothing, "schedule", "create", "a", "--every", "weekdays at 9", "--note", "x", TZ="UTC"
    )
    assert said.code == 0
    assert "every weekday at 09:00, UTC" in said.out + said.err


def test_a_program_declares_with_the_same_words(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "app.db")
    try:
        app.schedule("weekdays at 9am Europe/Berlin", name="morning")(lambda: None)
        app.schedule("first monday of the month at 9am", name="monthly", zone="Asia/Tokyo")(lambda: None)
        app.start()
        rows = {row.name: row.trigger for row in app.schedules.list().schedules}
    finally:
        app.stop(wait=timedelta(0))
    assert rows == {
        "morning": "at 09:00 on Monday through Friday, Europe/Berlin time",
        "monthly": "at 09:00 on the first Monday of the month, Asia/Tokyo time",
    }
