"""Calendars from country holidays and iCalendar files: days, names and rejected input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.operations.harness import NOON, OperationsHarness, dump
from timewright.errors import InvalidInput, MissingExtra, NotAllowed, TimewrightError

BY_HAND = json.loads((Path(__file__).parent / "data" / "holidays.json").read_text())


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def ics(*events: str) -> str:
    inside = "\n".join(f"BEGIN:VEVENT\nUID:{i}\n{event}\nEND:VEVENT" for i, event in enumerate(events))
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//x//x//EN\n{inside}\nEND:VCALENDAR\n"


def put(harness: OperationsHarness, **fields: Any) -> dict[str, Any]:
    calendar: dict[str, Any] = harness.ask("calendar put", {"name": "team", **fields})["calendar"]
    return calendar


def refusal_of(harness: OperationsHarness, operation: str = "calendar put", **fields: Any) -> TimewrightError:
    before = dump(harness.store)
    with pytest.raises(TimewrightError) as error:
        harness.ask(operation, fields)
    assert error.value.field
    assert error.value.rule
    assert error.value.fix
    assert dump(harness.store) == before
    return error.value


# ------------------------------------------------------------------------------------- countries


@pytest.mark.parametrize("key", sorted(BY_HAND))
def test_the_holidays_of_a_country_match_published_lists(harness: OperationsHarness, key: str) -> None:
    country, _, part = key.partition("-")
    fields = {"subdivision": part} if part else {}
    calendar = put(harness, holidays=country, years="2026-2028", **fields)
    expected = [f"{year}-{day}" for year, days in BY_HAND[key].items() for day in days]
    assert calendar["dates"] == sorted(expected)
    assert set(calendar["names"]) == set(expected)
    assert calendar["names"][f"2026-{BY_HAND[key]['2026'][0]}"].startswith("New Year")


def test_a_subdivision_has_its_own_holidays(harness: OperationsHarness) -> None:
    berlin = put(harness, holidays="de", subdivision="BE", years="2026")
    assert berlin["names"]["2026-03-08"] == "Women's Day"
    assert "2026-03-08" not in put(harness, holidays="DE", years="2026")["dates"]


def test_a_calendar_stores_the_source_of_its_days(harness: OperationsHarness) -> None:
    source = put(harness, holidays="US")["source"]
    assert source["library"].startswith("holidays 0.")
    assert (source["country"], source["first_year"], source["last_year"]) == ("US", 2026, 2028)
    assert source["read_at"] == "2026-03-10T12:00:00Z"


def test_explain_shows_the_name_of_the_day(harness: OperationsHarness) -> None:
    put(harness, holidays="DE", years="2026")
    harness.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["team"]})
    answer = harness.ask("schedule explain", schedule="daily", at="2026-12-25T09:00:00Z")
    assert answer["because"] == ["calendar team excludes this instant: Christmas Day"]
    harness.advance(days=25)
    answer = harness.ask("schedule explain", schedule="daily", at="2026-04-03T09:00:00Z")
    assert answer["because"][0] == "calendar team excludes this instant: Good Friday"


def test_manual_days_stay_after_a_refresh(
    harness: OperationsHarness,
) -> None:
    put(harness, holidays="DE", years="2026", dates=["2026-12-24"])
    refreshed = harness.ask("calendar refresh", calendar="team", years="2027")
    assert refreshed["calendar"]["revision"] == 2
    assert "2026-12-24" in refreshed["calendar"]["dates"]
    assert "2026-12-25" in refreshed["removed"]
    assert "2027-12-25" in refreshed["added"]
    assert refreshed["calendar"]["source"]["first_year"] == 2027


def test_a_refresh_that_finds_nothing_new_writes_nothing(harness: OperationsHarness) -> None:
    put(harness, holidays="DE", years="2026")
    before = dump(harness.store)
    harness.sleep(days=3)
    refreshed = harness.ask("calendar refresh", calendar="team")
    assert (refreshed["added"], refreshed["removed"], refreshed["calendar"]["revision"]) == ([], [], 1)
    assert dump(harness.store) == before


def test_a_refresh_names_the_schedules_that_use_the_calendar(harness: OperationsHarness) -> None:
    put(harness, holidays="DE", years="2026")
    harness.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["team"]})
    assert harness.ask("calendar refresh", calendar="team", years="2026-2027")["used_by"] == ["daily"]


def test_only_country_holidays_can_be_refreshed(harness: OperationsHarness) -> None:
    put(harness, yearly=["12-25"])
    with pytest.raises(NotAllowed) as error:
        harness.ask("calendar refresh", calendar="team")
    assert "ical" in (error.value.fix or "")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"holidays": "Germany"}, "holidays"),
        ({"holidays": "XX"}, "holidays"),
        ({"holidays": "DE", "subdivision": "ZZ"}, "subdivision"),
        ({"holidays": "JP", "subdivision": "ZZ"}, "subdivision"),
        ({"holidays": "DE", "years": "26"}, "years"),
        ({"holidays": "DE", "years": "2028-2026"}, "years"),
        ({"holidays": "DE", "years": "2000-2100"}, "years"),
        ({"holidays": "DE", "ical": "BEGIN:VCALENDAR"}, "ical"),
        ({"holidays": "DE", "dates": ["2026-01-01"], "names": {"2026-01-01": "x"}}, "names"),
        ({"years": "2026"}, "years"),
        ({"subdivision": "BE"}, "subdivision"),
        ({"names": {"2026-01-01": "x"}}, "names"),
        ({"source": {"kind": "ical"}}, "source"),
    ],
)
def test_an_invalid_source_is_rejected(
    harness: OperationsHarness, fields: dict[str, Any], field: str
) -> None:
    error = refusal_of(harness, name="team", **fields)
    assert (error.field or "").partition(".")[0] == field


@pytest.mark.parametrize(
    ("module", "fields"), [("holidays", {"holidays": "DE"}), ("icalendar", {"ical": "x"})]
)
def test_a_missing_extra_is_reported_with_its_install_command(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch, module: str, fields: dict[str, str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    error = refusal_of(harness, name="team", **fields)
    assert isinstance(error, MissingExtra)
    assert error.fix == "pip install 'timewright[calendars]'"


# ------------------------------------------------------------------------------------- files


def test_all_day_events_become_days_and_others_spans(harness: OperationsHarness) -> None:
    text = ics(
        "DTSTART;VALUE=DATE:20260801\nDTEND;VALUE=DATE:20260804\nSUMMARY:Summer party",
        "DTSTART;VALUE=DATE:20260802\nSUMMARY:Sunday",
        "DTSTART:20260310T220000Z\nDURATION:PT4H\nSUMMARY:Maintenance",
        "DTSTART;TZID=America/New_York:20260701T090000\nDTEND;TZID=America/New_York:20260701T100000\nSUMMARY:NY",
        "DTSTART:20260702T090000\nDTEND:20260702T100000\nSUMMARY:Floating",
        "DTSTART:20260703T090000Z\nSUMMARY:No length",
        "DTSTART;VALUE=DATE:20260901\nSTATUS:CANCELLED\nSUMMARY:Off",
    )
    calendar = put(harness, ical=text, zone="Europe/Berlin")
    assert calendar["dates"] == ["2026-08-01", "2026-08-02", "2026-08-03"]
    assert calendar["names"]["2026-08-02"] == "Summer party and Sunday"
    assert [(span["start"], span["end"], span["name"]) for span in calendar["spans"]] == [
        ("2026-03-10T22:00:00Z", "2026-03-11T02:00:00Z", "Maintenance"),
        ("2026-07-01T13:00:00Z", "2026-07-01T14:00:00Z", "NY"),
        ("2026-07-02T07:00:00Z", "2026-07-02T08:00:00Z", "Floating"),
    ]
    assert calendar["source"]["library"].startswith("icalendar ")


def test_recurring_events_are_expanded_and_keep_their_local_time(
    harness: OperationsHarness,
) -> None:
    text = ics(
        "DTSTART;TZID=Europe/Berlin:20260324T220000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3\nSUMMARY:Deploy",
        "DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY\nSUMMARY:May",
    )
    calendar = put(harness, ical=text, years="2026-2027")
    assert [span["start"] for span in calendar["spans"]] == [
        "2026-03-24T21:00:00Z",
        "2026-03-31T20:00:00Z",
        "2026-04-07T20:00:00Z",
    ]
    assert calendar["dates"] == ["2026-05-01", "2027-05-01"]


def test_recurring_events_respect_exdate_rdate_and_overrides(harness: OperationsHarness) -> None:
    weekly = (
        "DTSTART:20260302T100000Z\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;UNTIL=20260401T000000Z\n"
        "EXDATE:20260309T100000Z\nRDATE:20260304T100000Z\nSUMMARY:Weekly"
    )
    moved = "DTSTART:20260317T150000Z\nDURATION:PT1H\nRECURRENCE-ID:20260316T100000Z\nSUMMARY:Moved"
    text = ics(weekly, moved).replace("UID:1", "UID:0")
    assert [span["start"] for span in put(harness, ical=text)["spans"]] == [
        "2026-03-02T10:00:00Z",
        "2026-03-04T10:00:00Z",
        "2026-03-17T15:00:00Z",
        "2026-03-23T10:00:00Z",
        "2026-03-30T10:00:00Z",
    ]


def test_explain_shows_the_name_of_a_span(harness: OperationsHarness) -> None:
    put(harness, ical=ics("DTSTART:20260310T220000Z\nDURATION:PT4H\nSUMMARY:Maintenance"))
    harness.ask("schedule create", name="hourly", every="1h", note="x", calendar={"except": ["team"]})
    answer = harness.ask("schedule explain", schedule="hourly", at="2026-03-10T23:00:00Z")
    assert answer["because"] == ["calendar team excludes this instant: Maintenance"]


@pytest.mark.parametrize(
    "text",
    [
        "junk",
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:no start\nEND:VEVENT\nEND:VCALENDAR",
        ics("DTSTART:20260310T220000Z\nDURATION:PT4H\nRRULE:FREQ=SECONDLY"),
        ics("DTSTART:20260310T220000Z\nDURATION:PT4H\nRRULE:FREQ=YEARLY;BYWEEKNO=3"),
        ics(*(["DTSTART:20260101T000000Z\nDURATION:PT1M\nRRULE:FREQ=DAILY"] * 12)),
        ics(*(["DTSTART;VALUE=DATE:20260101"] * 5001)),
    ],
    ids=["junk", "no start", "every second", "week numbers", "too much", "too many events"],
)
def test_an_unreadable_or_too_large_file_is_rejected(harness: OperationsHarness, text: str) -> None:
    error = refusal_of(harness, name="team", ical=text)
    assert isinstance(error, InvalidInput)
    assert error.field == "ical"


def test_a_fully_excluded_schedule_has_a_warning(harness: OperationsHarness) -> None:
    harness.ask("calendar put", name="team", dates=["2026-03-11"])
    harness.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"only": ["team"]})
    harness.advance(days=2)
    kept = harness.ask("schedule get", schedule="daily")
    assert harness.now > NOON
    assert "calendars exclude every future occurrence" in json.dumps(kept)
