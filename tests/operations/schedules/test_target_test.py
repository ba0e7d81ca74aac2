"""A target test records nothing; and the logs of attempts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness, dump
from timewright.core.run.run import Failed, Succeeded
from timewright.errors import InvalidInput, NotAllowed
from timewright.ports import Launch
from timewright.settings import Settings
from timewright.testing.targets import succeed
from timewright.wiring import Instance, new_registry


def trying(harness: OperationsHarness, outcome: Any = Succeeded(result="done")) -> list[Launch]:  # noqa: B008
    launched: list[Launch] = []

    def trial(launch: Launch, on_start: Any = None) -> Any:
        launched.append(launch)
        return outcome

    harness.context = replace(harness.context, run_target_test=trial)
    return launched


def test_a_target_test_starts_it_once_and_records_nothing(harness: OperationsHarness) -> None:
    launched = trying(harness)
    before = dump(harness.store)
    answer = harness.ask("schedule test", schedule="nightly-report", payload={"day": 1})
    assert (answer["tried"], answer["outcome"]["kind"], answer["target"]) == (True, "succeeded", "http")
    assert dump(harness.store) == before
    assert harness.facts == []
    (launch,) = launched
    assert (launch.schedule_name, launch.payload, launch.source) == ("nightly-report", {"day": 1}, "test")
    assert launch.key.startswith("test:")
    harness.ask("schedule test", schedule="nightly-report")
    assert launched[1].key != launch.key, "and no two tries share a key"


def test_a_dry_run_of_a_target_test_starts_nothing(harness: OperationsHarness) -> None:
    launched = trying(harness)
    answer = harness.ask("schedule test", schedule="nightly-report", dry_run=True)
    assert (answer["tried"], answer["why"], launched) == (False, "this was a dry run", [])


def test_a_process_without_targets_reports_that(harness: OperationsHarness) -> None:
    answer = harness.ask("schedule test", schedule="nightly-report")
    assert (answer["tried"], answer["outcome"]) == (False, None)
    assert "does not run targets" in answer["why"]


def test_a_handoff_target_cannot_be_tested(harness: OperationsHarness) -> None:
    trying(harness)
    harness.ask("schedule create", name="off", every="1h", handoff=True, queue="mail")
    with pytest.raises(NotAllowed):
        harness.ask("schedule test", schedule="off")


@pytest.mark.parametrize("limit", ["0s", "0.5s", "6m"])
def test_a_target_test_lasts_one_second_to_five_minutes(harness: OperationsHarness, limit: str) -> None:
    trying(harness)
    with pytest.raises(InvalidInput) as error:
        harness.ask("schedule test", schedule="nightly-report", time_limit=limit)
    assert error.value.field == "time_limit"


def test_an_instance_tests_with_its_own_targets(harness: OperationsHarness) -> None:
    registry = new_registry()
    registry.add(lambda: "useful", name="work")
    registry.add(lambda: 1 / 0, name="broken")
    instance = Instance(harness.store, settings=Settings(), registry=registry)
    try:
        harness.context = replace(harness.context, run_target_test=instance.targets.launch_and_wait)
        for name in ("work", "broken", "unknown"):
            harness.ask("schedule create", name=name, every="1h", call=name)
        assert harness.ask("schedule test", schedule="work")["outcome"]["kind"] == "succeeded"
        assert "ZeroDivisionError" in harness.ask("schedule test", schedule="broken")["outcome"]["error"]
        assert harness.ask("schedule test", schedule="unknown")["outcome"]["unresolved"] is True
    finally:
        instance.free()


def test_a_target_test_is_stopped_at_its_time_limit(harness: OperationsHarness) -> None:
    registry = new_registry()

    def endless(ctx: Any) -> None:
        ctx.cancelled.wait(60)

    registry.add(endless, name="endless")
    instance = Instance(harness.store, settings=Settings(), registry=registry)
    try:
        harness.context = replace(harness.context, run_target_test=instance.targets.launch_and_wait)
        harness.ask("schedule create", name="endless", every="1h", call="endless")
        answer = harness.ask("schedule test", schedule="endless", time_limit="1s")
        assert answer["outcome"]["kind"] == "timed_out"
    finally:
        instance.free()


def test_the_command_line_test_has_an_exit_code_for_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke(None, "schedule", "create", "hello", "--every", "1h", "--note", "hi there")
    invoke(None, "schedule", "create", "shut", "--every", "1h", "--shell", "--", "true")
    good = invoke(None, "schedule", "test", "hello")
    assert (good.code, "hi there" in good.out) == (0, True)
    bad = invoke(None, "schedule", "test", "shut")
    assert bad.code == 1
    assert "shell targets are disabled" in bad.out
    assert invoke(None, "run", "list", "-o", "json").data["runs"] == []


def test_the_output_of_attempts_is_shown_in_order() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="report", every="1h", note="x", retry={"max_attempts": 2})
    words = {"exit": 1, "output": "line one\nline two"}
    harness.bench.target.script(
        "report",
        succeed(after=timedelta(seconds=1)),
    )
    acts = [replace(succeed(), outcome=Failed(error="exit 1", result=words)), succeed({"output": "fine"})]
    harness.bench.target.script("report", *acts)
    harness.advance(hours=1, minutes=5)
    (row,) = harness.bench.runs("report")
    answer = harness.ask("run logs", run=row.id)
    assert [one["outcome"] for one in answer["attempts"]] == ["failed", "succeeded"]
    assert answer["attempts"][0]["streams"] == {"output": "line one\nline two"}
    assert answer["attempts"][1]["streams"] == {"output": "fine"}
    assert len(harness.ask("run logs", run=row.id, attempt=2)["attempts"]) == 1
    result = invoke(harness, "run", "logs", row.id)
    assert "    line one" in result.lines
    assert "    line two" in result.lines


def test_control_characters_in_output_do_not_reach_the_terminal() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="evil", every="1h", note="x")
    harness.bench.target.script("evil", succeed({"output": "\x1b[2Jgone\x07"}))
    harness.advance(hours=1)
    result = invoke(harness, "run", "logs", harness.bench.runs("evil")[0].id)
    assert "\x1b" not in result.out
    assert "gone" in result.out
