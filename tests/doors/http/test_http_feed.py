"""A calendar program subscribes: it has an address, a name and a password, and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import icalendar
import pytest

from tests.doors.http.visitor import Visitor, visiting
from tests.operations.house import House


@pytest.fixture
def stranger(house: House) -> Iterator[Visitor]:
    with visiting(house, caller=None) as found:
        yield found


def shown(password: str) -> dict[str, str]:
    """What a calendar program sends for `https://calendar:PASSWORD@host/feed.ics`."""
    return {"authorization": f"Basic {base64.b64encode(f'calendar:{password}'.encode()).decode()}"}


def test_a_calendar_subscribes_to_a_tag_with_a_key_as_its_password(house: House, stranger: Visitor) -> None:
    house.ask("schedule create", name="nightly", cron="0 3 * * *", note="x", tags=["night"])
    key = house.ask("key create", key="calendar", role="viewer")["token"]
    answer = stranger.ask("GET", "/feed.ics?tag=night&days=2", headers=shown(key))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/calendar; charset=utf-8")
    assert answer.body.count(b"\r\n") == answer.body.count(b"\n") > 5
    events = icalendar.Calendar.from_ical(answer.body).walk("VEVENT")
    assert [str(event["summary"]) for event in events] == ["nightly", "nightly"]
    bearer = stranger.ask("GET", "/feed.ics?tag=night", headers={"authorization": f"Bearer {key}"})
    assert bearer.status == 200


@pytest.mark.parametrize(
    "said", ["", "Basic", "Basic ????", "Basic AAAA", "Basic /w==", shown("tw_no")["authorization"]]
)
def test_a_wrong_password_opens_nothing(stranger: Visitor, said: str) -> None:
    assert stranger.ask("GET", "/feed.ics", headers={"authorization": said or None}).status == 401


def test_a_password_opens_nothing_but_the_feed(house: House, stranger: Visitor) -> None:
    key = house.ask("key create", key="calendar", role="admin")["token"]
    assert stranger.ask("GET", "/api/v1/schedules", headers=shown(key)).status == 401
    assert stranger.ask("POST", "/feed.ics", {}, headers=shown(key)).status == 405


def test_what_a_feed_does_not_know_is_refused(visitor: Visitor) -> None:
    answer = visitor.ask("GET", "/feed.ics?tga=night")
    assert (answer.status, answer.data["field"]) == (422, "tga")
