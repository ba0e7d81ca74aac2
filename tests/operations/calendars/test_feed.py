"""The iCalendar feed of schedules, parsed with a calendar library."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.operations.harness import NOON, OperationsHarness, feed_events
from timewright.errors import InvalidInput


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def test_a_feed_contains_future_starts_and_can_be_parsed(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily; at, nine", cron="0 9 * * *", note="x", tags=["a,b"])
    feed = harness.ask("schedule feed", days=3)
    assert (feed["schedules"], feed["events"], feed["more"]) == (1, 3, False)
    assert feed["content_type"].startswith("text/calendar")
    found = feed_events(feed["text"])
    assert [event["dtstart"].dt for event in found] == [NOON.replace(day=day, hour=9) for day in (11, 12, 13)]
    assert {str(event["summary"]) for event in found} == {"daily; at, nine"}
    assert str(found[0]["description"]) == "at 09:00 every day, UTC"
    assert len({str(event["uid"]) for event in found}) == 3


def test_an_occurrence_keeps_its_uid_in_the_feed(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily", cron="0 9 * * *", note="x")
    first = [str(event["uid"]) for event in feed_events(harness.ask("schedule feed", days=3)["text"])]
    harness.advance(days=1)
    assert [str(event["uid"]) for event in feed_events(harness.ask("schedule feed", days=3)["text"])][
        :2
    ] == first[1:]


def test_a_feed_can_be_limited_to_a_tag_or_group(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="one", cron="0 9 * * *", note="x", tags=["night"])
    harness.ask("schedule create", name="two", cron="0 9 * * *", note="x", group="reports")
    harness.ask("schedule create", name="paused", cron="0 9 * * *", note="x", tags=["night"])
    harness.ask("schedule pause", schedule="paused")
    for fields, name in (({"tag": "night"}, "one"), ({"group": "reports"}, "two")):
        feed = harness.ask("schedule feed", fields, days=1)
        assert [str(event["summary"]) for event in feed_events(feed["text"])] == [name]


def test_excluded_occurrences_are_not_in_the_feed(harness: OperationsHarness) -> None:
    harness.ask("calendar put", name="off", dates=["2026-03-12"])
    harness.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["off"]})
    found = feed_events(harness.ask("schedule feed", days=3)["text"])
    assert [event["dtstart"].dt.day for event in found] == [11, 13]


def test_a_feed_is_bounded_and_reports_more(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="often", every="1m", note="x")
    feed = harness.ask("schedule feed", days=30)
    assert (feed["events"], feed["more"]) == (200, True)
    with pytest.raises(InvalidInput):
        harness.ask("schedule feed", days=1000)


def test_no_line_of_a_feed_exceeds_75_bytes(harness: OperationsHarness) -> None:
    name = "ü" * 100 + "\u2028" + "x" * 50
    harness.ask(
        "schedule create",
        name=name.replace("\u2028", ""),
        cron="0 9 * * *",
        note="x",
        description="a\nb" * 60,
    )
    text = harness.ask("schedule feed", days=2)["text"]
    assert max(len(line.encode()) for line in text.split("\n")) <= 75
    assert str(feed_events(text)[0]["summary"]) == name.replace("\u2028", "")
    assert feed_events(text)[0].get("duration").dt == timedelta(minutes=5)
