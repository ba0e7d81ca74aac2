"""Exported definitions: a file with the written fields gives the same value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.core.input.model_strategies import NOON, calendars, policies, schedules
from timewright.core.calendars import Calendar
from timewright.core.definitions import Definition, Kind, read_definitions, write_definitions
from timewright.core.definitions.export import calendar_fields, queue_fields, schedule_fields
from timewright.core.input.decode import decode, decode_schedule
from timewright.core.input.encoding import encode
from timewright.core.input.strict_yaml import dump_yaml, read_yaml
from timewright.core.policies.policies import Floor, FloorAction, QueuePolicy
from timewright.core.schedule.schedule import Schedule
from timewright.errors import TimewrightError

NO_FLOOR = Floor(action=FloorAction.RAISE)


def through_a_file(kind: Kind, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    text = write_definitions([Definition(kind=kind, name=name, fields=fields)], owner="x")
    (found,) = read_definitions(text, name="f.yaml").definitions
    return found.draft


def decoded(schedule: Schedule, draft: dict[str, Any]) -> Schedule:
    made = decode_schedule(
        draft,
        id=schedule.id,
        now=schedule.created_at,
        floor=NO_FLOOR,
        namespace=schedule.namespace,
        revision=schedule.revision,
        created_by=schedule.created_by,
        origin=schedule.origin,
    )
    return replace(made, owner=schedule.owner)


def is_decodable(schedule: Schedule) -> bool:
    """Whether the schedule could be stored: decoding its full form gives it back."""
    system = {"id", "namespace", "revision", "created_at", "created_by", "origin", "owner"}
    full = {key: value for key, value in encode(schedule).items() if key not in system}
    try:
        return decoded(schedule, full) == schedule
    except TimewrightError:
        return False


@given(schedules())
def test_an_exported_schedule_is_the_same_when_it_is_read_from_a_file(schedule: Schedule) -> None:
    if is_decodable(schedule):
        draft = through_a_file("schedule", schedule.name, schedule_fields(schedule))
        assert decoded(schedule, draft) == schedule


@given(policies)
def test_an_exported_queue_policy_is_the_same_when_it_is_read(policy: QueuePolicy) -> None:
    draft = through_a_file("queue", "mail", queue_fields(policy))
    del draft["name"]
    assert decode(draft, QueuePolicy) == policy


@given(calendars)
def test_an_exported_calendar_is_the_same_when_it_is_read(calendar: Calendar) -> None:
    draft = through_a_file("calendar", calendar.name, calendar_fields(calendar))
    assert decode(draft, Calendar, base={"namespace": calendar.namespace}) == calendar


def test_a_schedule_is_written_in_its_short_form() -> None:
    draft = {"cron": "0 9 * * *", "zone": "Europe/Berlin", "http": "POST https://example.com/x"}
    schedule = decode_schedule({"name": "a", **draft}, id="sch_1", now=NOON)
    assert schedule_fields(schedule) == draft
    assert schedule_fields(schedule, always=frozenset({"overlap"})) == {**draft, "overlap": "skip"}


def test_an_interval_is_written_with_its_anchor_so_that_another_store_runs_it_at_the_same_times() -> None:
    schedule = decode_schedule({"name": "a", "every": "15m", "note": "x"}, id="sch_1", now=NOON)
    assert schedule_fields(schedule) == {"every": "15m", "anchor": "2026-03-10T12:00:00Z", "note": "x"}


@pytest.mark.parametrize("text", ["1e3", "0123", "on", "~", "a\x85b", "\u2028", "a\r\nb", " ", "- a: #b"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_is_the_same_when_it_is_read_again(text: str, ascii_only: bool) -> None:
    data = {"note": text, "args": {text: [text]}}
    assert read_yaml(dump_yaml(data, ascii_only=ascii_only)) == data
