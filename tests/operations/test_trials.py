"""Trying a target leaves no trace; what attempts said can be read afterwards."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.doors.terminal import ask
from tests.operations.house import House, dump
from timewright.assembly import House as Instance
from timewright.assembly import new_registry
from timewright.core.run import Failed, Succeeded
from timewright.errors import InvalidInput, NotAllowed
from timewright.ports import Launch
from timewright.settings import Settings
from timewright.testing.targets import succeed


def trying(house: House, outcome: Any = Succeeded(result="done")) -> list[Launch]:  # noqa: B008
    launched: list[Launch] = []

    def trial(launch: Launch) -> Any:
        launched.append(launch)
        return outcome

    house.context = replace(house.context, trial=trial)
    return launched


def test_a_target_is_tried_once_and_nothing_is_recorded(house: House) -> None:
    launched = trying(house)
    before = dump(house.store)
    told = house.ask("schedule test", schedule="nightly-report", payload={"day": 1})
    assert (told["tried"], told["outcome"]["kind"], told["target"]) == (True, "succeeded", "http")
    assert dump(house.store) == before
    assert house.told == []
    (launch,) = launched
    assert (launch.schedule_name, launch.payload, launch.source) == ("nightly-report", {"day": 1}, "test")
    assert launch.key.startswith("test:")
    house.ask("schedule test", schedule="nightly-report")
    assert launched[1].key != launch.key, "and no two tries share a key"


def test_a_rehearsed_trial_starts_nothing(house: House) -> None:
    launched = trying(house)
    told = house.ask("schedule test", schedule="nightly-report", dry_run=True)
    assert (told["tried"], told["why"], launched) == (False, "it was only rehearsed", [])


def test_where_nobody_starts_targets_that_is_said(house: House) -> None:
    told = house.ask("schedule test", schedule="nightly-report")
    assert (told["tried"], told["outcome"]) == (False, None)
    assert "starts no targets" in told["why"]


def test_what_is_handed_off_is_not_ours_to_try(house: House) -> None:
    trying(house)
    house.ask("schedule create", name="off", every="1h", handoff=True, queue="mail")
    with pytest.raises(NotAllowed):
        house.ask("schedule test", schedule="off")


@pytest.mark.parametrize("limit", ["0s", "0.5s", "6m"])
def test_a_trial_takes_a_second_to_five_minutes(house: House, limit: str) -> None:
    trying(house)
    with pytest.raises(InvalidInput) as refusal:
        house.ask("schedule test", schedule="nightly-report", time_limit=limit)
    assert refusal.value.field == "time_limit"


def test_an_instance_tries_with_its_own_targets(house: House) -> None:
    registry = new_registry()
    registry.add(lambda: "useful", name="work")
    registry.add(lambda: 1 / 0, name="broken")
    instance = Instance(house.store, settings=Settings(), registry=registry)
    try:
        house.context = replace(house.context, trial=instance.targets.try_once)
        for name in ("work", "broken", "unknown"):
            house.ask("schedule create", name=name, every="1h", call=name)
        assert house.ask("schedule test", schedule="work")["outcome"]["kind"] == "succeeded"
        assert "ZeroDivisionError" in house.ask("schedule test", schedule="broken")["outcome"]["error"]
        assert house.ask("schedule test", schedule="unknown")["outcome"]["unresolved"] is True
    finally:
        instance.free()


def test_a_trial_that_does_not_end_is_ended(house: House) -> None:
    registry = new_registry()

    def endless(ctx: Any) -> None:
        ctx.cancelled.wait(60)

    registry.add(endless, name="endless")
    instance = Instance(house.store, settings=Settings(), registry=registry)
    try:
        house.context = replace(house.context, trial=instance.targets.try_once)
        house.ask("schedule create", name="endless", every="1h", call="endless")
        told = house.ask("schedule test", schedule="endless", time_limit="1s")
        assert told["outcome"]["kind"] == "timed_out"
    finally:
        instance.free()


def test_the_command_line_tries_and_its_exit_code_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask(None, "schedule", "create", "hello", "--every", "1h", "--note", "hi there")
    ask(None, "schedule", "create", "shut", "--every", "1h", "--shell", "--", "true")
    good = ask(None, "schedule", "test", "hello")
    assert (good.code, "hi there" in good.out) == (0, True)
    bad = ask(None, "schedule", "test", "shut")
    assert bad.code == 1
    assert "shell targets are off" in bad.out
    assert ask(None, "run", "list", "-o", "json").data["runs"] == []


def test_what_attempts_said_is_kept_and_shown_in_order() -> None:
    house = House()
    house.ask("schedule create", name="report", every="1h", note="x", retry={"max_attempts": 2})
    words = {"exit": 1, "output": "line one\nline two"}
    house.bench.target.script(
        "report",
        succeed(after=timedelta(seconds=1)),
    )
    acts = [replace(succeed(), outcome=Failed(error="exit 1", result=words)), succeed({"output": "fine"})]
    house.bench.target.script("report", *acts)
    house.advance(hours=1, minutes=5)
    (row,) = house.bench.runs("report")
    told = house.ask("run logs", run=row.id)
    assert [one["outcome"] for one in told["attempts"]] == ["failed", "succeeded"]
    assert told["attempts"][0]["streams"] == {"output": "line one\nline two"}
    assert told["attempts"][1]["streams"] == {"output": "fine"}
    assert len(house.ask("run logs", run=row.id, attempt=2)["attempts"]) == 1
    said = ask(house, "run", "logs", row.id)
    assert "    line one" in said.lines
    assert "    line two" in said.lines


def test_output_with_controls_in_it_cannot_touch_the_terminal() -> None:
    house = House()
    house.ask("schedule create", name="evil", every="1h", note="x")
    house.bench.target.script("evil", succeed({"output": "\x1b[2Jgone\x07"}))
    house.advance(hours=1)
    said = ask(house, "run", "logs", house.bench.runs("evil")[0].id)
    assert "\x1b" not in said.out
    assert "gone" in said.out
