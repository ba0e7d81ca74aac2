"""The planner as a command, and beside the engine."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.doors.terminal import ask, lines_until, run, started
from tests.operations.house import House, furnished
from tests.planner.conftest import Endpoint
from tests.planner.test_llm import SUBMIT, answer


@pytest.fixture
def house() -> House:
    return furnished()


def test_one_pass_says_what_it_saw(house: House) -> None:
    house.advance(minutes=10)
    said = ask(house, "planner", "--once")
    assert said.lines == ["orders-poll: Leave it as it is: nothing in its answers asks for another pace."]
    assert ask(house, "planner", "--once").lines == ["nobody deserves a look"]
    house.advance(minutes=10)
    (made,) = ask(house, "planner", "--once", "-o", "json").data
    assert (made["advisor"], made["schedule"]) == ("heuristic", "orders-poll")


def test_a_model_that_nobody_named_is_refused(house: House) -> None:
    said = ask(house, "planner", "--once", "--planner", "llm")
    assert said.code == 1
    assert "no model is named" in said.err


def test_it_stays_until_it_is_asked_to_end(tmp_path: Path) -> None:
    assert run(tmp_path, "schedule", "create", "beat", "--manual", "--note", "beat").code == 0
    with started(tmp_path, "planner", "--planner-every", "7m") as process:
        assert lines_until(process.stderr, "planner")[-1] == (
            "the heuristic planner looks every 7m; Ctrl-C ends it"
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_beside_the_engine_it_asks_the_model_that_the_settings_name(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    endpoint.says(answer("openai", SUBMIT))
    made = run(tmp_path, "schedule", "create", "beat", "--every", "1s", "--note", "beat", "--adaptive")
    assert made.code == 0, made.err
    settings = {
        "TIMEWRIGHT_PLANNER": "llm",
        "TIMEWRIGHT_PLANNER_EVERY": "1s",
        "TIMEWRIGHT_ADVISOR": f"{{model: m-1, base_url: '{endpoint.url}', key: 'env:MODEL_KEY'}}",
        "MODEL_KEY": "sk-1",
    }
    with started(tmp_path, "up", **settings) as engine:
        assert endpoint.heard.wait(60)
        engine.send_signal(signal.SIGTERM)
        engine.communicate(timeout=60)
    assert engine.returncode == 0
    assert endpoint.headers[0]["authorization"] == "Bearer sk-1"
    shown = run(tmp_path, "analysis", "list", "-o", "json").data["analyses"]
    assert [one["reasoning"] for one in shown] == ["all is well"]
