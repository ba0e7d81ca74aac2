"""Hints: they nudge, are bounded, are counted, expire, and are refused where nobody allowed them."""

from __future__ import annotations

import pytest

from tests.operations.house import House
from timewright.core.facts import ScheduleMoved
from timewright.errors import InvalidInput, NotAllowed, OverQuota, TimewrightError


def test_an_interval_hint_nudges_at_once_and_says_what_would_be_without_it(house: House) -> None:
    hinted = house.ask("hint interval", schedule="orders-poll", interval="1m", reason="the queue grows")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:01:00Z", "ai-interval")
    assert hinted["without_hints"] == "2026-03-10T12:03:00Z"
    assert hinted["hints"]["interval"]["expires_at"] == "2026-03-10T13:00:00Z"
    assert hinted["hints"]["interval"]["actor"] == "ada"
    assert any(isinstance(fact, ScheduleMoved) for fact in house.told)
    house.advance(hours=2)
    after = house.ask("hint list", schedule="orders-poll")
    assert after["hints"]["interval"] is None
    assert after["source"] == "baseline-interval"


def test_a_one_shot_hint_is_used_up_by_the_run_that_used_it(house: House) -> None:
    hinted = house.ask("hint once", schedule="orders-poll", at="2026-03-10T12:01:30Z")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:01:30Z", "ai-oneshot")
    house.advance(minutes=2)
    (run,) = house.ask("run list", schedule="orders-poll")["runs"]
    assert run["source"] == "ai-oneshot"
    assert house.ask("hint list", schedule="orders-poll")["hints"]["one_shot"] is None


def test_a_one_shot_may_be_said_from_now_and_only_in_one_way(house: House) -> None:
    hinted = house.ask("hint once", schedule="orders-poll", after="90s")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:01:30Z", "ai-oneshot")
    for fields in ({}, {"at": "2026-03-10T12:01:30Z", "after": "90s"}, {"after": "-1s"}):
        with pytest.raises(TimewrightError) as refusal:
            house.ask("hint once", fields, schedule="orders-poll")
        assert refusal.value.field in ("at", "after")


def test_a_one_shot_that_is_not_earlier_changes_nothing(house: House) -> None:
    hinted = house.ask("hint once", schedule="orders-poll", at="2026-03-10T12:20:00Z")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:03:00Z", "baseline-interval")


def test_a_pause_by_hint_holds_the_schedule_back_and_is_never_longer_than_an_hour(house: House) -> None:
    hinted = house.ask("hint pause", schedule="orders-poll", until="2026-03-10T12:30:00Z")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:30:00Z", "paused")
    for until in (
        "2026-03-10T13:00:01Z",
        "9999-01-01T00:00:00Z",
        "2026-03-10T12:00:00Z",
        "2025-01-01T00:00:00Z",
    ):
        with pytest.raises(InvalidInput) as refusal:
            house.ask("hint pause", schedule="orders-poll", until=until)
        assert refusal.value.field == "until"


def test_cleared_hints_leave_the_baseline(house: House) -> None:
    house.ask("hint interval", schedule="orders-poll", interval="1m")
    house.ask("hint once", schedule="orders-poll", at="2026-03-10T12:00:30Z")
    cleared = house.ask("hint clear", schedule="orders-poll")
    assert cleared["hints"] == {"interval": None, "one_shot": None, "pause": None}
    assert cleared["next_at"] == "2026-03-10T12:03:00Z"


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("hint interval", {"interval": "1m"}),
        ("hint once", {"at": "2026-03-10T12:01:00Z"}),
        ("hint pause", {"until": "2026-03-10T12:30:00Z"}),
    ],
)
def test_a_schedule_that_is_not_adaptive_takes_no_hint(
    house: House, operation: str, fields: dict[str, str]
) -> None:
    with pytest.raises(NotAllowed) as refusal:
        house.ask(operation, fields, schedule="nightly-report")
    assert refusal.value.field == "adaptive"
    assert refusal.value.fix == "schedule update nightly-report --adaptive"
    house.ask("schedule update", schedule="nightly-report", adaptive=True)
    house.ask(operation, fields, schedule="nightly-report")


def test_an_archived_schedule_takes_no_hint(house: House) -> None:
    house.ask("schedule archive", schedule="orders-poll")
    with pytest.raises(NotAllowed) as refusal:
        house.ask("hint interval", schedule="orders-poll", interval="1m")
    assert refusal.value.field == "state"


def test_a_hint_does_not_wake_what_a_person_paused(house: House) -> None:
    house.ask("schedule pause", schedule="orders-poll")
    hinted = house.ask("hint interval", schedule="orders-poll", interval="1m")
    assert hinted["next_at"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"interval": "9.9s"},
        {"interval": "0s"},
        {"interval": -5},
        {"interval": "NaN"},
        {"interval": 10**18},
        {"interval": "1m", "ttl": "25h"},
        {"interval": "1m", "ttl": "0s"},
        {"interval": "1m", "ttl": -1},
        {"interval": "1m", "reason": "x" * 2001},
        {"interval": "1m", "url": "https://evil.example"},
        {"interval": "1m", "headers": {}},
        {"intervalMs": 9999},
    ],
)
def test_a_hint_that_asks_for_too_much_is_refused(house: House, fields: dict[str, object]) -> None:
    before = house.ask("hint list", schedule="orders-poll")
    with pytest.raises(TimewrightError) as refusal:
        house.ask("hint interval", fields, schedule="orders-poll")
    assert refusal.value.field
    assert refusal.value.rule
    assert house.ask("hint list", schedule="orders-poll") == before


def test_a_one_shot_in_the_past_is_refused(house: House) -> None:
    with pytest.raises(InvalidInput) as refusal:
        house.ask("hint once", schedule="orders-poll", at="2025-03-10T12:00:00Z")
    assert refusal.value.field == "hint.at"


def test_hints_change_at_most_twelve_times_an_hour_and_can_always_be_cleared(house: House) -> None:
    for left in range(11, -1, -1):
        assert house.ask("hint interval", schedule="orders-poll", interval="1m")["changes_left"] == left
    with pytest.raises(OverQuota) as refusal:
        house.ask("hint once", schedule="orders-poll", at="2026-03-10T12:01:00Z")
    assert refusal.value.rule == "at most 12 changes an hour"
    house.ask("hint clear", schedule="orders-poll")
    house.sleep(hours=1, seconds=1)
    assert house.ask("hint interval", schedule="orders-poll", interval="1m")["changes_left"] == 11


def test_a_refused_or_rehearsed_hint_does_not_count(house: House) -> None:
    for _ in range(20):
        house.ask("hint interval", schedule="orders-poll", interval="1m", dry_run=True)
        with pytest.raises(InvalidInput):
            house.ask("hint interval", schedule="orders-poll", interval="1s")
    assert house.ask("hint list", schedule="orders-poll")["changes_left"] == 12
