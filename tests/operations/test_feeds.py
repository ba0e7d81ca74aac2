"""The feed of what is planned, as another program reads it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import icalendar
import pytest

from tests.operations.house import NOON, House
from timewright.errors import InvalidInput


@pytest.fixture
def house() -> House:
    return House()


def events(text: str) -> list[Any]:
    return list(icalendar.Calendar.from_ical(text).walk("VEVENT"))


def test_a_feed_holds_what_will_start_and_another_program_reads_it(house: House) -> None:
    house.ask("schedule create", name="daily; at, nine", cron="0 9 * * *", note="x", tags=["a,b"])
    feed = house.ask("schedule feed", days=3)
    assert (feed["schedules"], feed["events"], feed["more"]) == (1, 3, False)
    assert feed["content_type"].startswith("text/calendar")
    found = events(feed["text"])
    assert [event["dtstart"].dt for event in found] == [NOON.replace(day=day, hour=9) for day in (11, 12, 13)]
    assert {str(event["summary"]) for event in found} == {"daily; at, nine"}
    assert str(found[0]["description"]) == "at 09:00 every day"
    assert len({str(event["uid"]) for event in found}) == 3


def test_an_occurrence_keeps_its_name_in_the_feed_while_time_passes(house: House) -> None:
    house.ask("schedule create", name="daily", cron="0 9 * * *", note="x")
    first = [str(event["uid"]) for event in events(house.ask("schedule feed", days=3)["text"])]
    house.advance(days=1)
    assert [str(event["uid"]) for event in events(house.ask("schedule feed", days=3)["text"])][:2] == first[
        1:
    ]


def test_a_feed_is_of_a_tag_or_of_a_group(house: House) -> None:
    house.ask("schedule create", name="one", cron="0 9 * * *", note="x", tags=["night"])
    house.ask("schedule create", name="two", cron="0 9 * * *", note="x", group="reports")
    house.ask("schedule create", name="paused", cron="0 9 * * *", note="x", tags=["night"])
    house.ask("schedule pause", schedule="paused")
    for fields, name in (({"tag": "night"}, "one"), ({"group": "reports"}, "two")):
        feed = house.ask("schedule feed", fields, days=1)
        assert [str(event["summary"]) for event in events(feed["text"])] == [name]


def test_what_a_calendar_excludes_is_not_in_the_feed(house: House) -> None:
    house.ask("calendar put", name="off", dates=["2026-03-12"])
    house.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["off"]})
    found = events(house.ask("schedule feed", days=3)["text"])
    assert [event["dtstart"].dt.day for event in found] == [11, 13]


def test_a_feed_is_bounded_and_says_so(house: House) -> None:
    house.ask("schedule create", name="often", every="1m", note="x")
    feed = house.ask("schedule feed", days=30)
    assert (feed["events"], feed["more"]) == (200, True)
    with pytest.raises(InvalidInput):
        house.ask("schedule feed", days=1000)


def test_no_line_of_a_feed_is_longer_than_the_form_allows(house: House) -> None:
    name = "ü" * 100 + "\u2028" + "x" * 50
    house.ask(
        "schedule create",
        name=name.replace("\u2028", ""),
        cron="0 9 * * *",
        note="x",
        description="a\nb" * 60,
    )
    text = house.ask("schedule feed", days=2)["text"]
    assert max(len(line.encode()) for line in text.split("\n")) <= 75
    assert str(events(text)[0]["summary"]) == name.replace("\u2028", "")
    assert events(text)[0].get("duration").dt == timedelta(minutes=5)
