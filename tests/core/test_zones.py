"""A time zone is an IANA name of the installed data; everything else is refused with a suggestion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.recurrence.cron import Cron
from timewright.core.zones import check_zone, load_zone
from timewright.errors import InvalidZone

DATA = Path(__file__).parent / "data" / "cron"


def corpus() -> list[Any]:
    cases = json.loads((DATA / "corpus.json").read_text(encoding="utf-8"))["zones"]
    return [pytest.param(case, id=ascii(case.get("name", f"{case.get('times')} times"))) for case in cases]


@pytest.mark.parametrize("case", corpus())
def test_the_corpus_of_zones_is_accepted_or_refused_with_a_suggestion(case: dict[str, Any]) -> None:
    name = case["name"] if "name" in case else case["repeat"] * case["times"]
    if case["expect"] == "accept":
        assert check_zone(name) == name
        assert load_zone(name) == ZoneInfo(name)
        assert Cron("0 9 * * *", name).zone == name
    else:
        with pytest.raises(InvalidZone) as caught:
            Cron("0 9 * * *", name)
        error = caught.value
        assert error.field == "zone"
        assert isinstance(error.value, str)
        assert name.startswith(error.value)
        assert len(error.value) <= 64
        assert error.rule
        assert error.fix
        assert error.explain().isascii()


HINTS = [
    ("utc", "UTC"),
    ("europe/berlin", "Europe/Berlin"),
    ("Europe/Berln", "Europe/Berlin"),
    ("US/Pacifc", "US/Pacific"),
    ("EST", "America/New_York or America/Panama"),
    ("pst", "America/Los_Angeles or Asia/Manila"),
    ("PST8PDT", "America/Los_Angeles"),
    ("GMT", "UTC or Europe/London"),
    ("GMT+5", "a place such as Europe/Berlin, or Etc/GMT-5 (its sign is reversed)"),
    ("UTC-3", "a place such as Europe/Berlin, or Etc/GMT+3 (its sign is reversed)"),
    ("+01:00", "a place such as Europe/Berlin, or Etc/GMT-1 (its sign is reversed)"),
    ("+05:30", "a place such as Asia/Kolkata"),
    ("", "UTC or a place such as Europe/Berlin"),
]


@pytest.mark.parametrize(("name", "hint"), HINTS)
def test_a_refused_zone_comes_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(InvalidZone) as caught:
        check_zone(name)
    assert caught.value.fix == hint


def test_the_error_names_the_given_field() -> None:
    with pytest.raises(InvalidZone) as caught:
        check_zone("Mars/Olympus", field="calendar.zone")
    assert caught.value.field == "calendar.zone"
    assert "calendar.zone 'Mars/Olympus'" in caught.value.message


@pytest.mark.parametrize("value", [None, 5, b"UTC", ["UTC"]])
def test_a_zone_that_is_not_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidZone, match="is not text"):
        check_zone(value)


def test_every_place_of_the_installed_data_is_a_zone() -> None:
    places = {name for name in available_timezones() if "/" in name}
    assert len(places) > 400
    assert all(check_zone(name) == name for name in places)


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[A-Z][a-z]{2,8}/[A-Z][a-z_]{2,10}", fullmatch=True)))
def test_any_text_is_a_zone_or_refused_with_a_suggestion(name: str) -> None:
    refusal = zone_refusal(name)
    if refusal is None:
        assert name in available_timezones()
    else:
        assert refusal.fix
        assert refusal.explain().isascii()


def zone_refusal(name: str) -> InvalidZone | None:
    try:
        check_zone(name)
    except InvalidZone as refusal:
        return refusal
    return None
