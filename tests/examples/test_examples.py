"""Every example runs and prints its documented output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from timewright.testing.postgres import fresh_database

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "embedded_function.py": "succeeded",
    "async_function.py": "polled for poll",
    "http_target.py": "{'queue_depth': 3}",
    "shell_command.py": "attempt 1",
    "publish_message.py": 'received {"lines":3} for report for the first time: True',
    "graceful_stop.py": "released: ready attempts used: 0",
    "crash_and_recovery.py": "attempts: ['lost', 'succeeded']",
    "daily_budget.py": "waiting: budget: inference: 3000 tokens used or held of 3500 tokens",
    "after_another.py": "load succeeded, and report runs after that",
    "workflow.py": "result: {'tell': 'the day is done'}",
    "nightly_load.py": "{'publish': '2026-03-09: 54 rows', 'tidy': 'stage emptied'}",
    "ask_a_person.py": "{'publish': 'Clocks: A short text about clocks.'}",
    "secrets_and_keys.py": "recorded: 26 characters: secret://crm-token",
    "watching.py": "ok    nothing is overdue",
    "agent_tools.py": "shop is active, made by shop-helper",
    "web_application.py": "the scheduler runs [('refresh', 'every 1s')]",
    "adaptive_schedule.py": "13:45:00 ai-interval",
    "several_processes.py": "2 processes, True that everything ran, no occurrence twice",
}


def shown_by(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_prints_its_documented_output(name: str) -> None:
    shown = shown_by(name)
    assert SHOWN[name] in shown
    assert shown.splitlines()[-1] == "done"


def test_four_processes_share_one_postgresql(postgres_url: str) -> None:
    with fresh_database(postgres_url) as place:
        shown = shown_by("several_processes.py", place, "4")
    assert "4 processes, True that everything ran, no occurrence twice" in shown


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)
