"""Calendars from countries and from iCalendar files: which days, how they are called, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.operations.house import NOON, House, dump
from timewright.errors import InvalidInput, MissingExtra, NotAllowed, TimewrightError

BY_HAND = json.loads((Path(__file__).parent / "data" / "holidays.json").read_text())


@pytest.fixture
def house() -> House:
    return House()


def ics(*events: str) -> str:
    inside = "\n".join(f"BEGIN:VEVENT\nUID:{i}\n{event}\nEND:VEVENT" for i, event in enumerate(events))
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//x//x//EN\n{inside}\nEND:VCALENDAR\n"


def put(house: House, **fields: Any) -> dict[str, Any]:
    calendar: dict[str, Any] = house.ask("calendar put", {"name": "team", **fields})["calendar"]
    return calendar


def refusal_of(house: House, operation: str = "calendar put", **fields: Any) -> TimewrightError:
    before = dump(house.store)
    with pytest.raises(TimewrightError) as refusal:
        house.ask(operation, fields)
    assert refusal.value.field
    assert refusal.value.rule
    assert refusal.value.fix
    assert dump(house.store) == before
    return refusal.value


# ------------------------------------------------------------------------------------- countries


@pytest.mark.parametrize("place", sorted(BY_HAND))
def test_the_holidays_of_a_country_are_those_on_its_wall(house: House, place: str) -> None:
    country, _, part = place.partition("-")
    fields = {"subdivision": part} if part else {}
    calendar = put(house, holidays=country, years="2026-2028", **fields)
    expected = [f"{year}-{day}" for year, days in BY_HAND[place].items() for day in days]
    assert calendar["dates"] == sorted(expected)
    assert set(calendar["names"]) == set(expected)
    assert calendar["names"][f"2026-{BY_HAND[place]['2026'][0]}"].startswith("New Year")


def test_a_part_of_a_country_has_days_of_its_own(house: House) -> None:
    berlin = put(house, holidays="de", subdivision="BE", years="2026")
    assert berlin["names"]["2026-03-08"] == "Women's Day"
    assert "2026-03-08" not in put(house, holidays="DE", years="2026")["dates"]


def test_a_calendar_remembers_where_its_days_came_from(house: House) -> None:
    source = put(house, holidays="US")["source"]
    assert source["library"].startswith("holidays 0.")
    assert (source["country"], source["first_year"], source["last_year"]) == ("US", 2026, 2028)
    assert source["read_at"] == "2026-03-10T12:00:00Z"


def test_explain_says_what_the_day_is_called(house: House) -> None:
    put(house, holidays="DE", years="2026")
    house.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["team"]})
    told = house.ask("schedule explain", schedule="daily", at="2026-12-25T09:00:00Z")
    assert told["because"] == ["calendar team excludes this instant: Christmas Day"]
    house.advance(days=25)
    told = house.ask("schedule explain", schedule="daily", at="2026-04-03T09:00:00Z")
    assert told["because"][0] == "calendar team excludes this instant: Good Friday"


def test_days_of_ones_own_stand_beside_those_of_a_country_and_outlast_a_refresh(house: House) -> None:
    put(house, holidays="DE", years="2026", dates=["2026-12-24"])
    refreshed = house.ask("calendar refresh", calendar="team", years="2027")
    assert refreshed["calendar"]["revision"] == 2
    assert "2026-12-24" in refreshed["calendar"]["dates"]
    assert "2026-12-25" in refreshed["removed"]
    assert "2027-12-25" in refreshed["added"]
    assert refreshed["calendar"]["source"]["first_year"] == 2027


def test_a_refresh_that_finds_nothing_new_writes_nothing(house: House) -> None:
    put(house, holidays="DE", years="2026")
    before = dump(house.store)
    house.sleep(days=3)
    refreshed = house.ask("calendar refresh", calendar="team")
    assert (refreshed["added"], refreshed["removed"], refreshed["calendar"]["revision"]) == ([], [], 1)
    assert dump(house.store) == before


def test_a_refresh_names_who_uses_the_calendar(house: House) -> None:
    put(house, holidays="DE", years="2026")
    house.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["team"]})
    assert house.ask("calendar refresh", calendar="team", years="2026-2027")["used_by"] == ["daily"]


def test_only_what_came_from_a_country_is_read_again(house: House) -> None:
    put(house, yearly=["12-25"])
    with pytest.raises(NotAllowed) as refusal:
        house.ask("calendar refresh", calendar="team")
    assert "ical" in (refusal.value.fix or "")


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
def test_what_is_no_source_is_refused(house: House, fields: dict[str, Any], field: str) -> None:
    refusal = refusal_of(house, name="team", **fields)
    assert (refusal.field or "").partition(".")[0] == field


@pytest.mark.parametrize(
    ("module", "fields"), [("holidays", {"holidays": "DE"}), ("icalendar", {"ical": "x"})]
)
def test_without_the_extra_the_way_to_install_it_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, module: str, fields: dict[str, str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    refusal = refusal_of(house, name="team", **fields)
    assert isinstance(refusal, MissingExtra)
    assert refusal.fix == "pip install 'timewright[calendars]'"


# ------------------------------------------------------------------------------------- files


def test_whole_days_of_a_file_are_days_and_the_rest_is_spans(house: House) -> None:
    text = ics(
        "DTSTART;VALUE=DATE:20260801\nDTEND;VALUE=DATE:20260804\nSUMMARY:Summer party",
        "DTSTART;VALUE=DATE:20260802\nSUMMARY:Sunday",
        "DTSTART:20260310T220000Z\nDURATION:PT4H\nSUMMARY:Maintenance",
        "DTSTART;TZID=America/New_York:20260701T090000\nDTEND;TZID=America/New_York:20260701T100000\nSUMMARY:NY",
        "DTSTART:20260702T090000\nDTEND:20260702T100000\nSUMMARY:Floating",
        "DTSTART:20260703T090000Z\nSUMMARY:No length",
        "DTSTART;VALUE=DATE:20260901\nSTATUS:CANCELLED\nSUMMARY:Off",
    )
    calendar = put(house, ical=text, zone="Europe/Berlin")
    assert calendar["dates"] == ["2026-08-01", "2026-08-02", "2026-08-03"]
    assert calendar["names"]["2026-08-02"] == "Summer party and Sunday"
    assert [(span["start"], span["end"], span["name"]) for span in calendar["spans"]] == [
        ("2026-03-10T22:00:00Z", "2026-03-11T02:00:00Z", "Maintenance"),
        ("2026-07-01T13:00:00Z", "2026-07-01T14:00:00Z", "NY"),
        ("2026-07-02T07:00:00Z", "2026-07-02T08:00:00Z", "Floating"),
    ]
    assert calendar["source"]["library"].startswith("icalendar ")


def test_what_repeats_in_a_file_is_followed_through_the_years_and_keeps_its_local_time(house: House) -> None:
    text = ics(
        "DTSTART;TZID=Europe/Berlin:20260324T220000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3\nSUMMARY:Deploy",
        "DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY\nSUMMARY:May",
    )
    calendar = put(house, ical=text, years="2026-2027")
    assert [span["start"] for span in calendar["spans"]] == [
        "2026-03-24T21:00:00Z",
        "2026-03-31T20:00:00Z",
        "2026-04-07T20:00:00Z",
    ]
    assert calendar["dates"] == ["2026-05-01", "2027-05-01"]


def test_single_times_of_what_repeats_may_be_left_out_added_or_moved(house: House) -> None:
    weekly = (
        "DTSTART:20260302T100000Z\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;UNTIL=20260401T000000Z\n"
        "EXDATE:20260309T100000Z\nRDATE:20260304T100000Z\nSUMMARY:Weekly"
    )
    moved = "DTSTART:20260317T150000Z\nDURATION:PT1H\nRECURRENCE-ID:20260316T100000Z\nSUMMARY:Moved"
    text = ics(weekly, moved).replace("UID:1", "UID:0")
    assert [span["start"] for span in put(house, ical=text)["spans"]] == [
        "2026-03-02T10:00:00Z",
        "2026-03-04T10:00:00Z",
        "2026-03-17T15:00:00Z",
        "2026-03-23T10:00:00Z",
        "2026-03-30T10:00:00Z",
    ]


def test_explain_says_what_a_span_is_called(house: House) -> None:
    put(house, ical=ics("DTSTART:20260310T220000Z\nDURATION:PT4H\nSUMMARY:Maintenance"))
    house.ask("schedule create", name="hourly", every="1h", note="x", calendar={"except": ["team"]})
    told = house.ask("schedule explain", schedule="hourly", at="2026-03-10T23:00:00Z")
    assert told["because"] == ["calendar team excludes this instant: Maintenance"]


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
def test_a_file_that_cannot_be_read_or_holds_too_much_is_refused(house: House, text: str) -> None:
    refusal = refusal_of(house, name="team", ical=text)
    assert isinstance(refusal, InvalidInput)
    assert refusal.field == "ical"


def test_a_schedule_left_with_no_occurrence_says_so(house: House) -> None:
    house.ask("calendar put", name="team", dates=["2026-03-11"])
    house.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"only": ["team"]})
    house.advance(days=2)
    kept = house.ask("schedule get", schedule="daily")
    assert house.now > NOON
    assert "calendars exclude every occurrence to come" in json.dumps(kept)
