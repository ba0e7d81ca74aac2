"""The planner as a command, and beside the engine."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.interfaces.terminal import invoke, read_until, run, running
from tests.operations.harness import OperationsHarness, sample_harness
from tests.planner.model_endpoint import SUBMIT, ModelEndpoint, model_reply


@pytest.fixture
def harness() -> OperationsHarness:
    return sample_harness()


def test_one_pass_prints_its_analyses(harness: OperationsHarness) -> None:
    harness.advance(minutes=10)
    said = invoke(harness, "planner", "--once")
    assert said.lines == ["orders-poll: No change: nothing in its responses asks for another interval."]
    assert invoke(harness, "planner", "--once").lines == ["no schedule needs attention"]
    harness.advance(minutes=10)
    (made,) = invoke(harness, "planner", "--once", "-o", "json").data
    assert (made["advisor"], made["schedule"]) == ("heuristic", "orders-poll")


def test_a_missing_model_is_refused(harness: OperationsHarness) -> None:
    said = invoke(harness, "planner", "--once", "--planner", "llm")
    assert said.code == 1
    assert "no model is set" in said.err


def test_the_planner_runs_until_stopped(tmp_path: Path) -> None:
    assert run(tmp_path, "schedule", "create", "beat", "--manual", "--note", "beat").code == 0
    with running(tmp_path, "planner", "--planner-every", "7m") as process:
        assert read_until(process.stderr, "planner")[-1] == (
            "the heuristic planner runs every 7m; Ctrl-C stops it"
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_up_runs_the_planner_with_the_configured_model(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    endpoint.set_replies(model_reply("openai", SUBMIT))
    made = run(tmp_path, "schedule", "create", "beat", "--every", "1s", "--note", "beat", "--adaptive")
    assert made.code == 0, made.err
    settings = {
        "TIMEWRIGHT_PLANNER": "llm",
        "TIMEWRIGHT_PLANNER_EVERY": "1s",
        "TIMEWRIGHT_ADVISOR": f"{{model: m-1, base_url: '{endpoint.url}', key: 'env:MODEL_KEY'}}",
        "MODEL_KEY": "sk-1",
    }
    with running(tmp_path, "up", **settings) as engine:
        assert endpoint.requested.wait(60)
        engine.send_signal(signal.SIGTERM)
        engine.communicate(timeout=60)
    assert engine.returncode == 0
    assert endpoint.headers[0]["authorization"] == "Bearer sk-1"
    shown = run(tmp_path, "analysis", "list", "-o", "json").data["analyses"]
    assert [one["reasoning"] for one in shown] == ["all is well"]
