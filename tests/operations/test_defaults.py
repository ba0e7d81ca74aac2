"""What the settings say for schedules that do not say so themselves."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.house import House
from timewright.core.vocabulary import decode
from timewright.errors import TimewrightError
from timewright.settings import Settings


def house_with(**settings: Any) -> House:
    house = House()
    house.context = replace(house.context, settings=decode(settings, Settings))
    return house


def created(house: House, **fields: Any) -> dict[str, Any]:
    asked = {"name": "job", "every": "10m", "note": "x", **fields}
    return dict(house.ask("schedule create", asked)["schedule"])


def test_a_schedule_takes_what_it_does_not_say_from_the_settings() -> None:
    house = house_with(
        defaults={"overlap": "queue", "catch_up": "all", "jitter": "30s", "lease": {"length": "2m"}}
    )
    made = created(house)
    assert (made["overlap"], made["catch_up"], made["jitter"]) == ("queue", "all", "30s")
    assert made["lease"]["length"] == "2m"
    said = created(house, name="other", overlap="allow", jitter="0s", lease={"length": "1m"})
    assert (said["overlap"], said.get("jitter", "0s"), said["lease"]["length"]) == ("allow", "0s", "1m")
    preset = created(house, name="third", preset="workflow")
    assert (preset["overlap"], preset["catch_up"]) == ("skip", "none"), "a preset lies over them"


def test_an_edit_keeps_what_it_does_not_mention_whatever_the_settings_say_now() -> None:
    house = House()
    created(house)
    house.context = replace(house.context, settings=decode({"defaults": {"overlap": "queue"}}, Settings))
    edited = house.ask("schedule update", schedule="job", grace="5m")["schedule"]
    assert edited.get("overlap", "skip") == "skip"


def test_what_is_missed_is_spread_over_the_look_ahead() -> None:
    house = house_with(look_ahead="10m")
    made = created(house, every="1m", catch_up="spread", overlap="allow")
    assert made["spread_over"] == "10m"
    house.sleep(minutes=5)
    house.bench.tick()
    fires = sorted(run["fire_at"] for run in house.ask("run list", schedule="job")["runs"])
    assert fires[-1] > "2026-03-10T12:12", "the last of five comes late in the ten minutes"
    assert created(house, name="own", catch_up="spread", spread_over="2m")["spread_over"] == "2m"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"overlap": "maybe"}, "defaults.overlap"),
        ({"jiter": "5s"}, "defaults.jiter"),
        ({"catch_up_limit": 0}, "defaults.catch_up_limit"),
        ({"trigger": "5m"}, "defaults.trigger"),
    ],
)
def test_a_wrong_default_is_refused_with_its_place(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(TimewrightError) as refusal:
        house_with(defaults=wrong)
    assert refusal.value.field == field
