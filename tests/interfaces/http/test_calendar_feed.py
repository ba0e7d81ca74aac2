"""The iCalendar feed with basic authentication."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import icalendar
import pytest

from tests.interfaces.http.http_client import HttpTestClient, client_for
from tests.operations.harness import OperationsHarness


@pytest.fixture
def anonymous(harness: OperationsHarness) -> Iterator[HttpTestClient]:
    with client_for(harness, caller=None) as found:
        yield found


def shown(password: str) -> dict[str, str]:
    """Return the header for `https://calendar:PASSWORD@host/feed.ics`."""
    return {"authorization": f"Basic {base64.b64encode(f'calendar:{password}'.encode()).decode()}"}


def test_a_calendar_subscribes_to_a_tag_with_a_key_as_its_password(
    harness: OperationsHarness, anonymous: HttpTestClient
) -> None:
    harness.ask("schedule create", name="nightly", cron="0 3 * * *", note="x", tags=["night"])
    key = harness.ask("key create", key="calendar", role="viewer")["token"]
    answer = anonymous.request("GET", "/feed.ics?tag=night&days=2", headers=shown(key))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/calendar; charset=utf-8")
    assert answer.body.count(b"\r\n") == answer.body.count(b"\n") > 5
    events = icalendar.Calendar.from_ical(answer.body).walk("VEVENT")
    assert [str(event["summary"]) for event in events] == ["nightly", "nightly"]
    bearer = anonymous.request("GET", "/feed.ics?tag=night", headers={"authorization": f"Bearer {key}"})
    assert bearer.status == 200


@pytest.mark.parametrize(
    "said", ["", "Basic", "Basic ????", "Basic AAAA", "Basic /w==", shown("tw_no")["authorization"]]
)
def test_a_wrong_password_is_refused(anonymous: HttpTestClient, said: str) -> None:
    assert anonymous.request("GET", "/feed.ics", headers={"authorization": said or None}).status == 401


def test_basic_authentication_works_only_for_the_feed(
    harness: OperationsHarness, anonymous: HttpTestClient
) -> None:
    key = harness.ask("key create", key="calendar", role="admin")["token"]
    assert anonymous.request("GET", "/api/v1/schedules", headers=shown(key)).status == 401
    assert anonymous.request("POST", "/feed.ics", {}, headers=shown(key)).status == 405


def test_an_unknown_feed_parameter_is_refused(client: HttpTestClient) -> None:
    answer = client.request("GET", "/feed.ics?tga=night")
    assert (answer.status, answer.data["field"]) == (422, "tga")
