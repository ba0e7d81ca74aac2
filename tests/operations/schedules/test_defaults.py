"""Default policies of schedules from the settings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright.core.input.decode import decode
from timewright.errors import TimewrightError
from timewright.settings import Settings


def harness_with(**settings: Any) -> OperationsHarness:
    harness = OperationsHarness()
    harness.context = replace(harness.context, settings=decode(settings, Settings))
    return harness


def created(harness: OperationsHarness, **fields: Any) -> dict[str, Any]:
    asked = {"name": "job", "every": "10m", "note": "x", **fields}
    return dict(harness.ask("schedule create", asked)["schedule"])


def test_a_schedule_takes_its_defaults_from_the_settings() -> None:
    harness = harness_with(
        defaults={"overlap": "queue", "catch_up": "all", "jitter": "30s", "lease": {"length": "2m"}}
    )
    made = created(harness)
    assert (made["overlap"], made["catch_up"], made["jitter"]) == ("queue", "all", "30s")
    assert made["lease"]["length"] == "2m"
    result = created(harness, name="other", overlap="allow", jitter="0s", lease={"length": "1m"})
    assert (result["overlap"], result.get("jitter", "0s"), result["lease"]["length"]) == ("allow", "0s", "1m")
    preset = created(harness, name="third", preset="workflow")
    assert (preset["overlap"], preset["catch_up"]) == ("skip", "none"), "a preset lies over them"


def test_an_edit_does_not_apply_changed_defaults() -> None:
    harness = OperationsHarness()
    created(harness)
    harness.context = replace(harness.context, settings=decode({"defaults": {"overlap": "queue"}}, Settings))
    edited = harness.ask("schedule update", schedule="job", grace="5m")["schedule"]
    assert edited.get("overlap", "skip") == "skip"


def test_missed_occurrences_are_spread_over_the_catch_up_spread() -> None:
    harness = harness_with(look_ahead="10m")
    made = created(harness, every="1m", catch_up="spread", overlap="allow")
    assert made["spread_over"] == "10m"
    harness.sleep(minutes=5)
    harness.bench.tick()
    fires = sorted(run["fire_at"] for run in harness.ask("run list", schedule="job")["runs"])
    assert fires[-1] > "2026-03-10T12:12", "the last of five comes late in the ten minutes"
    assert created(harness, name="own", catch_up="spread", spread_over="2m")["spread_over"] == "2m"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"overlap": "maybe"}, "defaults.overlap"),
        ({"jiter": "5s"}, "defaults.jiter"),
        ({"catch_up_limit": 0}, "defaults.catch_up_limit"),
        ({"trigger": "5m"}, "defaults.trigger"),
    ],
)
def test_an_invalid_default_is_rejected_with_its_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(TimewrightError) as error:
        harness_with(defaults=wrong)
    assert error.value.field == field
